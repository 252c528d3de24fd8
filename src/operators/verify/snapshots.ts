/**
 * Snapshots under verification. What is kept of each is a sha256 of the tensors in its file and those of its blocks,
 * which its manifest names: the recomputed state is hashed in the same parts, so neither is ever held whole. Blobs
 * themselves are read only where that was asked for.
 */
import type { TopicNames } from '../../../topics/index.ts'
import { digest, giveBack } from '../../bulk.ts'
import type { Context } from '../../engine/context.ts'
import { codeOf, messageOf } from '../../errors.ts'
import type { StateLayout } from '../../memory.ts'
import { blockText, followedBy } from '../../state/block-names.ts'
import type { Head } from '../../state/head.ts'
import { type Kept, keptIn, withoutHistory } from '../../state/history.ts'
import { IN_TOPIC, isOfLayout, readOutline } from '../../state/manifest.ts'
import { checkPulse, decodeSnapshot, readSnapshotFile } from '../../state/snapshot.ts'
import type { EventLog } from '../../streams/log.ts'
import type { SessionState } from '../advance/session-state.ts'
import { isOfLife, type Life, lifeOf } from '../blobs/blobs.ts'
import { type Right, type Wrong, wrongBlobs, wrongPages } from '../blobs/check.ts'
import { CAPTURE_BYTES } from '../snapshots/capture.ts'
import { BlockLost, manifestIn, wholeSnapshot } from '../snapshots/manifests.ts'
import { readSnapshot } from '../snapshots/snapshots.ts'
import { type At, type Found, placeOf } from './stored.ts'

export interface StoredSnapshot {
  readonly head: Head
  /** What the snapshot's head has of the session beside its state. */
  readonly kept: Kept
  /** The head that names it. */
  readonly by: Head
  /** sha256 of the tensors in its file. */
  readonly hot: string
  /**
   * Of each growth the sha256 of its blocks, 32 bytes each, and the run of the first; null: the file has the whole
   * state.
   */
  readonly blocks: readonly { readonly first: number; readonly hashes: Uint8Array }[] | null
}

/** An answer that the store does not give is no difference. */
const saysNothing = (error: unknown): boolean => codeOf(error) === 'UNAVAILABLE' || codeOf(error) === 'DENIED'

const stored = async (log: EventLog, by: Head, file: Uint8Array, layout: StateLayout): Promise<StoredSnapshot> => {
  const read = await readSnapshotFile(file)
  const common = { head: withoutHistory(read.head), kept: keptIn(read.head), by }
  const manifest = await manifestIn(log, read)
  if (manifest === null) {
    const { state } = await decodeSnapshot(file, layout)
    return { ...common, hot: await digest([state]), blocks: null }
  }
  if (!isOfLayout(read, manifest, layout)) {
    const { state } = await wholeSnapshot(log, file, layout)
    return { ...common, hot: await digest([state]), blocks: null }
  }
  checkPulse(read.head)
  const blocks = manifest.names.map((own) => ({
    first: own[0]?.run ?? 0,
    hashes: Buffer.concat(own.map(({ hash }) => Buffer.from(hash, 'hex'))),
  }))
  return { ...common, hot: await digest([read.state]), blocks }
}

/** Every snapshot that a head of the session names and that was not trimmed, by its place. */
export const readSnapshots = async (
  log: EventLog,
  names: TopicNames,
  partition: number,
  layout: StateLayout,
  heads: readonly At<Head>[],
  found: Found,
): Promise<Map<string, At<StoredSnapshot>[]>> => {
  const snapshots = new Map<string, At<StoredSnapshot>[]>()
  const { begin } = await log.bounds(names.snapshots, partition)
  const seen = new Set<number>()
  const newest = heads.at(-1)?.what
  for (const { what: head } of [...heads].reverse()) {
    const ref = head.snapshot
    if (ref === null || seen.has(ref.first) || (ref.first < begin && head !== newest)) continue
    seen.add(ref.first)
    const where = `${names.snapshots}, partition ${partition}, offsets ${ref.first} to ${ref.last}`
    try {
      const snapshot = await stored(log, head, await readSnapshot(log, names.snapshots, partition, head), layout)
      const place = placeOf(snapshot.head)
      snapshots.set(place, [...(snapshots.get(place) ?? []), { what: snapshot, where }])
    } catch (error) {
      if (saysNothing(error)) throw error
      // The pages of an older snapshot are garbage before the snapshot is.
      if (error instanceof BlockLost && head !== newest) continue
      found({ kind: 'snapshot', session: head.session, where, message: messageOf(error) })
    }
  }
  return snapshots
}

/** The blocks of a session that were hashed already: frozen ones do not change while the same context goes on. */
export interface Hashed {
  life: Life | null
  /** Of each growth, in the order of runs; and one past the last of them. */
  readonly own: readonly Map<number, string>[]
  readonly ends: number[]
}

export const nothingHashed = ({ growth }: StateLayout): Hashed => ({
  life: null,
  own: growth.map(() => new Map()),
  ends: growth.map(() => 0),
})

/** Hashes what is new, and forgets what is gone. Gives the sha256 of the rest of the state. */
const hashParts = async (context: Context, head: Head, hashed: Hashed): Promise<string> => {
  const { own, ends } = hashed
  const pulse = head.conductor.globalStep
  if (!isOfLife(head, hashed.life)) {
    for (const each of own) each.clear()
    ends.fill(0)
  }
  hashed.life = lifeOf(head)
  for (;;) {
    const { hot, frozen, fresh, more } = await context.capture({ pulse, ends, most: CAPTURE_BYTES })
    for (const [g, blocks] of fresh.entries())
      for (const { run, bytes } of blocks) {
        own[g]!.set(run, await digest([bytes]))
        ends[g] = run + 1
        giveBack(bytes)
      }
    if (more === true) continue
    // Of a ring the next lap took the place of earlier runs.
    for (const [g, { first }] of frozen.entries())
      for (const run of own[g]!.keys()) if (run < first) own[g]!.delete(run)
    const hash = await digest([hot])
    giveBack(hot)
    return hash
  }
}

/**
 * How the state of the session at this head differs from the snapshot that stands there, as a sentence; null: it does
 * not.
 */
export const snapshotDifference = async (
  { hot, blocks, kept }: StoredSnapshot,
  { context, history }: Pick<SessionState, 'context' | 'history'>,
  layout: StateLayout,
  head: Head,
  hashed: Hashed,
): Promise<string | null> => {
  const differs = 'The snapshot differs from the recomputed state'
  const own = history.kept()
  if (own.recent !== kept.recent) return `${differs} in the ids that its context was fed last.`
  if (own.judged !== kept.judged) return `${differs} in what it remembers of its lines.`
  if (blocks === null) {
    const state = await context.state()
    const same = (await digest([state])) === hot
    giveBack(state)
    return same ? null : `${differs}.`
  }
  const rest = await hashParts(context, head, hashed)
  for (const [g, { first, hashes }] of blocks.entries()) {
    const own = hashed.own[g]!
    const count = hashes.length / 32
    if (count !== own.size || (count > 0 && !own.has(first)))
      return `${differs}: it names ${count} blocks, and there are ${own.size}.`
    for (const [run, hash] of own) {
      const named = Buffer.from(hashes.subarray((run - first) * 32, (run - first + 1) * 32)).toString('hex')
      if (named === hash) continue
      const what = blockText(followedBy(layout.growth[g]!), run)
      return `${differs}: it names ${what} with the sha256 ${named.slice(0, 12)}…, and they have ${hash.slice(0, 12)}….`
    }
  }
  return rest === hot ? null : `${differs} in the tensors of its own file.`
}

/** Reads every blob and page that the newest snapshot of a session names; each once, whoever names it. */
export const checkBlobs = async (
  log: EventLog,
  names: TopicNames,
  partition: number,
  head: Head,
  right: Right,
  found: Found,
): Promise<void> => {
  if (head.snapshot?.blobs === undefined) return
  const tell = (wrong: readonly Wrong<{ readonly place: string }>[], store: string): void => {
    const where = store === IN_TOPIC ? `${names.blobs}, partition ${partition}, offset` : `${store}, place`
    for (const { place, reason: message } of wrong) {
      const at = store === IN_TOPIC ? Number.parseInt(place, 16) : place
      found({ kind: 'blob', session: head.session, where: `${where} ${at}`, message })
    }
  }
  try {
    const file = await readSnapshotFile(await readSnapshot(log, names.snapshots, partition, head))
    const outline = readOutline(file)
    if (outline === null) return
    const pages = await wrongPages(log, outline, right)
    tell(pages, outline.store)
    // What a page names is not known without it.
    if (pages.length > 0) return
    tell(await wrongBlobs(log, (await manifestIn(log, file))!, right), outline.store)
  } catch (error) {
    // What is wrong with the file itself is found when it is read to be compared.
    if (codeOf(error) !== 'REFUSED') throw error
  }
}
