/**
 * What the console shows of a log, kept up to date for any number of pages: heads and cursors as the gateway reads
 * them, the boards of workers, and what has to be asked for (ends of the input, members of the group). A page gets what
 * changed since its last frame: however much happens, a frame has at most one row for each session, and a page that is
 * slow gets fewer frames.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { TopicNames } from '../../../topics/index.ts'
import type { BoardReport } from '../../observe/board.ts'
import { isGenesisCursor } from '../../operators/worker/partition-state.ts'
import type { Head, PartitionCursor } from '../../state/head.ts'
import type { EventLog, StoredRecord } from '../../streams/log.ts'
import type { SessionsView, SessionView, StateWatcher } from '../sessions-view.ts'
import { type BoardSource, type Boards, watchBoards } from './boards.ts'
import { createReports, type Reports } from './reports.ts'
import { rowOf, workerRow } from './rows.ts'
import { createTimeline } from './timeline.ts'
import { beginTrail, extendTrail, type Trail } from './trail.ts'
import type { CommitMark, Frame, PartitionRow, PipelineRow, SessionRow, TimelineEvent, VerifyState } from './types.ts'

/** Between two frames, ms, while something happens; and while nothing does. */
const FRAME = 150
const QUIET = 1000
/** Rows of one frame. */
const MOST_ROWS = 1000
/** Commits that are kept for pages to come, and that one frame tells. */
const MOST_COMMITS = 512
/** Between two rounds of questions to the log, while a page is open, ms. */
const ASK = 500

interface Partition {
  group: string | null
  owner: string | null
  end: number | null
  offset: number | null
  sessions: number
  pulse: number
  commits: number
  at: number | null
  letters: number
  /** Of the commit whose heads are being read. */
  heads: number
  pulses: number
  snapshots: number
}

interface Watcher {
  readonly dirty: Set<string>
  commit: number
  event: number
  wake(): void
}

export interface FeedDeps {
  readonly log: EventLog
  readonly names: TopicNames
  readonly partitions: number
  readonly boards: readonly BoardSource[]
}

export interface Feed {
  /** Tells the feed what the state topic holds; to be given to `followSessions`. */
  readonly watcher: StateWatcher
  /** Frames for one page, the first ones with everything. */
  frames(sessions: SessionsView, verify: () => VerifyState, signal: AbortSignal): AsyncGenerator<Frame>
  /** Statistics of memories, by session. */
  readonly reports: Reports
  /** A line of the time line. */
  note(event: Pick<TimelineEvent, 'kind' | 'tone' | 'partition' | 'text'>): void
  /** Where everything below is finished in a partition, as committed; null: nothing was read of it yet. */
  offsetOf(partition: number): number | null
  close(): Promise<void>
}

const shortOf = (member: string): string => member.slice(0, 8)

export const createFeed = ({ log, names, partitions: count, boards: sources }: FeedDeps): Feed => {
  const over = new AbortController()
  const partitions: Partition[] = Array.from({ length: count }, () => ({
    ...{ group: null, owner: null, end: null, offset: null, at: null },
    ...{ sessions: 0, pulse: 0, commits: 0, letters: 0, heads: 0, pulses: 0, snapshots: 0 },
  }))
  const known = new Map<string, { readonly row: SessionRow; readonly view: SessionView; readonly trail: Trail }>()
  const sums = { read: 0, generated: 0, nats: 0, predictions: 0, generating: 0 }
  const watchers = new Set<Watcher>()
  let commits: (CommitMark & { readonly seq: number })[] = []
  let committed = 0
  const reports = createReports()
  const wakeAll = (): void => {
    for (const { wake } of watchers) wake()
  }
  const timeline = createTimeline((partition) => partitions[partition]?.pulse ?? 0, wakeAll)

  const watcher: StateWatcher = {
    head(view: SessionView, head: Head, record: StoredRecord) {
      const partition = partitions[view.partition]!
      const before = known.get(view.session)
      const trail = before?.trail ?? beginTrail(head)
      extendTrail(trail, head)
      const row = rowOf(view, head, record.timestamp, trail)
      known.set(view.session, { row, view, trail })
      if (before === undefined) partition.sessions += 1
      else if (view.pulse < before.view.pulse)
        timeline.wentBack(view.partition, view.session, before.view.pulse, view.pulse)
      const grown = (name: 'pulse' | 'tokens' | 'generated' | 'nats' | 'predictions'): number =>
        view[name] - (before?.view[name] ?? 0)
      partition.pulse += grown('pulse')
      partition.pulses += grown('pulse')
      partition.heads += 1
      if (row.snapshot !== null && row.snapshot !== before?.row.snapshot) partition.snapshots += 1
      sums.read += grown('tokens')
      sums.generated += grown('generated')
      sums.nats += grown('nats')
      sums.predictions += grown('predictions')
      sums.generating += Number(row.generating) - Number(before?.row.generating ?? false)
      for (const { dirty } of watchers) dirty.add(view.session)
    },
    gone(session) {
      const before = known.get(session)
      if (before === undefined) return
      known.delete(session)
      const partition = partitions[before.view.partition]!
      partition.sessions -= 1
      // A worker that resumes counts the sessions that are there.
      partition.pulse -= before.view.pulse
      timeline.shrunk(before.view.partition, before.view.pulse)
      sums.generating -= Number(before.row.generating)
      for (const { dirty } of watchers) dirty.add(session)
    },
    cursor(cursor: PartitionCursor, at: number, record: StoredRecord) {
      const partition = partitions[at]!
      // The genesis cursor of a second group, which was refused.
      if (partition.offset !== null && isGenesisCursor(record)) return
      partition.group = cursor.group
      if (partition.offset !== null && cursor.offset < partition.offset)
        timeline.cursorWentBack(at, partition.offset, cursor.offset)
      partition.offset = cursor.offset
      partition.commits += 1
      partition.at = record.timestamp
      const { pulses, heads, snapshots } = partition
      Object.assign(partition, { pulses: 0, heads: 0, snapshots: 0 })
      committed += 1
      const mark = { partition: at, at: record.timestamp, offset: cursor.offset, pulses, sessions: heads, snapshots }
      commits.push({ seq: committed, ...mark })
      if (commits.length > 2 * MOST_COMMITS) commits = commits.slice(-MOST_COMMITS)
      timeline.committed(at)
      wakeAll()
    },
  }
  const boards: Boards = watchBoards(sources, {
    report(report: BoardReport) {
      reports.add(report)
      wakeAll()
    },
    alive: timeline.alive,
    event: timeline.boardEvent,
    reach: timeline.reach,
  })

  const askLog = async (): Promise<void> => {
    for (const [at, partition] of partitions.entries()) {
      const [chunks, letters] = await Promise.all([log.bounds(names.chunks, at), log.bounds(names.deadletters, at)])
      partition.end = chunks.end
      partition.letters = letters.end - letters.begin
    }
    for (const group of new Set(partitions.map((partition) => partition.group))) {
      const members = group === null ? null : await log.members(group)
      if (members === null) continue
      for (const [at, partition] of partitions.entries()) {
        if (partition.group !== group) continue
        const has = members.find((each) => each.topic === names.chunks && each.partitions.includes(at))
        const owner = has === undefined ? null : shortOf(has.member)
        if (owner !== partition.owner && sources.length === 0) timeline.owner(at, partition.owner, owner)
        partition.owner = owner
      }
    }
  }
  /** Asks while pages are open; a log that does not answer is asked again. */
  const asking = (async () => {
    while (!over.signal.aborted) {
      if (watchers.size > 0) {
        const before = JSON.stringify(partitions.map(({ end, owner, letters }) => [end, owner, letters]))
        await askLog().catch(() => undefined)
        if (before !== JSON.stringify(partitions.map(({ end, owner, letters }) => [end, owner, letters]))) wakeAll()
      }
      await delay(ASK, null, { signal: over.signal }).catch(() => undefined)
    }
  })()

  const partitionRows = (sessions: SessionsView): PartitionRow[] =>
    partitions.map(({ group, owner, end, offset, sessions: size, pulse, commits: done, at }, partition) => {
      const failure = sessions.failures.get(partition)
      const told = boards.workers
        .filter(({ reachable }) => reachable)
        .map(({ view }) => view?.partitions.find((each) => each.partition === partition))
        .find((each) => each !== undefined)
      return {
        ...{ partition, group, owner, end, offset, sessions: size, pulse, commits: done, at },
        ...(failure !== undefined && { failure }),
        ...(told !== undefined && {
          worker: {
            state: told.state,
            ...(told.reason !== undefined && { reason: told.reason }),
            ...{ records: told.records, steps: told.steps, contexts: told.contexts, bytes: told.bytes },
            commitMs: told.commitMs,
          },
        }),
      }
    })

  const pipelineOf = (rowsNow: readonly PartitionRow[]): PipelineRow => {
    const sum = (of: (partition: PartitionRow) => number): number =>
      rowsNow.reduce((total, each) => total + of(each), 0)
    const told = rowsNow.flatMap(({ worker }) => (worker === undefined ? [] : [worker]))
    const took = told.flatMap(({ commitMs }) => (commitMs === null ? [] : [commitMs]))
    return {
      end: sum(({ end, offset }) => Math.max(end ?? 0, offset ?? 0)),
      offset: sum(({ offset }) => offset ?? 0),
      lag: sum(({ end, offset }) => Math.max(0, (end ?? 0) - (offset ?? end ?? 0))),
      ...sums,
      commits: sum((each) => each.commits),
      deadLetters: partitions.reduce((total, { letters }) => total + letters, 0),
      sessions: known.size,
      records: told.length === 0 ? null : told.reduce((total, { records }) => total + records, 0),
      steps: told.length === 0 ? null : told.reduce((total, { steps }) => total + steps, 0),
      commitMs: took.length === 0 ? null : Math.max(...took),
    }
  }

  const frameFor = (page: Watcher, sessions: SessionsView, verify: VerifyState): Frame => {
    const changed: SessionRow[] = []
    const gone: string[] = []
    for (const id of page.dirty) {
      if (changed.length + gone.length === MOST_ROWS) break
      const row = known.get(id)?.row
      if (row === undefined) gone.push(id)
      else changed.push(row)
      page.dirty.delete(id)
    }
    const marks = commits.filter(({ seq }) => seq > page.commit).slice(-MOST_COMMITS)
    page.commit = committed
    const events = timeline.after(page.event)
    page.event = events.at(-1)?.seq ?? page.event
    const partitionsNow = partitionRows(sessions)
    return {
      at: Date.now(),
      caughtUp: sessions.isCaughtUp,
      pipeline: pipelineOf(partitionsNow),
      partitions: partitionsNow,
      workers: boards.workers.map(workerRow),
      sessions: changed,
      gone,
      commits: marks.map(({ seq: _, ...mark }) => mark),
      events,
      verify,
    }
  }

  return {
    watcher,
    reports,
    note: timeline.note,
    offsetOf: (partition) => partitions[partition]?.offset ?? null,
    async *frames(sessions, verify, signal) {
      const ends = AbortSignal.any([signal, over.signal])
      let woken = (): void => undefined
      const page: Watcher = { dirty: new Set(known.keys()), commit: 0, event: 0, wake: () => woken() }
      const leave = (): void => woken()
      ends.addEventListener('abort', leave)
      watchers.add(page)
      try {
        while (!ends.aborted) {
          yield frameFor(page, sessions, verify())
          // The rows of a page that has just come follow each other at once.
          if (page.dirty.size > 0 && page.dirty.size >= MOST_ROWS) continue
          await delay(FRAME, null, { signal: ends }).catch(() => undefined)
          const isQuiet = page.dirty.size === 0 && page.commit === committed && timeline.after(page.event).length === 0
          if (!isQuiet || ends.aborted) continue
          await new Promise<void>((resolve) => {
            const timer = setTimeout(resolve, QUIET - FRAME)
            woken = () => {
              clearTimeout(timer)
              resolve()
            }
          })
        }
      } finally {
        watchers.delete(page)
        ends.removeEventListener('abort', leave)
      }
    },
    async close() {
      over.abort()
      await Promise.all([asking, boards.close()])
    },
  }
}
