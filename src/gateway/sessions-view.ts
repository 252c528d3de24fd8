/**
 * Where every session stands, followed from the state topic: the newest committed head of each, opened and checked, in
 * short form.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { TopicNames } from '../../topics/index.ts'
import type { Partitioner } from '../../topics/input.ts'
import type { Claim } from '../../topics/state.ts'
import { bounded } from '../bounded.ts'
import { faultOfFeeding } from '../client/declared.ts'
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import { search } from '../search.ts'
import { faultOfHead, type Head, type PartitionCursor, unseal } from '../state/head.ts'
import type { EventLog, StoredRecord } from '../streams/log.ts'

const RETRY = 250 // ms
/** Deletions that are remembered: somebody may still wait for an answer of a session that is gone. */
const MOST_DELETIONS = 65_536

export interface SessionView {
  readonly session: string
  readonly partition: number
  readonly status: Head['status']
  /** Why it was set aside; only with the status `stopped`. */
  readonly reason?: string
  /** What it was forked from. */
  readonly from?: { readonly session: string; readonly pulse: number }
  readonly pulse: number
  /** Pulse at which the current context began. */
  readonly origin: number
  readonly chain: string
  readonly model: string
  /** Tokens read and generated, and how well the former were predicted. */
  readonly tokens: number
  readonly generated: number
  readonly nats: number
  readonly predictions: number
  readonly bitsPerToken: number | null
  /** The input record that it reads, or the last one that it finished. */
  readonly offset: number
  readonly complete: boolean
  readonly generating: boolean
  /** Blocks of an external memory that are archived. */
  readonly archived: number
  readonly snapshot: { readonly pulse: number; readonly bytes: number } | null
}

const viewOf = (head: Head, partition: number): SessionView => {
  const { totals, conductor, cursor, snapshot, stopped, from } = head
  const fault = faultOfHead(head)
  const reason = fault ?? stopped?.reason
  return {
    session: head.session,
    partition,
    status: fault === null ? head.status : 'stopped',
    ...(reason !== undefined && { reason }),
    ...(from !== undefined && { from: { session: from.session, pulse: from.pulse } }),
    pulse: conductor.globalStep,
    origin: conductor.origin,
    chain: head.chain,
    model: head.model,
    tokens: totals.tokens,
    generated: totals.generated,
    nats: totals.nats,
    predictions: totals.predictions,
    bitsPerToken: totals.predictions === 0 ? null : totals.nats / totals.predictions / Math.LN2,
    offset: cursor.offset,
    complete: cursor.complete,
    generating: head.generation !== null,
    archived: head.archived ?? 0,
    snapshot: snapshot === null ? null : { pulse: snapshot.pulse, bytes: snapshot.bytes },
  }
}

export interface Page {
  readonly sessions: readonly SessionView[]
  /** The last of the page, where more follow. */
  readonly next: string | null
}

export interface SessionsView {
  readonly size: number
  get(session: string): SessionView | undefined
  /** What the session has done once by this key; undefined: nothing that it remembers. */
  claim(session: string, key: string): Claim | undefined
  /**
   * Resolves when what the session did with the input record at this offset is known here, whatever became of the
   * session since; or when the signal fires.
   */
  finished(session: string, offset: number, signal: AbortSignal): Promise<void>
  /** Resolves with the pulse of the session once it stands behind this one; with null when the signal fires. */
  moved(session: string, pulse: number, signal: AbortSignal): Promise<number | null>
  /** In the order of their ids (UTF-16 units), behind `after`. */
  page(after: string | undefined, limit: number, status: Head['status'] | undefined): Page
  /** Why a partition cannot be followed, for those that cannot. */
  readonly failures: ReadonlyMap<number, string>
  /** Where sessions belong, as far as a worker has said it. */
  readonly partitioner: Partitioner
  /** Resolves when everything that was committed at the start was read. */
  readonly caughtUp: Promise<void>
  readonly isCaughtUp: boolean
  close(): Promise<void>
}

/**
 * Who is told of each record of the state topic, in the order of its partition: the heads of a commit, then its cursor.
 */
export interface StateWatcher {
  head(view: SessionView, head: Head, record: StoredRecord): void
  cursor(cursor: PartitionCursor, partition: number, record: StoredRecord): void
  /** The session was deleted. */
  gone(session: string): void
}

export const followSessions = (
  log: EventLog,
  names: TopicNames,
  partitions: number,
  warn: (message: string) => void,
  watcher: StateWatcher,
): SessionsView => {
  const over = new AbortController()
  const { signal } = over
  const views = new Map<string, SessionView>()
  /** Of the sessions that were asked to do something once. */
  const claims = new Map<string, readonly Claim[]>()
  const failures = new Map<number, string>()
  /** Ids in order; null after one was added. */
  let sorted: string[] | null = []
  let isCaughtUp = false
  const waiting = new Map<string, Set<() => void>>()
  /** Of sessions that are gone, the offset of the event that deleted them. */
  const deletions = bounded<number>(MOST_DELETIONS)
  let partitioner: Partitioner = 'murmur2'

  const take = (record: StoredRecord, partition: number): void => {
    const { key, value, headers, offset } = record
    if (key === null) return
    const place = { topic: names.state, partition, keys: log.sealKeys }
    const state = unseal(`${names.state}, partition ${partition}, offset ${offset}`, key, value, headers, place)
    if (state.type === 'cursor') {
      if (state.format === 'text')
        throw new ContinuoError(
          'INVALID',
          `Partition ${partition} of ${names.chunks} is read with --input-format text, and the gateway writes events as JSON, which would be read as text. Serve another log.`,
        )
      if (state.topic === names.chunks) {
        const fault = faultOfFeeding(state)
        if (fault !== null) throw new ContinuoError('INVALID', `${fault} Serve another log.`)
        partitioner = state.input?.partitioner ?? 'murmur2'
      }
      watcher.cursor(state, partition, record)
      return
    }
    if (state.type === 'cancelled') return
    if (state.type === 'deleted') {
      views.delete(state.session)
      claims.delete(state.session)
      sorted = null
      deletions.set(state.session, state.offset)
      watcher.gone(state.session)
      for (const look of waiting.get(state.session) ?? []) look()
      return
    }
    if (!views.has(state.session)) sorted = null
    const view = viewOf(state, partition)
    views.set(state.session, view)
    if (state.claims !== undefined) claims.set(state.session, state.claims)
    else claims.delete(state.session)
    watcher.head(view, state, record)
    for (const look of waiting.get(state.session) ?? []) look()
  }

  const followPartition = async (partition: number, caughtUp: () => void): Promise<void> => {
    let position: number | null = null
    let behind: number | null = null
    while (!signal.aborted) {
      try {
        const { begin, end } = await log.bounds(names.state, partition)
        behind ??= end
        position = position === null ? begin : Math.max(position, begin)
        if (position >= behind) caughtUp()
        for await (const batch of log.read(names.state, partition, position, { follow: true, signal })) {
          for (const record of batch.records) take(record, partition)
          position = batch.next
          if (failures.delete(partition)) warn(`Sessions of partition ${partition} can be followed again.`)
          if (position >= behind) caughtUp()
        }
      } catch (error) {
        if (signal.aborted) return
        // What was trimmed is outdated: the owner of the partition removes only heads that newer ones replaced.
        if (codeOf(error) !== 'POSITION') {
          if (!failures.has(partition))
            warn(`Sessions of partition ${partition} cannot be followed: ${messageOf(error)}`)
          failures.set(partition, messageOf(error))
          caughtUp()
          if (codeOf(error) !== 'UNAVAILABLE') return
        }
        await delay(RETRY, null, { signal }).catch(() => undefined)
      }
    }
  }

  const running: Promise<void>[] = []
  const ready: Promise<void>[] = []
  for (let partition = 0; partition < partitions; partition += 1)
    ready.push(
      new Promise<void>((resolve) => {
        running.push(followPartition(partition, resolve).finally(resolve))
      }),
    )
  const caughtUp = Promise.all(ready).then(() => {
    isCaughtUp = true
  })

  /** Resolves when a new head of the session, or its end, makes it so; or when a signal fires. */
  const when = (session: string, until: AbortSignal, isSo: () => boolean): Promise<void> => {
    const ends = AbortSignal.any([until, signal])
    return new Promise<void>((resolve) => {
      const looks = waiting.get(session) ?? new Set()
      const look = (): void => {
        if (!ends.aborted && !isSo()) return
        ends.removeEventListener('abort', look)
        looks.delete(look)
        if (looks.size === 0 && waiting.get(session) === looks) waiting.delete(session)
        resolve()
      }
      waiting.set(session, looks.add(look))
      ends.addEventListener('abort', look)
      look()
    })
  }

  return {
    get size() {
      return views.size
    },
    get: (session) => views.get(session),
    claim: (session, wanted) => claims.get(session)?.find(({ key }) => key === wanted),
    // A session goes through the records of its partition in their order, in whatever lives.
    finished: (session, offset, until) =>
      when(session, until, () => {
        const view = views.get(session)
        const read = view === undefined ? -1 : view.complete ? view.offset : view.offset - 1
        return Math.max(read, deletions.get(session) ?? -1) >= offset
      }),
    async moved(session, pulse, until) {
      const pulseNow = (): number => views.get(session)?.pulse ?? 0
      await when(session, until, () => pulseNow() > pulse)
      return pulseNow() > pulse ? pulseNow() : null
    },
    page(after, limit, status) {
      sorted ??= [...views.keys()].sort()
      const found: SessionView[] = []
      const ids = sorted
      let at = after === undefined ? 0 : search(0, ids.length, (place) => ids[place]! <= after)
      for (; at < sorted.length && found.length < limit; at += 1) {
        const view = views.get(sorted[at]!)!
        if (status === undefined || view.status === status) found.push(view)
      }
      return { sessions: found, next: at < sorted.length ? sorted[at - 1]! : null }
    },
    failures,
    get partitioner() {
      return partitioner
    },
    caughtUp,
    get isCaughtUp() {
      return isCaughtUp
    },
    async close() {
      over.abort()
      await Promise.all(running)
    },
  }
}
