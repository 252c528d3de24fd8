/**
 * The committer of a partition, driven by the loop in commit.ts. Three verbs in order: *prepare* puts the records of a transaction
 * together, *commit* hands them to the log as one atom, *note* tells sessions and indexes that it happened. Beside it, the snapshots:
 * parts are written ahead, and the next commit's head names them. And the removal of dead state: *trim* and *compact*
 * (state/live-index.ts).
 */
import type { TopicNames } from '../../topics/index.ts'
import { codeOf, messageOf } from '../errors.ts'
import { failpoint } from '../failpoint.ts'
import type { StateLayout } from '../memory.ts'
import { type Fingerprints, type Head, type PartitionCursor, type SnapshotRef, seal } from '../state/head.ts'
import { type LiveEntry, type LiveIndex, recordBytes } from '../state/live-index.ts'
import { encodeManifest, hotTensors, namedIn } from '../state/manifest.ts'
import { type MemoryReport, type ModelMemory, memoryStats } from '../state/memory-stats.ts'
import { filePieces } from '../state/snapshot.ts'
import type { EventLog, OutRecord, PartitionWriter } from '../streams/log.ts'
import type { Watermark } from '../streams/watermark.ts'
import type { Change, Garbage } from './blob-garbage.ts'
import { createSweep } from './blob-sweep.ts'
import { createTrim } from './blob-trim.ts'
import type { PartitionBlobs } from './blobs.ts'
import type { EmittedStep } from './emit.ts'
import type { Sessions } from './sessions.ts'
import { readSnapshot, type SnapshotWriting, writeSnapshot } from './snapshots.ts'
import type { Capture } from './types.ts'
import type { InputFormat } from './validate.ts'

export interface CommitterDeps {
  readonly log: EventLog
  readonly names: TopicNames
  readonly group: string
  readonly partition: number
  /** Id of the input topic, where the log has one. */
  readonly topicId?: string | undefined
  readonly writer: PartitionWriter
  readonly watermark: Watermark
  readonly sessions: Pick<Sessions, 'heads' | 'committed' | 'relieve'>
  readonly model: Fingerprints & ModelMemory & { readonly layout: StateLayout }
  /** Where blocks of snapshots lie; null: snapshots are whole. */
  readonly blobs: PartitionBlobs | null
  /** The log's id in its blob store. */
  readonly logId: string | undefined
  readonly stateIndex: LiveIndex
  readonly snapshotIndex: LiveIndex
  /** Sessions whose head carries a former seal. */
  readonly resealing: readonly string[]
  /** Bytes of a snapshot in one record at most. */
  readonly partBytes: number
  /** How the input is read; goes into the cursor, because read another way its records are other events. */
  readonly format: InputFormat
  /** Called for trouble that the next round may overcome (a trim that failed). */
  readonly warn: (message: string) => void
  /** Called for each state that becomes a snapshot. */
  readonly onSnapshot?: (capture: Capture, seen: MemoryReport) => void
  /** Called when work that went on beside the commits has come to where it can go on here. */
  readonly wake: () => void
}

/** A commit as the rest of the worker sees it. */
export interface Commit {
  readonly partition: number
  readonly offset: number
  readonly records: number
  readonly sessions: number
  readonly steps: readonly EmittedStep[]
  /** Time the transaction took, ms. */
  readonly ms: number
}

/** Heads that one commit writes anew because of their seal. */
const RESEAL_HEADS = 256
/** Bytes of heads and of snapshots compacted with one commit. */
const COMPACT_BYTES = 512 * 1024
/** States taken only to make room, waiting to be written. */
const MAX_CAPTURES = 8

/** Records of one transaction: outputs, then heads, then the partition cursor. */
interface Prepared {
  readonly outputs: readonly OutRecord[]
  readonly heads: readonly Head[]
  /** The sealed heads and the cursor. */
  readonly state: readonly OutRecord[]
  readonly inputOffset: number
}

export const createCommitter = (deps: CommitterDeps) => {
  const { log, names, partition, writer, watermark, sessions, model, stateIndex, snapshotIndex, blobs } = deps
  /** Sessions whose head must be written although no step touched them: a new snapshot, or compaction. */
  const touched = new Set<string>()
  const refs = new Map<string, SnapshotRef>()
  /** States that wait to be written, by session: a newer one takes the place of an older. */
  const captures = new Map<string, Capture>()
  let writing: SnapshotWriting | null = null
  /** Captures that are being copied. */
  const copies = new Set<Promise<void>>()
  /**
   * What goes on beside the commits before a capture can be written to the log: its blobs are written to the store, it is measured and hashed.
   * null: nothing is. `stored` gives the result once it has ended.
   */
  let storing: Promise<void> | null = null
  let stored: (() => SnapshotWriting) | null = null
  /** Why a capture could not be copied. */
  let failed: { readonly error: unknown } | null = null
  /** Captures since garbage was looked at. */
  let begun = 0
  let living = { count: 0, bytes: 0 }
  /** The input offset of the last commit. */
  let committedTo = watermark.position().offset
  const isInTopic = blobs?.removal.by === 'trim'
  /** What it names in this store. */
  const here = (ref: SnapshotRef | undefined): Partial<NonNullable<SnapshotRef['blobs']>> =>
    ref?.blobs !== undefined && (ref.blobs.in !== undefined) === isInTopic ? ref.blobs : {}
  /** Every change of `refs`, so that what committed heads name is known without counting. */
  const setRef = (session: string, ref: SnapshotRef | undefined): void => {
    const { count: less = 0, bytes: lost = 0 } = here(refs.get(session))
    const { count: more = 0, bytes: won = 0 } = here(ref)
    living = { count: living.count - less + more, bytes: living.bytes - lost + won }
    if (ref === undefined) {
      refs.delete(session)
      blobs?.dead.add(lost)
    } else refs.set(session, ref)
  }
  for (const [id, { snapshot }] of sessions.heads) if (snapshot !== null) setRef(id, snapshot)
  const statePlace = { topic: names.state, partition, keys: log.sealKeys }
  const resealing = [...deps.resealing]
  /** Some heads a commit, so that a rotated key delays no commit for long. */
  const reseal = (): void => {
    for (const id of resealing.splice(0, RESEAL_HEADS)) touched.add(id)
  }
  reseal()

  /** A closed session can be recomputed from its events, unless they lie in another log (`born` −1). */
  const forgets = (head: Head): boolean => head.status === 'closed' && head.born >= 0
  const withRef = (head: Head): Head => ({
    ...head,
    snapshot: forgets(head) ? null : (refs.get(head.session) ?? null),
  })

  const cursorRecord = (): PartitionCursor => {
    const { offset, done } = watermark.position()
    return {
      type: 'cursor',
      version: 1,
      group: deps.group,
      topic: names.chunks,
      ...(deps.topicId !== undefined && { topicId: deps.topicId }),
      ...(deps.logId !== undefined && { logId: deps.logId }),
      partition,
      offset,
      done: done.map(([from, to]) => [from, to]),
      model: model.fingerprint,
      layout: model.layoutFingerprint,
      format: deps.format,
    }
  }

  const capture = (taken: Capture): void => {
    captures.delete(taken.head.session)
    captures.set(taken.head.session, taken)
  }

  /** Lets contexts go that others wait for. What waits to be written is held in memory, so it is limited. */
  const relieve = (): void => {
    const limit = Math.max(0, MAX_CAPTURES - captures.size - copies.size)
    for (const taken of sessions.relieve(limit, committedTo)) {
      const copy = taken
        .then(capture, (error: unknown) => {
          failed ??= { error }
        })
        .then(() => {
          copies.delete(copy)
          deps.wake()
        })
      copies.add(copy)
    }
  }

  /** Puts the records of one transaction together. */
  const prepare = (steps: readonly EmittedStep[]): Prepared => {
    const changed = new Map<string, Head>()
    const outputs: OutRecord[] = []
    for (const step of steps) {
      outputs.push(...step.records)
      if (step.head !== null) changed.set(step.head.session, step.head)
      if (step.capture !== undefined && !step.needsSnapshot) capture(step.capture)
      if (step.done) watermark.finish(step.record.offset)
    }
    for (const id of touched) {
      const head = changed.get(id) ?? sessions.heads.get(id)
      if (head !== undefined) changed.set(id, head)
    }
    touched.clear()
    reseal()
    const heads = [...changed.values()].map(withRef)
    const cursor = cursorRecord()
    const state = [...heads, cursor].map((record) => ({ topic: names.state, ...seal(record, statePlace) }))
    return { outputs, heads, state, inputOffset: cursor.offset }
  }

  /** Takes note of a transaction: `offsets` are those of the state records. */
  const note = ({ heads, state, inputOffset }: Prepared, offsets: readonly number[]): void => {
    committedTo = inputOffset
    const place = (at: number): LiveEntry => ({ offset: offsets[at]!, bytes: recordBytes(state[at]!) })
    for (const [at, head] of heads.entries()) {
      sessions.committed(head)
      stateIndex.put(head.session, place(at))
      if (!forgets(head)) continue
      setRef(head.session, undefined)
      snapshotIndex.drop(head.session)
    }
    stateIndex.put('', place(heads.length))
    relieve()
  }

  const commit = async (steps: readonly EmittedStep[]): Promise<Commit> => {
    const prepared = prepare(steps)
    failpoint('commit.prepared')
    const { outputs, heads, state, inputOffset } = prepared
    const started = performance.now()
    const offsets = await writer.commit([...outputs, ...state], inputOffset)
    const ms = performance.now() - started
    failpoint('commit.ended')
    note(prepared, offsets.slice(outputs.length))
    failpoint('commit.noted')
    const records = outputs.length + state.length
    return { partition, offset: inputOffset, records, sessions: heads.length, steps, ms }
  }

  /** A snapshot is whole in the log; the next commit's head names it. */
  const written = (session: string, ref: SnapshotRef): void => {
    setRef(session, ref)
    touched.add(session)
    snapshotIndex.put(session, { offset: ref.first, bytes: ref.bytes })
  }

  /** A capture as a snapshot that can be written: whole, or as a manifest with the names of its blobs. */
  const encoded = async (taken: Capture): Promise<SnapshotWriting> => {
    const { head, state, gates } = taken
    const blocks = taken.blocks === undefined ? null : await blobs!.write(taken)
    const tensors = blocks === null ? model.layout.tensors(state) : hotTensors(model.layout, state, blocks)
    const seen = await memoryStats(model, head.conductor, state, gates, tensors)
    deps.onSnapshot?.(taken, seen)
    const file =
      blocks === null
        ? filePieces(head, state, tensors, seen.stats)
        : encodeManifest(head, state, model.layout, blobs!.where, blocks, seen.stats)
    const named = blocks === null ? undefined : namedIn(model.layout, blocks, blobs!.where)
    const pulse = head.conductor.globalStep
    return writeSnapshot(names.snapshots, head.session, pulse, await file, deps.partBytes, named)
  }

  /** Works on a capture beside the commits, however long the store takes. */
  const store = (taken: Capture): void => {
    storing = encoded(taken)
      .then(
        (ready) => () => ready,
        (error: unknown) => () => {
          throw error
        },
      )
      .then((outcome) => {
        storing = null
        stored = outcome
        deps.wake()
      })
  }

  /** The oldest capture, where its turn has come: dead blobs wait for a quiet moment, and between some captures there is one. */
  const nextCapture = (): Capture | undefined => {
    const [next] = captures.values()
    return garbage !== null && begun >= MAX_CAPTURES && garbage.hasWork ? undefined : next
  }

  /** One small piece of snapshot work. Returns whether there may be more. */
  const snapshotStep = async (next = nextCapture()): Promise<boolean> => {
    if (failed !== null) throw failed.error
    if (writing === null && stored !== null) {
      const outcome = stored
      stored = null
      writing = outcome()
    }
    if (writing === null) {
      if (next === undefined || storing !== null) return false
      captures.delete(next.head.session)
      begun += 1
      store(next)
      return false
    }
    const ref = await writing.step(writer)
    if (ref !== null) {
      written(writing.session, ref)
      writing = null
      // The next ones at once, so that one commit names all that were written since the last.
      relieve()
    }
    return true
  }

  const hasSnapshotWork = (): boolean =>
    failed !== null || writing !== null || stored !== null || (storing === null && nextCapture() !== undefined)

  /** All snapshot work, to its end. */
  const finishSnapshots = async (): Promise<void> => {
    while (hasSnapshotWork() || storing !== null || captures.size > 0 || copies.size > 0) {
      await Promise.all([storing, ...copies])
      // Whatever else waits.
      await snapshotStep([...captures.values()][0])
    }
  }

  /** Nothing is on its way to the blob store or to a commit, and no capture is being copied, whose blocks nobody could name yet. */
  const isQuiet = (): boolean =>
    copies.size === 0 && storing === null && stored === null && writing === null && touched.size === 0

  /** Writes the session's snapshot again, with what `change` makes of it. Returns its bytes. */
  const renew = async (id: string, change: Change): Promise<number> => {
    const head = sessions.heads.get(id)
    if (head === undefined || head.snapshot === null || refs.get(id)?.first !== head.snapshot.first) return 0
    const file = await readSnapshot(log, names.snapshots, partition, head).catch((error: unknown) => {
      if (codeOf(error) !== 'REFUSED') throw error
      // When its session is rebuilt the same error leads to its events. Other sessions must not be stopped by it.
      deps.warn(`${messageOf(error)} It is forgotten.`)
      setRef(id, undefined)
      snapshotIndex.drop(id)
      touched.add(id)
      return null
    })
    const changed = file === null ? null : await change(file)
    if (changed === null) return 0
    const { pulse, blobs: named } = head.snapshot
    const again = await writeSnapshot(names.snapshots, id, pulse, changed, deps.partBytes, named)
    let ref: SnapshotRef | null = null
    while (ref === null) ref = await again.step(writer)
    written(id, ref)
    return ref.bytes
  }

  const createGarbageOf = ({ removal }: PartitionBlobs): Garbage => {
    const garbage = {
      log,
      names,
      partition,
      writer,
      blobs: blobs!,
      heads: sessions.heads,
      floor: snapshotIndex.floor,
      living: () => living,
      *captured() {
        for (const { blocks } of captures.values()) yield* blocks?.known.flat() ?? []
      },
      renew,
      warn: deps.warn,
      wake: deps.wake,
    }
    return removal.by === 'trim' ? createTrim(garbage, removal.store) : createSweep(garbage, removal)
  }
  const garbage = blobs === null ? null : createGarbageOf(blobs)

  /** Writes the oldest living state again when the dead outweigh the living. */
  const compact = async (): Promise<void> => {
    // While a trim could free the space, writing more would only add to it.
    if (!worthTrimming(stateIndex)) {
      for (const id of stateIndex.toCompact(COMPACT_BYTES)) if (id !== '') touched.add(id)
    }
    if (worthTrimming(snapshotIndex)) return
    // The index stands in the order of offsets: a snapshot half written must be in it before others are written behind it.
    while (writing !== null) await snapshotStep()
    for (const id of snapshotIndex.toCompact(COMPACT_BYTES)) await renew(id, async (file) => [file])
  }

  const worthTrimming = (index: LiveIndex): boolean =>
    index.total - index.live > index.floor && index.reclaimable().bytes >= index.floor / 2

  /** Trims what lies behind the living, once it is worth a call. */
  const trim = async (): Promise<void> => {
    // A new reference counts only once a committed head names it.
    if (touched.size > 0) return
    const both = [
      [names.state, stateIndex],
      [names.snapshots, snapshotIndex],
    ] as const
    for (const [topic, index] of both) {
      if (!worthTrimming(index)) continue
      const { before } = index.reclaimable()
      if (before === 0) continue
      failpoint('forward.written')
      try {
        await log.trim(topic, partition, before)
        index.trimmed(before)
        failpoint('forward.trimmed')
      } catch (error) {
        deps.warn(
          `Trimming ${topic}, partition ${partition}, below ${before} failed and will be tried again: ${String(error)}`,
        )
      }
    }
  }

  return {
    commit,
    snapshotStep,
    compact,
    trim,
    capture,
    relieve,
    get hasTouched() {
      return touched.size > 0
    },
    get hasSnapshotWork() {
      return hasSnapshotWork()
    },
    finishSnapshots,
    get hasGarbageWork() {
      return garbage !== null && isQuiet() && garbage.hasWork
    },
    async garbageStep() {
      if (garbage === null || !isQuiet() || !garbage.hasWork) return
      begun = 0
      await garbage.step()
    },
    stop() {
      garbage?.stop()
    },
  }
}
