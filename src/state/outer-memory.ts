/** What a decoder's memory outside holds, read off a serialised state (docs/infinite-context.md). For people; nothing decides by it. */
import { ARCHIVE, type LayoutEntry } from '../memory.ts'

export interface OuterMemoryView {
  /** Tokens of the context. */
  readonly tokens: number
  /** Blocks 0 … archived − 1 have left the window. */
  readonly archived: number
  /** What the index holds a row for: every whole block. */
  readonly indexed: number
  /** Rises with each row and each archived block. */
  readonly indexVersion: number
  /** Tokens of a block; null before the first one is archived. */
  readonly blockSize: number | null
  /** Archived blocks that are attended to. */
  readonly injected: readonly number[]
  /** Chosen blocks that come at the next beat; null: the controller is not retrieving. */
  readonly pending: readonly number[] | null
  /** Tokens that stay of blocks, oldest first. */
  readonly anchors: readonly { readonly block: number; readonly offsets: readonly number[] }[]
  /** What stands for blocks from … to − 1, and how much it is attended to: 1 is an average slot's share. */
  readonly tombstones: readonly { readonly from: number; readonly to: number; readonly attention: number }[]
  /** Blocks of the topic that goes on. */
  readonly topicBlocks: number
  /** Tokens that the context had at its last retrieval; 0: there was none. */
  readonly lastRetrieval: number
  /** Topics with blocks under them: the slot of each, and how many blocks it has. Empty without a graph. */
  readonly topics: readonly { readonly slot: number; readonly blocks: number }[]
}

/** Tokens of a block, by the header of its payload (native/runtime/payload.h). null: it is not there. */
export const blockSizeOf = (payload: Uint8Array): number | null =>
  payload.length < 12 ? null : new DataView(payload.buffer, payload.byteOffset).getUint32(8, true)

/** The counter of this name in a serialised state; 0 where there is none. */
export const counterIn = (
  tensors: readonly Pick<LayoutEntry, 'name' | 'offset' | 'bytes'>[],
  state: Uint8Array,
  name: string,
): number => {
  const entry = tensors.find((each) => each.name === name)
  if (entry === undefined || entry.bytes !== 8) return 0
  return Number(new DataView(state.buffer, state.byteOffset + entry.offset).getBigInt64(0, true))
}

/**
 * null for a model without a memory outside. `tensors`: where the persistents lie in `state`, which may lack its frozen blocks.
 * `blockSize`: of the model, where it is known.
 */
export const outerMemoryOf = (
  tensors: readonly Pick<LayoutEntry, 'name' | 'offset' | 'bytes'>[],
  state: Uint8Array,
  blockSize: number | null = null,
): OuterMemoryView | null => {
  const entries = new Map(tensors.map((entry) => [entry.name, entry]))
  if (!entries.has('archived') || !entries.has('indexVersion')) return null
  const bytesOf = (name: string): Buffer => {
    const entry = entries.get(name)
    return entry === undefined
      ? Buffer.alloc(0)
      : Buffer.from(state.buffer, state.byteOffset + entry.offset, entry.bytes)
  }
  const counter = (name: string): number => counterIn(tensors, state, name)
  const whole = (name: string): number[] => {
    const bytes = bytesOf(name)
    return Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readInt32LE(4 * i))
  }
  const list = (name: string, number: string): number[] => whole(name).slice(0, counter(number))
  const entriesOfAnchors = counter('anchors.entries')
  const blocks = whole('anchors.block')
  const offsets = whole('anchors.offsets')
  const each = blocks.length === 0 ? 0 : offsets.length / blocks.length
  const spans = whole('tombstones.span')
  const attention = bytesOf('tombstones.e')
  const pending = list('pending', 'pendings')
  return {
    tokens: counter('count'),
    archived: counter('archived'),
    indexed: counter('closed'),
    indexVersion: counter('indexVersion'),
    blockSize: counter('archived') === 0 ? null : (blockSize ?? blockSizeOf(bytesOf(ARCHIVE))),
    injected: list('injected', 'injections'),
    pending: pending.length === 0 ? null : pending,
    anchors: blocks
      .slice(0, entriesOfAnchors)
      .map((block, i) => ({ block, offsets: offsets.slice(i * each, (i + 1) * each) })),
    tombstones: Array.from({ length: counter('tombstones') }, (_, i) => ({
      from: spans[2 * i]!,
      to: spans[2 * i + 1]!,
      attention: attention.readFloatLE(4 * i),
    })),
    topicBlocks: counter('topic.blocks'),
    lastRetrieval: counter('lastRetrieval'),
    topics: whole('graph.n').flatMap((n, slot) => (n > 0 ? [{ slot, blocks: n }] : [])),
  }
}
