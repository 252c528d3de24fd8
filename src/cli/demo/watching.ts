/**
 * The first half of the demo: the log of a small harbour is read by a model that knows nothing of it, and the lines
 * that stand out are shown.
 */
import { readFile } from 'node:fs/promises'
import type { TopicNames } from '../../../topics/index.ts'
import type { Observation } from '../../../topics/observations.ts'
import { chunkRecord, textEvents } from '../../client/chunks.ts'
import { textIn } from '../../client/records.ts'
import { ensureTopics, namesOf } from '../../client/topics.ts'
import { messageOf } from '../../errors.ts'
import { CALL, inPackage, watchModel } from '../../places.ts'
import type { EventLog, RecordIn } from '../../streams/log.ts'
import type { ExitCode } from '../command.ts'
import { exitCodeOf } from '../commands/run.ts'
import { type LogValues, stateOf, withLog, withModel } from '../common.ts'
import { bitsPer, count, plural, print, printJson, say } from '../output.ts'
import { createShower, type Found, foundIn } from '../standing-out.ts'
import { headOf, work } from './working.ts'

const LINES = inPackage('docs', 'demo', 'harbour-day.txt')
const SESSION = 'harbour-system'
/** Where it is kept. */
export const WATCH_LOG = 'file:.continuo/watch.db'
const PIECE = 4096
/** A line stands out that is among this share of the last thousand, as in `continuo watch`. */
const TOP = 0.005
/** A snapshot has a megabyte. */
const SNAPSHOT_EVERY = 32_768

/** All of the lines in one transaction: a run killed here leaves all of it or none. */
const records = async (): Promise<readonly RecordIn[]> => {
  const text = await readFile(LINES)
  const all = [chunkRecord(SESSION, { type: 'open', novelty: true })]
  const once = async function* () {
    yield text
  }
  for await (const piece of textEvents(once(), PIECE)) if (piece !== null) all.push(chunkRecord(SESSION, piece.event))
  return all
}

/** The lines that stood out so far, from the observations in the log. */
const foundOut = async (log: EventLog, names: TopicNames): Promise<readonly Found[]> => {
  const { begin, end } = await log.bounds(names.observations, 0)
  const found: Found[] = []
  for await (const { records } of log.read(names.observations, 0, begin, { until: end })) {
    for (const { value } of records) found.push(...foundIn(JSON.parse(textIn(value)) as Observation, TOP))
  }
  return found
}

export interface Watching {
  /** Of the tale's log, but for its place. */
  readonly flags: Omit<LogValues, 'log'>
  readonly json: boolean
  /** The command that goes on. */
  readonly again: string
  /** A path as people here name it. */
  readonly named: (path: string) => string
}

export const demoWatch = ({ flags, json, again, named }: Watching): Promise<ExitCode> =>
  withModel(watchModel, {}, (loaded) =>
    withLog(
      { ...flags, log: WATCH_LOG },
      async (log) => {
        const names = namesOf(log)
        await ensureTopics(log, names)
        const { begin, end } = await log.bounds(names.chunks, 0)
        if (end === begin) await log.append(names.chunks, await records(), 0)
        const { heads, cursor } = await stateOf(log, names, 0)
        const before = heads.get(SESSION)
        const from = named(LINES)
        if (before !== undefined && (cursor?.offset ?? begin) >= end) {
          if (!json)
            print(`${from} was read before: ${CALL} watch --log ${WATCH_LOG} --from-beginning shows what stood out.\n`)
          return 0
        }
        const line = before?.novelty?.lines ?? 0
        const what = `by ${named(watchModel)}, which knows nothing of it before`
        if (!json)
          print(
            line === 0
              ? `Reading ${from}, ${what}.`
              : `Going on with ${from} behind line ${count(line)}, read ${what}.`,
          )
        const outcome = await work({ log, names, loaded, json, again, settings: { snapshotEvery: SNAPSHOT_EVERY } })
        const head = await headOf(log, names, SESSION)
        const found = await foundOut(log, names)
        const { lines = 0 } = head?.novelty ?? {}
        if (json) {
          const { chain = null } = head ?? {}
          printJson({ watched: SESSION, lines, stoodOut: found.map(({ line }) => line), chain, ended: outcome.ended })
        } else {
          const shower = createShower({ json })
          for (const each of found) shower.show(each)
          if (head !== undefined) {
            const bits = bitsPer(head.totals.nats, head.totals.predictions)
            print(
              `${plural(lines, 'line')} at ${(bits ?? 0).toFixed(3)} bits per byte; ${count(found.length)} stood out. Session "${SESSION}" stands at pulse ${count(head.conductor.globalStep)}, chain ${head.chain.slice(0, 12)}….\n`,
            )
          }
        }
        for (const [, error] of outcome.refused) say(messageOf(error))
        return exitCodeOf(outcome)
      },
      { sessionTimeout: 2000 },
    ),
  )
