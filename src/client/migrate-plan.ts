/**
 * Where the sessions of a log go when it is copied into another: where their keys belong, and everybody who writes
 * events finds them there. Where partitions follow from something else than keys, each record keeps its own. A fork and
 * its parent must share a partition, so a family of forks whose ids belong to different ones is refused, unless it
 * shall stay together where the oldest of it belongs.
 */
import type { TopicNames } from '../../topics/index.ts'
import type { InputRules, Partitioner } from '../../topics/input.ts'
import { ContinuoError } from '../errors.ts'
import { sessionText } from '../operators/pipeline/input.ts'
import type { InputFormat } from '../operators/pipeline/validate.ts'
import { forkEvents } from '../operators/snapshots/ancestors.ts'
import { readDeletions } from '../operators/verify/stored.ts'
import { type PartitionState, readPartitionState } from '../operators/worker/partition-state.ts'
import type { Bounds, EventLog, StoredRecord } from '../streams/log.ts'
import { homeOf } from '../streams/partitioner.ts'

/** Names in one sentence. */
const SHOWN = 5

export interface PlanOptions {
  readonly from: EventLog
  readonly names: TopicNames
  /** Partitions of the copy; default: as many as the input has. */
  readonly partitions?: number | undefined
  /** Sessions that are left out. */
  readonly drop: ReadonlySet<string>
  /** How a key's partition is chosen; default: as the old log says, else murmur2. */
  readonly partitioner?: Partitioner | undefined
  /** Forks go where the oldest session of their family belongs, whatever their own ids say. */
  readonly keepForks: boolean
}

export interface Plan {
  readonly partitions: number
  /** What is copied of each partition of the source. */
  readonly bounds: readonly Bounds[]
  readonly format: InputFormat
  /** How the new log's workers read it. */
  readonly rules: InputRules
  /** Sessions that are copied, with the partition of the source in which they have their state. */
  readonly sessions: ReadonlyMap<string, number>
  /** Where they go; of sessions that were copied to another partition than their id says. */
  readonly placed: ReadonlyMap<string, number>
  /**
   * Records that are left out: of dropped sessions, of sessions that were deleted, and batches that cannot be decoded.
   */
  readonly left: { readonly dropped: number; readonly deleted: number; readonly batches: number }
  /** The state of each partition of the source. */
  readonly states: readonly PartitionState[]
  /** null: it is left out. */
  readonly targetOf: (record: StoredRecord) => number | null
}

const listed = (names: readonly string[]): string =>
  `${names
    .slice(0, SHOWN)
    .map((name) => `"${name}"`)
    .join(', ')}${names.length > SHOWN ? ` and ${names.length - SHOWN} more` : ''}`

const refuse = (message: string): never => {
  throw new ContinuoError('REFUSED', `${message} Nothing was copied.`)
}

/** Families of forks: the session that the others go with, found through the parents. */
const createFamilies = () => {
  const up = new Map<string, string>()
  const rootOf = (session: string): string => {
    let root = session
    for (let next = up.get(root); next !== undefined; next = up.get(root)) root = next
    return root
  }
  return {
    rootOf,
    join(child: string, parent: string) {
      const [below, above] = [rootOf(child), rootOf(parent)]
      if (below !== above) up.set(below, above)
    },
  }
}

/** Sessions whose events are not all there, so that they cannot be computed again. */
const withoutPast = (
  states: readonly PartitionState[],
  bounds: readonly Bounds[],
  drop: ReadonlySet<string>,
): string[] =>
  states.flatMap(({ heads }, partition) =>
    [...heads.values()]
      .filter(({ session, born }) => !drop.has(session) && born < (bounds[partition]?.begin ?? 0))
      .map(({ session }) => session),
  )

/** Reads state and input of the source once. Throws REFUSED, naming sessions, for what cannot be moved. */
export const planMigration = async (options: PlanOptions): Promise<Plan> => {
  const { from, names, partitions, drop, keepForks } = options
  const [sources, stored] = await Promise.all([from.partitions(names.chunks), from.partitions(names.state)])
  const all = Array.from({ length: sources }, (_, partition) => partition)
  const bounds = await Promise.all(all.map((partition) => from.bounds(names.chunks, partition)))
  const states = await Promise.all(all.slice(0, stored).map((each) => readPartitionState(from, names, each, 0)))
  const target = partitions ?? sources
  const { since: _, ...kept } = states.find(({ cursor }) => cursor?.input !== undefined)?.cursor?.input ?? { since: 0 }
  const partitioner = options.partitioner ?? kept.partitioner ?? 'murmur2'
  const rules: InputRules = { ...kept, partitioner }
  const keeps = kept.session !== undefined || partitioner === 'any'
  if (keeps && target !== sources)
    refuse(
      kept.session !== undefined
        ? `The sessions of ${names.chunks} do not come from keys (--session-from), so only ${sources} partitions keep them as they are. Leave --partitions out.`
        : `Nothing says how the producers of ${names.chunks} choose partitions (--key-partitioner any), so only ${sources} keep sessions as they are. Leave --partitions out, or say --key-partitioner.`,
    )
  const format = states.find(({ cursor }) => cursor?.format !== undefined)?.cursor?.format ?? 'json'
  const lost = withoutPast(states, bounds, drop)
  if (lost.length > 0)
    refuse(
      `The first events of ${listed(lost)} are gone from ${names.chunks} (removed by retention, or the session was imported), so the new log could not compute them. Leave each out (--drop ID) and, for the same model, take it over by continuo export and import.`,
    )

  const families = createFamilies()
  const homes = new Map<string, number>()
  const left = { dropped: 0, deleted: 0, batches: 0 }
  /** By partition: the offset up to which the records of a session are left out. */
  const gone: Map<string, number>[] = []
  for (const source of all) {
    const { begin, end } = bounds[source]!
    const deleted = new Map(source < stored ? await readDeletions(from, names, source) : [])
    const validation = { format, input: rules, vocabSize: Number.MAX_SAFE_INTEGER, readsText: true }
    const forks = await forkEvents(from, names.chunks, source, [begin, end], validation)
    const isLeftOut = (child: string, offset: number): boolean =>
      drop.has(child) || offset <= (deleted.get(child) ?? -1)
    // A fork needs what its parent was, even if that was deleted since; and so does the parent, where it is a fork
    // itself: the last fork first.
    for (const { child, parent, offset } of forks.toReversed())
      if (!isLeftOut(child, offset) && offset <= (deleted.get(parent) ?? -1)) deleted.delete(parent)
    for (const { child, parent, offset } of forks) {
      if (isLeftOut(child, offset)) continue
      if (drop.has(parent))
        refuse(
          `Session "${child}" began as a fork of "${parent}", which is to be left out. Leave it out too: --drop ${child}.`,
        )
      families.join(child, parent)
    }
    gone.push(deleted)
    for await (const { records } of from.read(names.chunks, source, begin, { until: end, undecodable: true })) {
      for (const record of records) {
        const { offset, undecodable } = record
        const session = sessionText(record, rules)
        if (undecodable !== undefined) left.batches += 1
        else if (session === '') continue
        else if (drop.has(session)) left.dropped += 1
        else if (offset <= (deleted.get(session) ?? -1)) left.deleted += 1
        else {
          const home = homes.get(session) ?? source
          // Where partitions were added to the input, what came after that stands in the new ones, which are read last.
          if (home !== source && source < stored && !keeps)
            refuse(
              `Session "${session}" has events in partitions ${home} and ${source} of ${names.chunks}, in which it has two memories (producers that place keys differently). Leave it out: --drop ${session}.`,
            )
          homes.set(session, home)
        }
      }
    }
  }
  const belongs = (session: string): number => homeOf(partitioner, session, target)!
  const placed = new Map<string, number>()
  if (!keeps) {
    const apart = [...homes.keys()].filter((session) => belongs(families.rootOf(session)) !== belongs(session))
    if (apart.length > 0 && !keepForks)
      refuse(
        `${listed(apart)} began as forks, and of ${target} partitions their ids belong to others than the ids of the sessions that they were forked from; a fork and its parent must share one. --keep-forks puts them where their parents belong: producers must send their later events to that partition. Or leave them out: --drop ID.`,
      )
    for (const session of apart) placed.set(session, belongs(families.rootOf(session)))
  }
  return {
    partitions: target,
    bounds,
    format,
    rules: placed.size === 0 ? rules : { ...rules, partitioner: 'any' },
    sessions: homes,
    placed,
    left,
    states,
    targetOf(record) {
      const { partition, offset, undecodable } = record
      if (undecodable !== undefined) return null
      const session = sessionText(record, rules)
      if (drop.has(session) || offset <= (gone[partition]?.get(session) ?? -1)) return null
      if (keeps) return partition
      if (session === '') return partition % target
      return placed.get(session) ?? belongs(session)
    },
  }
}
