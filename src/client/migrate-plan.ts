/**
 * Where the sessions of a log go when it is copied into another. With as many partitions as before each record keeps its partition. With another number a
 * session goes where its key belongs, and everybody who writes events finds it there. A fork and its parent must share a partition, so a family of
 * forks whose ids belong to different ones is refused, unless it shall stay together where the oldest of it belongs.
 */
import type { TopicNames } from '../../topics/index.ts'
import { ContinuoError } from '../errors.ts'
import { forkEvents } from '../operators/ancestors.ts'
import { type PartitionState, readPartitionState } from '../operators/partition-state.ts'
import type { InputFormat } from '../operators/validate.ts'
import { readDeletions } from '../operators/verify-stored.ts'
import type { Bounds, EventLog, StoredRecord } from '../streams/log.ts'
import { partitionOfKey } from '../streams/murmur2.ts'
import { textIn } from './records.ts'

/** Names in one sentence. */
const SHOWN = 5

export interface PlanOptions {
  readonly from: EventLog
  readonly names: TopicNames
  /** Partitions of the copy; default: as many as the input has. */
  readonly partitions?: number | undefined
  /** Sessions that are left out. */
  readonly drop: ReadonlySet<string>
  /** Forks go where the oldest session of their family belongs, whatever their own ids say. */
  readonly keepForks: boolean
}

export interface Plan {
  readonly partitions: number
  /** What is copied of each partition of the source. */
  readonly bounds: readonly Bounds[]
  readonly format: InputFormat
  /** Sessions that are copied, with the partition of the source in which they have their state. */
  readonly sessions: ReadonlyMap<string, number>
  /** Where they go; of sessions that were copied to another partition than their id says. */
  readonly placed: ReadonlyMap<string, number>
  /** Records that are left out: of dropped sessions, of sessions that were deleted, and batches that cannot be decoded. */
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
export const planMigration = async ({ from, names, partitions, drop, keepForks }: PlanOptions): Promise<Plan> => {
  const [sources, stored] = await Promise.all([from.partitions(names.chunks), from.partitions(names.state)])
  const all = Array.from({ length: sources }, (_, partition) => partition)
  const bounds = await Promise.all(all.map((partition) => from.bounds(names.chunks, partition)))
  const states = await Promise.all(all.slice(0, stored).map((each) => readPartitionState(from, names, each, 0)))
  const target = partitions ?? sources
  const keeps = target === sources && sources === stored
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
    const validation = { format, vocabSize: Number.MAX_SAFE_INTEGER, readsText: true }
    for (const { child, parent, offset } of await forkEvents(from, names.chunks, source, [begin, end], validation)) {
      if (drop.has(child) || offset <= (deleted.get(child) ?? -1)) continue
      if (drop.has(parent))
        refuse(
          `Session "${child}" began as a fork of "${parent}", which is to be left out. Leave it out too: --drop ${child}.`,
        )
      families.join(child, parent)
      // A fork needs what its parent was, even if that was deleted since.
      if (offset <= (deleted.get(parent) ?? -1)) deleted.delete(parent)
    }
    gone.push(deleted)
    for await (const { records } of from.read(names.chunks, source, begin, { until: end, undecodable: true })) {
      for (const { key, offset, undecodable } of records) {
        const session = textIn(key)
        if (undecodable !== undefined) left.batches += 1
        else if (key === null || key.length === 0) continue
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
  const belongs = (session: string): number => partitionOfKey(Buffer.from(session), target)
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
    sessions: homes,
    placed,
    left,
    states,
    targetOf({ key, partition, offset, undecodable }) {
      if (undecodable !== undefined) return null
      const session = textIn(key)
      if (drop.has(session) || offset <= (gone[partition]?.get(session) ?? -1)) return null
      if (keeps) return partition
      if (key === null || key.length === 0) return partition % target
      return placed.get(session) ?? partitionOfKey(key, target)
    },
  }
}
