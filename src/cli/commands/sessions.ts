import type { TopicNames } from '../../../topics/index.ts'
import { namesOf } from '../../client/topics.ts'
import { messageOf } from '../../errors.ts'
import { type ArchivePlace, archivePlaces } from '../../operators/blobs/archive-places.ts'
import { wholeFile } from '../../operators/snapshots/manifests.ts'
import { readSnapshot } from '../../operators/snapshots/snapshots.ts'
import type { Head } from '../../state/head.ts'
import { type TensorHealth, tensorHealth } from '../../state/health.ts'
import type { MemoryStats } from '../../state/memory-stats.ts'
import { type OuterMemoryView, outerMemoryOf } from '../../state/outer-memory.ts'
import { readSnapshotFile } from '../../state/snapshot.ts'
import type { EventLog } from '../../streams/log.ts'
import { command, type ExitCode } from '../command.ts'
import { blobFlags, inputTopicFlag, logFlags, partitionsOf, sealFlags, stateOf, withExistingLog } from '../common.ts'
import { duplicatesIn, tellDuplicate } from '../duplicate-sessions.ts'
import { on, optional } from '../flags.ts'
import { bitsPer, count, plural, print, printJson, say, shortName, table } from '../output.ts'
import { memoryLines } from '../show/outer-memory.ts'

/** Pulses since the newest snapshot; null where there is none. */
const snapshotAge = ({ conductor, snapshot }: Head): number | null =>
  snapshot === null ? null : conductor.globalStep - snapshot.pulse

const asJson = (head: Head, partition: number, seen: Health | undefined) => ({
  session: head.session,
  partition,
  status: head.status,
  ...(head.stopped !== undefined && { stopped: head.stopped }),
  ...(head.from !== undefined && { from: head.from }),
  pulse: head.conductor.globalStep,
  origin: head.conductor.origin,
  ...head.totals,
  offset: head.cursor.offset,
  token: head.cursor.token,
  complete: head.cursor.complete,
  chain: head.chain,
  model: head.model,
  snapshot: head.snapshot === null ? null : { pulse: head.snapshot.pulse, bytes: head.snapshot.bytes },
  snapshotAge: snapshotAge(head),
  ...(seen !== undefined && { health: seen.health, vitals: seen.stats }),
})

const row = (head: Head, partition: number): string[] => {
  const age = snapshotAge(head)
  return [
    head.session,
    String(partition),
    head.status,
    count(head.conductor.globalStep),
    count(head.totals.tokens),
    count(head.totals.generated),
    `${head.cursor.offset}${head.cursor.complete ? '' : `+${head.cursor.token}`}`,
    head.chain.slice(0, 12),
    age === null ? '-' : count(age),
  ]
}

const HEADER = ['session', '>partition', 'status', '>pulse', '>read', '>generated', '>offset', 'chain', '>snapshot age']

interface Health {
  readonly health: readonly TensorHealth[]
  /** Statistics by the worker that wrote the snapshot; null in snapshots without them. */
  readonly stats: MemoryStats | null
}

/**
 * The norms in a session's newest snapshot with its blocks, by the tensors that it names itself; none where there is no
 * snapshot.
 */
const healthOf = async (log: EventLog, names: TopicNames, head: Head, partition: number): Promise<Health> => {
  if (head.snapshot === null) return { health: [], stats: null }
  const file = await readSnapshotFile(await wholeFile(log, await readSnapshot(log, names.snapshots, partition, head)))
  return { health: await tensorHealth(file.tensors, file.state, file.stats?.tables), stats: file.stats }
}

const HEALTH_HEADER = ['session', '>snapshot at', 'tensor', '>layer', '>norm', '>largest']

/** One row for each tensor: the layer in which its norm is largest. */
const healthRows = ({ session, snapshot }: Head, parts: readonly TensorHealth[]): string[][] => {
  const worst = new Map<string, TensorHealth>()
  for (const part of parts) {
    if (!(part.norm <= (worst.get(part.name)?.norm ?? -1))) worst.set(part.name, part)
  }
  return [...worst.values()].map(({ name, layer, norm, max }) => [
    session,
    count(snapshot!.pulse),
    name,
    String(layer),
    norm.toPrecision(4),
    max.toPrecision(4),
  ])
}

const LEVEL_HEADER = [
  'session',
  '>level',
  '>period',
  '>memory',
  '>momentum',
  '>waiting',
  '>theta',
  '>eta',
  '>alpha',
  '>window',
  '>bits/token',
]

/** One row for each level of the memory. */
const levelRows = ({ session, totals }: Head, stats: MemoryStats | null): string[][] => {
  const told = (value: number | null | undefined): string => (value == null ? '-' : value.toPrecision(3))
  const { window = null, levels = [] } = stats ?? {}
  return levels.map(({ period, memory, momentum, bufferRatio, gates }, at) => [
    at === 0 ? session : '',
    String(at),
    count(period),
    told(memory),
    told(momentum),
    told(bufferRatio),
    told(gates?.theta),
    told(gates?.eta),
    told(gates?.alpha),
    at > 0 || window === null ? '' : `${window.used} of ${window.places}`,
    at > 0 || totals.predictions === 0 ? '' : (bitsPer(totals.nats, totals.predictions) ?? 0).toFixed(3),
  ])
}

/**
 * What the external memory held in a session's newest snapshot, and where its archived blocks lie; null: no snapshot,
 * or no such memory.
 */
const memoryOf = async (
  log: EventLog,
  names: TopicNames,
  head: Head,
  partition: number,
): Promise<{ readonly memory: OuterMemoryView; readonly places: readonly ArchivePlace[] } | null> => {
  if (head.snapshot === null) return null
  const file = await readSnapshotFile(await readSnapshot(log, names.snapshots, partition, head))
  const memory = outerMemoryOf(file.tensors, file.state)
  if (memory === null) return null
  return { memory, places: await archivePlaces(log, names, file, memory.archived) }
}

interface Seen {
  readonly heads: readonly (readonly [Head, number])[]
  readonly failures: { readonly partition: number; readonly reason: string }[]
  /** Input records not finished, all partitions. */
  readonly waiting: number
}

const look = async (log: EventLog, names: TopicNames, session: string | undefined): Promise<Seen> => {
  const partitions = await partitionsOf(log, names)
  const heads: [Head, number][] = []
  const failures: { partition: number; reason: string }[] = []
  let waiting = 0
  for (let partition = 0; partition < partitions; partition += 1) {
    try {
      const state = await stateOf(log, names, partition)
      for (const head of state.heads.values()) {
        if (session === undefined || head.session === session) heads.push([head, partition])
      }
      const { begin, end } = await log.bounds(names.chunks, partition)
      waiting += end - (state.cursor?.offset ?? begin)
    } catch (error) {
      failures.push({ partition, reason: messageOf(error) })
    }
  }
  heads.sort(([a], [b]) => (a.session < b.session ? -1 : 1))
  return { heads, failures, waiting }
}

const showMemory = async (log: EventLog, names: TopicNames, session: string, json: boolean): Promise<ExitCode> => {
  const { heads, failures } = await look(log, names, session)
  for (const { partition, reason } of failures) say(`Partition ${partition}: ${reason}`)
  const [found, other] = heads
  if (found === undefined) {
    say(`There is no session "${shortName(session)}" in ${log.url}.`)
    return 1
  }
  if (other !== undefined) {
    const [duplicate] = duplicatesIn(heads.map(([head, at]) => [head.session, at]))
    say(`${tellDuplicate(duplicate!).what} Name another session.`)
    return 1
  }
  const [head, partition] = found
  const seen = await memoryOf(log, names, head, partition)
  if (seen === null) {
    say(
      head.snapshot === null
        ? `Session "${shortName(session)}" has no snapshot yet; a clean stop of its worker writes one.`
        : `The model of session "${shortName(session)}" has no external memory.`,
    )
    return 1
  }
  const { memory, places } = seen
  if (json) printJson({ session, snapshot: head.snapshot!.pulse, ...memory, places })
  else {
    print(`Session "${shortName(session)}", as of its snapshot at pulse ${count(head.snapshot!.pulse)}.`)
    for (const line of memoryLines(memory, places)) print(line)
  }
  return 0
}

export const sessions = command({
  name: 'sessions',
  about:
    'Where every session stands, from the state topic, verified: pulse (a pulse is one token read or written), tokens, input offset (+ token inside an unfinished record), chain (a fingerprint of all that was computed), and pulses since its newest snapshot.',
  flags: {
    ...logFlags,
    ...sealFlags,
    ...blobFlags,
    session: optional('ID', 'only this session'),
    health: on(
      'norms of the memory in the newest snapshot, of each tensor where it is largest; of a memory with levels also what its gates were and what waits to be written',
    ),
    memory: optional(
      'ID',
      "this session's external memory in its newest snapshot: what is attended to, what sleeps, and where that lies",
    ),
    'input-topic': inputTopicFlag,
  },
  examples: [
    'sessions --log file:continuo.db',
    'sessions --log file:continuo.db --session book --health',
    'sessions --log file:continuo.db --memory book',
  ],
  async run(flags) {
    return withExistingLog(flags, async (log) => {
      const names = namesOf(log, flags['input-topic'])
      if (flags.memory !== undefined) return showMemory(log, names, flags.memory, flags.json)
      const { heads, failures, waiting } = await look(log, names, flags.session)
      const healths = new Map<Head, Health>()
      for (const [head, at] of flags.health ? heads : []) {
        try {
          healths.set(head, await healthOf(log, names, head, at))
        } catch (error) {
          // One that is broken must not hide the others.
          failures.push({ partition: at, reason: messageOf(error) })
        }
      }
      if (flags.json) {
        for (const [head, partition] of heads) printJson(asJson(head, partition, healths.get(head)))
        for (const failure of failures) printJson({ failed: true, ...failure })
      } else {
        if (heads.length > 0)
          print(
            table(
              HEADER,
              heads.map(([head, partition]) => row(head, partition)),
            ),
          )
        else if (flags.session === undefined) print('No sessions yet.')
        for (const [{ session, from }] of flags.session === undefined ? [] : heads)
          if (from !== undefined)
            print(
              `Session "${shortName(session)}" began as a fork of "${shortName(from.session)}", at pulse ${count(from.pulse)}.`,
            )
        for (const [{ status, stopped }] of heads) if (status === 'stopped') print(stopped!.reason)
        const norms = [...healths].flatMap(([head, { health }]) => healthRows(head, health))
        const levels = [...healths].flatMap(([head, { stats }]) => levelRows(head, stats))
        if (norms.length > 0) print(table(HEALTH_HEADER, norms))
        else if (healths.size > 0) print('No snapshot yet, so no norms to show.')
        if (levels.length > 0) print(table(LEVEL_HEADER, levels))
        for (const duplicate of duplicatesIn(heads.map(([head, at]) => [head.session, at]))) {
          const { what, remedy } = tellDuplicate(duplicate)
          print(`${what} ${remedy}`)
        }
        if (waiting > 0) print(`${plural(waiting, 'input record')} not finished.`)
      }
      for (const { partition, reason } of failures) say(`Partition ${partition}: ${reason}`)
      if (failures.length > 0) return 1
      if (flags.session === undefined || heads.length > 0) return 0
      say(`There is no session "${flags.session}" in ${log.url}.`)
      return 1
    })
  },
})
