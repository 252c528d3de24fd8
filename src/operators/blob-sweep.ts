/**
 * The removal of blobs that no committed manifest names: those of sessions that were reset or closed, and what crashes left.
 *
 *   idle ──enough dead──▶ listing ──▶ listed ──quiet──▶ reading ──▶ read ──quiet──▶ removing ──▶ idle
 *
 * *listing*: every name in the partition's folder. *reading*: the manifests of all committed heads. What was listed and is neither in a
 * manifest nor held by a session in memory is removed. Three things make this safe:
 *
 * - a sweep goes on at *quiet* moments only: no blob is being written, and no manifest waits for the commit of its head;
 * - after listing the log is asked who owns the partition. A newer owner writes only after its claim, so none of its blobs is listed;
 *   and it names again only what a manifest that it found names, which is none of the dead;
 * - from the beginning of the listing on, a dead blob is given to no session (`forgetOthers`), and a name is never written twice.
 *
 * Listing and reading cost requests, so a sweep begins only when more is dead than alive. The first look of a task, at garbage of
 * crashes, lists and goes on only where that is so.
 */
import type { TopicNames } from '../../topics/index.ts'
import { codeOf, messageOf } from '../errors.ts'
import { failpoint } from '../failpoint.ts'
import type { Head } from '../state/head.ts'
import { type BlobName, readManifest } from '../state/manifest.ts'
import { readSnapshotFile } from '../state/snapshot.ts'
import type { EventLog, PartitionWriter } from '../streams/log.ts'
import { inParallel, nameIn, type PartitionBlobs } from './blobs.ts'
import { readSnapshot } from './snapshots.ts'

export interface SweepDeps {
  readonly log: EventLog
  readonly names: TopicNames
  readonly partition: number
  readonly writer: PartitionWriter
  readonly blobs: PartitionBlobs
  /** Committed heads. */
  readonly heads: ReadonlyMap<string, Head>
  /** Dead bytes that are not worth any work. */
  readonly floor: number
  /** What committed heads name now. */
  readonly living: () => { readonly count: number; readonly bytes: number }
  /** Blobs that captures on their way name. */
  readonly captured: () => Iterable<BlobName>
  readonly warn: (message: string) => void
  /** Called when there is something for the next quiet moment. */
  readonly wake: () => void
}

/** After a failure, ms. */
const RETRY = 60_000
const AT_A_TIME = 8

export interface Sweep {
  /** Whether the next quiet moment has something to do. */
  readonly hasWork: boolean
  /** To be called at a quiet moment. */
  step(): Promise<void>
  /** The task is over: nothing more is removed. */
  stop(): void
}

type Phase =
  | { readonly at: 'idle' | 'busy' }
  | { readonly at: 'listed'; readonly listed: readonly string[] }
  | { readonly at: 'read'; readonly listed: readonly string[]; readonly named: ReadonlySet<string> }

export const createSweep = (deps: SweepDeps): Sweep => {
  const { log, names, partition, writer, blobs, heads, floor, living, warn } = deps
  let phase: Phase = { at: 'idle' }
  let looked = false
  let stopped = false
  let retryAt = Number.NEGATIVE_INFINITY

  const isWorth = (bytes: number): boolean => bytes > Math.max(floor, living().bytes)

  /** Runs beside the commits, up to the next phase. */
  const beside = (work: () => Promise<Phase>): void => {
    phase = { at: 'busy' }
    void work()
      .catch((error: unknown): Phase => {
        if (!stopped) warn(`Garbage in the blob store ${blobs.store.url} stays for now: ${messageOf(error)}`)
        retryAt = performance.now() + RETRY
        return { at: 'idle' }
      })
      .then((next) => {
        phase = next
        if (next.at === 'idle') blobs.swept()
        // Also at the end: more may have died meanwhile.
        if (!stopped) deps.wake()
      })
  }

  const list = async (): Promise<Phase> => {
    const listed: string[] = []
    for await (const name of blobs.store.list(blobs.folder)) if (/\/[0-9a-f]{64}\./.test(name)) listed.push(name)
    const unnamed = (listed.length - living().count) * blobs.blockBytes
    return isWorth(Math.max(unnamed, blobs.dead.bytes)) ? { at: 'listed', listed } : { at: 'idle' }
  }

  /** Of a session that moves on while its snapshot is being read, the newer one counts. */
  const namesOf = async (session: string): Promise<readonly BlobName[]> => {
    for (;;) {
      const head = heads.get(session)
      if (head?.snapshot?.blobs === undefined) return []
      try {
        const file = await readSnapshot(log, names.snapshots, partition, head)
        return readManifest(readSnapshotFile(file))?.names.flat() ?? []
      } catch (error) {
        if (codeOf(error) !== 'REFUSED' || heads.get(session) === head) throw error
      }
    }
  }

  const read = async (listed: readonly string[]): Promise<Phase> => {
    const named = new Set<string>()
    const sessions = [...heads].filter(([, { snapshot }]) => snapshot?.blobs !== undefined).map(([id]) => id)
    await inParallel(sessions, AT_A_TIME, async (id) => {
      for (const blob of await namesOf(id)) named.add(nameIn(blobs.folder, blob))
    })
    return { at: 'read', listed, named }
  }

  const remove = async (victims: readonly string[]): Promise<Phase> => {
    await inParallel(victims, AT_A_TIME, async (name) => {
      if (stopped) return
      await blobs.store.remove(name)
      failpoint('blobs.removed')
    })
    return { at: 'idle' }
  }

  return {
    stop() {
      stopped = true
    },
    get hasWork() {
      if (phase.at !== 'idle') return phase.at !== 'busy'
      return (!looked || isWorth(blobs.dead.bytes)) && performance.now() >= retryAt
    },
    async step() {
      if (phase.at === 'idle') {
        looked = true
        blobs.forgetOthers()
        beside(list)
      } else if (phase.at === 'listed') {
        const { listed } = phase
        await writer.confirm()
        beside(() => read(listed))
      } else if (phase.at === 'read') {
        const { listed, named } = phase
        const keep = new Set(named)
        for (const blob of blobs.held()) keep.add(nameIn(blobs.folder, blob))
        for (const blob of deps.captured()) keep.add(nameIn(blobs.folder, blob))
        failpoint('blobs.swept')
        blobs.dead.clear()
        // What is about to be removed is given to no session, whoever left memory meanwhile.
        blobs.forgetOthers()
        beside(() => remove(listed.filter((name) => !keep.has(name))))
      }
    },
  }
}
