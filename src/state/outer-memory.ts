/**
 * What a decoder's external memory holds, read off a serialised state (docs/infinite-context.md). For people; nothing
 * decides by it.
 */
import { ARCHIVE, type LayoutEntry } from '../memory.ts'

/** An external memory as it stands in a state: window, index, list and graph. */
export interface OuterMemoryView {
  /** `Retrieving`: chosen blocks come at the next beat. */
  readonly controller: 'Generating' | 'Retrieving'
  /** Tokens of the context. */
  readonly tokens: number
  /** Blocks 0 … archived − 1 have left the window. */
  readonly archived: number
  /** What the index holds a row for: every whole block. */
  readonly indexed: number
  /** Rises with each row and each archived block. */
  readonly indexVersion: number
  /** Tokens of a block; null where that is not known before a block is whole. */
  readonly blockSize: number | null
  /** Tokens of the context that are in no archived block; null where the size of a block is not known. */
  readonly window: number | null
  /** First tokens of the context that stay in the list; 0 before a block is archived. */
  readonly sinks: number
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
  /** Virtual nodes: the slot of each topic, and the archived blocks under it. Empty without a graph. */
  readonly topics: readonly { readonly slot: number; readonly blocks: readonly number[] }[]
}

const CODE_BYTES = [1, 2, 4]

/**
 * Tokens of a block, by the sizes of the tables; null: nothing is archived, or the sizes are none that an external
 * memory has. A payload (docs/formats.md, Archived blocks) has B tokens of codes of 1, 2 or 4 bytes behind its header.
 * Of the numbers B that could be, each is about twice the next, so only one of them gives as many whole blocks as there
 * are rows of the index.
 */
const blockSizeIn = (
  shape: (name: string) => readonly number[],
  { count, closed }: { readonly count: number; readonly closed: number },
): number | null => {
  const [layers, , width] = shape('window.k') as [number?, number?, number?]
  const [, keyHeads] = shape('query') as [number?, number?]
  const payload = shape(ARCHIVE)[1]
  if (layers === undefined || width === undefined || keyHeads === undefined || payload === undefined) return null
  const sizes = CODE_BYTES.map((each) => {
    const exponents = each === 1 ? 2 * layers * keyHeads : 0
    const header = Math.ceil((28 + exponents) / 64) * 64
    return (payload - header) / (2 * layers * width * each)
  })
  return sizes.find((size) => Number.isInteger(size) && size > 0 && Math.floor(count / size) === closed) ?? null
}

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
 * null for a model without an external memory. `tensors`: where the persistents lie in `state`, which may lack its
 * frozen blocks. `blockSize`: of the model, where it is known.
 */
export const outerMemoryOf = (
  tensors: readonly Pick<LayoutEntry, 'name' | 'shape' | 'offset' | 'bytes'>[],
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
  const shape = (name: string): readonly number[] => entries.get(name)?.shape ?? []
  const list = (name: string, number: string): number[] => whole(name).slice(0, counter(number))
  const entriesOfAnchors = counter('anchors.entries')
  const blocks = whole('anchors.block')
  const offsets = whole('anchors.offsets')
  const each = blocks.length === 0 ? 0 : offsets.length / blocks.length
  const spans = whole('tombstones.span')
  const attention = bytesOf('tombstones.e')
  const pending = list('pending', 'pendings')
  const [tokens, archived, indexed] = [counter('count'), counter('archived'), counter('closed')]
  const size = blockSize ?? (indexed === 0 ? null : blockSizeIn(shape, { count: tokens, closed: indexed }))
  const members = whole('graph.member')
  return {
    controller: pending.length > 0 ? 'Retrieving' : 'Generating',
    ...{ tokens, archived, indexed },
    indexVersion: counter('indexVersion'),
    blockSize: size,
    window: size === null && archived > 0 ? null : tokens - archived * (size ?? 0),
    sinks: archived === 0 ? 0 : (shape('sinks.k')[1] ?? 0),
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
    topics: whole('graph.n').flatMap((n, slot) =>
      n > 0 ? [{ slot, blocks: members.flatMap((member, block) => (member === slot ? [block] : [])) }] : [],
    ),
  }
}
