import { isAbsolute, relative } from 'node:path'
import type { TopicNames } from '../../../topics/index.ts'
import { chunkRecord, textEvents } from '../../client/chunks.ts'
import { ensureTopics, namesOf } from '../../client/topics.ts'
import { ContinuoError, messageOf } from '../../errors.ts'
import { CALL, CONSOLE, DEMO, DEMO_WITH, demoModel, inPackage, recallModel } from '../../places.ts'
import type { Head } from '../../state/head.ts'
import type { EventLog, RecordIn } from '../../streams/log.ts'
import { command, type ExitCode } from '../command.ts'
import { sealFlags, stateOf, tlsFlags, withLog, withModel } from '../common.ts'
import { demoMemory } from '../demo/memory.ts'
import { demoWatch, WATCH_LOG } from '../demo/watching.ts'
import { generatedText, headOf, requestsSoFar, work } from '../demo/working.ts'
import { on, optional, refuseIdle, whole } from '../flags.ts'
import { openInput } from '../input.ts'
import { bitsPer, count, plural, print, printJson, quoted, say } from '../output.ts'
import { exitCodeOf } from './run.ts'

const TALE = inPackage('docs', 'demo', 'harbour-log.txt')
const SESSION = 'harbour-log'
const PIECE = 2048
const TOKENS = 400
/**
 * A killed run keeps its partition of an embedded log for so long. Kafka's brokers refuse less than 6 s, so there it is
 * the default.
 */
const SESSION_TIMEOUT = 2000 // ms

const requestName = (run: number): string => `demo-${run}`
const request = (run: number): RecordIn =>
  chunkRecord(SESSION, {
    type: 'generate',
    requestId: requestName(run),
    maxTokens: TOKENS,
    temperature: 0.8,
    topP: 0.95,
    seed: run,
  })

const collect = async <T>(source: AsyncIterable<T>): Promise<T[]> => {
  const all: T[] = []
  for await (const item of source) all.push(item)
  return all
}

/** The document and the first request in one transaction: a run killed here leaves all of it or none. */
const firstRecords = async (document: string): Promise<RecordIn[]> => {
  const input = await openInput(document)
  try {
    const pieces = await collect(textEvents(input.read(), PIECE))
    // Its tokens have their shades in the console.
    const open = chunkRecord(SESSION, { type: 'open', surprisal: true })
    return [open, ...pieces.flatMap((piece) => (piece === null ? [] : [chunkRecord(SESSION, piece.event)])), request(1)]
  } finally {
    input.close()
  }
}

interface Plan {
  readonly run: number
  readonly head: Head | undefined
  /** An earlier run ended before its work was done. */
  readonly unfinished: boolean
  /** Records that were sent; on the first run the opening, the pieces of the document and the request. */
  readonly fed: number
}

/** Plans this run, and feeds its input unless an earlier run left work behind. */
const prepare = async (log: EventLog, names: TopicNames, document: string): Promise<Plan> => {
  const runs = await requestsSoFar(log, names, SESSION, requestName)
  const { heads, cursor } = await stateOf(log, names, 0)
  const head = heads.get(SESSION)
  const { begin, end } = await log.bounds(names.chunks, 0)
  if (runs > 0 && (cursor?.offset ?? begin) < end) return { run: runs, head, unfinished: true, fed: 0 }
  const records = runs === 0 ? await firstRecords(document) : [request(runs + 1)]
  await log.append(names.chunks, records, 0)
  return { run: runs + 1, head, unfinished: false, fed: records.length }
}

const describeStart = ({ head, unfinished, fed }: Plan, document: string): string => {
  if (head === undefined && unfinished)
    return 'The last run ended before its first commit; its input is in the log. Going on with it.'
  if (head === undefined)
    return `First run: fed ${document} in ${count(fed - 2)} pieces, and a request to continue it by ${TOKENS} tokens.`
  const { conductor, chain, snapshot } = head
  const from = snapshot === null ? 'the first event' : `the snapshot of pulse ${count(snapshot.pulse)}`
  const why = unfinished
    ? 'The last run was interrupted; going on'
    : `Fed a request for ${TOKENS} more tokens; resuming`
  return `${why} at pulse ${count(conductor.globalStep)} from ${from}, chain ${chain.slice(0, 12)}….`
}

/** A shipped file as a command line in this folder names it. */
const named = (path: string): string => {
  const from = relative(process.cwd(), path)
  return from.startsWith('..') || isAbsolute(from) ? path : from
}

/** The command that goes on with this log: the demo with the flags of this run. */
const startAgain = (
  values: Readonly<Record<'log' | 'model' | 'document', string>>,
  given: ReadonlySet<string>,
  memory: boolean,
) => {
  const flags = (['log', 'model', 'document'] as const).filter((name) => given.has(name))
  return [
    memory ? `${CALL} demo --memory` : flags.length === 0 ? DEMO : DEMO_WITH,
    ...flags.map((name) => `--${name} ${quoted(values[name])}`),
  ].join(' ')
}

/** `watched`: the log of the first half; null: there was none. */
const nextSteps = (
  again: string,
  logUrl: string,
  modelDir: string,
  isUsual: boolean,
  watched: string | null,
): string => {
  const log = quoted(logUrl)
  const model = quoted(modelDir)
  const serve = `${CALL} serve --log ${log} --model ${model} --with-worker`
  return [
    'Try next:',
    `  ${again.padEnd(40)}   go on where this run stopped (kill it midway, too)`,
    ...(watched === null ? [] : [`  ${CALL} watch --log ${quoted(watched)} --from-beginning --until-idle 100`]),
    `  ${CALL} tail --log ${log} --session ${SESSION} --from-beginning --until-idle 100`,
    `  ${CALL} sessions --log ${log}`,
    `  ${CALL} verify --log ${log} --model ${model}`,
    `  ${CALL} feed --log ${log} --session ${SESSION} --generate 200 --temperature 0.8`,
    `  ${CALL} run --log ${log} --model ${model} --until-idle 500`,
    '',
    `A page shows it at http://127.0.0.1:8080/ while this runs: ${isUsual ? (CONSOLE ?? serve) : serve}`,
  ].join('\n')
}

const sums = (before: Head | undefined, after: Head): string => {
  const tokens = after.totals.tokens - (before?.totals.tokens ?? 0)
  const nats = after.totals.nats - (before?.totals.nats ?? 0)
  const predictions = after.totals.predictions - (before?.totals.predictions ?? 0)
  const bits = bitsPer(nats, predictions)
  const read =
    tokens === 0 ? '' : `read ${plural(tokens, 'byte')}${bits === null ? '' : ` at ${bits.toFixed(3)} bits per byte`}, `
  return `${read}generated ${count(after.totals.generated - (before?.totals.generated ?? 0))}`
}

export const demo = command({
  name: 'demo',
  about:
    'A model that learns what it reads finds the odd lines of a log of 3,000, and another one reads a tale and continues it, each on an embedded log. With --log, --model or --document there is only the tale. Each further run resumes the session at the pulse where it stood (a pulse is one token read or written) and goes on.',
  flags: {
    memory: on('show an external memory instead: facts on the first page of a long text are asked for at its end'),
    log: optional('URL', 'the log (default: file:.continuo/demo.db, with --memory file:.continuo/memory.db)'),
    ...tlsFlags,
    ...sealFlags,
    model: optional('DIR', 'the model (default: the shipped one, of --memory the one with an external memory)'),
    characters: whole('N', 'with --memory: characters of the text', 1_000_000, { min: 10_000 }),
    document: optional('FILE', 'what the first run reads (default: the shipped tale)'),
  },
  notes: 'To begin anew, delete .continuo/demo.db* and .continuo/watch.db*.',
  unset: true,
  examples: ['demo', 'demo --memory', 'demo --memory --characters 100000'],
  async run({ memory, characters, ...rest }, _args, given) {
    if (!memory) refuseIdle(given, ['characters'], '--memory')
    const kind = memory ? 'memory' : 'demo'
    const flags = {
      ...rest,
      log: rest.log ?? `file:.continuo/${kind}.db`,
      model: rest.model ?? named(memory ? recallModel : demoModel),
      document: rest.document ?? named(TALE),
    }
    const isUsual = !memory && !['log', 'model', 'document'].some((name) => given.has(name))
    if (isUsual) {
      const code = await demoWatch({
        flags: rest,
        json: flags.json,
        again: startAgain({ ...flags }, given, memory),
        named,
      })
      if (code !== 0) return code
    }
    return withModel(flags.model, {}, (loaded) =>
      withLog(
        flags,
        async (log): Promise<ExitCode> => {
          const names = namesOf(log)
          const again = startAgain({ ...flags, log: log.url }, given, memory)
          const { partitions } = await ensureTopics(log, names)
          if (partitions !== 1)
            throw new ContinuoError('INVALID', `The demo uses one partition; ${log.url} has ${partitions}.`)
          if (memory)
            return demoMemory({
              ...{ log, names, loaded, document: flags.document, length: characters, json: flags.json, again },
              modelDir: flags.model,
            })
          const plan = await prepare(log, names, flags.document)
          if (!flags.json) print(describeStart(plan, flags.document))
          const outcome = await work({ log, names, loaded, json: flags.json, again })
          const head = await headOf(log, names, SESSION)
          const { text: written, tokens } = await generatedText(log, names, SESSION, requestName(plan.run))
          if (flags.json) {
            printJson({
              run: plan.run,
              resumedAt: plan.head?.conductor.globalStep ?? 0,
              pulse: head?.conductor.globalStep ?? 0,
              chain: head?.chain ?? null,
              ended: outcome.ended,
              tokens,
              text: written,
            })
          } else {
            if (tokens > 0) print(`\n${written}\n`)
            if (head !== undefined) {
              const { globalStep } = head.conductor
              print(
                `Session "${SESSION}" stands at pulse ${count(globalStep)}, chain ${head.chain.slice(0, 12)}…; this run ${sums(plan.head, head)}.`,
              )
            }
            print(
              `Everything is in ${log.url}.\n\n${nextSteps(again, log.url, flags.model, !given.has('log') && !given.has('model'), isUsual ? WATCH_LOG : null)}`,
            )
          }
          for (const [, error] of outcome.refused) say(messageOf(error))
          return exitCodeOf(outcome)
        },
        flags.log.startsWith('file:') ? { sessionTimeout: SESSION_TIMEOUT } : {},
      ),
    )
  },
})
