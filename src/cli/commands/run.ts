import type { TopicNames } from '../../../topics/index.ts'
import { ensureTopics, namesOf } from '../../client/topics.ts'
import { codeOf, messageOf } from '../../errors.ts'
import type { ModelPackage } from '../../models/open.ts'
import type { Tokenizer } from '../../models/tokenizer/types.ts'
import { createLogger, LOG_LEVELS } from '../../observe/log.ts'
import { startProgress } from '../../observe/progress.ts'
import type { Totals } from '../../observe/tally.ts'
import { namesCollector, openTraces } from '../../observe/tracing.ts'
import { refuseCompacted } from '../../operators/pipeline/compacted-input.ts'
import type { EventLog } from '../../streams/log.ts'
import { type Hosted, host, type Outcome } from '../../worker/host.ts'
import { command, type ExitCode } from '../command.ts'
import { blocksOf, checkInput, type Phases, withLog, withModel } from '../common.ts'
import { choice, optional, optionalWhole, refuseIdle } from '../flags.ts'
import { checkRules, rulesOf } from '../input-flags.ts'
import { bitsPer, count, plural, print, printJson, say } from '../output.ts'
import { startRemaining } from '../remaining.ts'
import { untilSignal } from '../signals.ts'
import { metricsFlags, placeFlags, settingsOf, workerFlags } from '../worker-flags.ts'

const PROGRESS_INTERVAL = 2000 // ms, of --json

/** Where every token is a byte, bits per token are bits per byte. */
const unitOf = ({ tokenizer, model }: ModelPackage): 'byte' | 'token' =>
  tokenizer !== null && model.vocabSize === 256 && isEveryByte(tokenizer) ? 'byte' : 'token'

const isEveryByte = ({ bytesOf }: Pick<Tokenizer, 'bytesOf'>): boolean => {
  for (let id = 0; id < 256; id += 1) if (bytesOf(id).length !== 1) return false
  return true
}

export const progressLine = ({ totals, speed }: Hosted['tally'], loaded: ModelPackage): string => {
  const bits = bitsPer(totals.nats, totals.predictions)
  return [
    `${count(totals.read + totals.generated)} pulses`,
    `${count(speed.now)} tokens/s`,
    ...(bits === null ? [] : [`${bits.toFixed(3)} bits per ${unitOf(loaded)}`]),
    plural(totals.commits, 'commit'),
    plural(totals.sessions, 'session'),
    ...(totals.deadLetters === 0 ? [] : [plural(totals.deadLetters, 'dead letter')]),
  ].join('  ')
}

const report = (totals: Totals) => ({
  read: totals.read,
  generated: totals.generated,
  predictions: totals.predictions,
  nats: totals.nats,
  bitsPerToken: bitsPer(totals.nats, totals.predictions),
  commits: totals.commits,
  sessions: totals.sessions,
  deadLetters: totals.deadLetters,
})

export const exitCodeOf = ({ refused, halted, unclean }: Outcome): ExitCode => {
  if (halted !== null || refused.size > 0 || unclean.some((error) => codeOf(error) === 'REFUSED')) return 3
  return unclean.length > 0 ? 1 : 0
}

/** Reports progress: as a live line, or as JSON lines. */
const startTelling = (json: boolean, loaded: ModelPackage, log: EventLog, names: TopicNames) => {
  let hosted: Hosted | null = null
  const remaining = json ? null : startRemaining(log, names, () => hosted?.worker.tasks ?? new Map())
  const line = (): string | null => {
    if (hosted === null) return null
    const [state, share] = [progressLine(hosted.tally, loaded), remaining?.text() ?? null]
    if (share === null) return state
    // A terminal may cut the end off.
    return process.stdout.isTTY ? `${share}  ${state}` : `${state}  ${share}`
  }
  const tell = (): void => {
    if (hosted === null) return
    const { totals, speed } = hosted.tally
    printJson({ type: 'progress', ...report(totals), tokensPerSecond: speed.now })
  }
  const ticker = json ? setInterval(tell, PROGRESS_INTERVAL).unref() : undefined
  const progress = json ? null : startProgress(process.stdout, line)
  return {
    begin(started: Hosted) {
      hosted = started
    },
    log(line: string) {
      if (progress === null) process.stderr.write(line)
      else progress.above(() => process.stderr.write(line))
    },
    end() {
      clearInterval(ticker)
      remaining?.stop()
      progress?.stop()
    },
  }
}

const tellOutcome = (outcome: Outcome, json: boolean): void => {
  const { ended, totals, speed, unclean, halted } = outcome
  const refused = [...outcome.refused].map(([partition, error]) => ({ partition, reason: messageOf(error) }))
  if (json)
    printJson({
      type: 'ended',
      ended,
      ...report(totals),
      tokensPerSecond: speed.average,
      refused,
      halted: halted === null ? null : messageOf(halted),
    })
  else {
    const rate = speed.average === 0 ? '' : `, ${count(speed.average)} tokens/s`
    print(`Ended (${ended}): ${plural(totals.read, 'token')} read, ${count(totals.generated)} generated${rate}.`)
  }
  if (halted !== null) say(messageOf(halted))
  for (const { partition, reason } of refused) say(`Partition ${partition}: ${reason}`)
  for (const error of unclean) say(`While stopping: ${messageOf(error)}`)
}

const FLAGS = {
  ...placeFlags,
  ...workerFlags,
  'until-idle': optionalWhole('MS', 'end when nothing was left to do for so long', { min: 0 }),
  ...metricsFlags,
  otlp: optional(
    'URL',
    'send an OpenTelemetry span of each event to this collector (OTLP over HTTP); OTEL_EXPORTER_OTLP_ENDPOINT does the same',
  ),
  'log-level': choice(LOG_LEVELS, 'of the log on stderr', 'info'),
}

export const run = command({
  name: 'run',
  about:
    'Reads the input topic, runs the model over every session, and commits tokens, observations and state as one. Resumes where the last run stood. Ctrl-C finishes the step in hand, saves and leaves; a second one ends at once.',
  flags: FLAGS,
  notes:
    'A partition whose state refuses to resume is left alone, the others run on; when every one refused, the run ends. However it ends, the exit code is 3 if any partition was refused.',
  examples: [
    'run --log file:continuo.db --model models/demo',
    'run --log kafka://127.0.0.1:9092/continuo --model models/demo --metrics-port 9464',
    'run --log file:continuo.db --model models/demo --device cuda',
  ],
  async run(flags, _args, given) {
    if (flags['metrics-port'] === undefined) refuseIdle(given, ['metrics-host'], '--metrics-port P')
    if (flags['max-resident-bytes'] === undefined)
      refuseIdle(given, ['max-spill-bytes', 'spill-dir'], '--max-resident-bytes BYTES')
    const rules = rulesOf(flags, given)
    const stopping = untilSignal('Stopping: finishing the step in hand, saving. Once more ends at once.')
    const serve = async (log: EventLog, loaded: ModelPackage, phases: Phases): Promise<ExitCode> => {
      const { warn: _, ...blocks } = blocksOf(flags, given, loaded.model)
      const names = namesOf(log, flags['input-topic'])
      await checkInput(log, flags['input-topic'])
      const { created, partitions } = await ensureTopics(log, names, flags.partitions, {
        alerts: rules.alerts !== undefined,
      })
      checkRules(rules, partitions)
      await refuseCompacted(log, names.chunks)
      const endpoint = flags.otlp
      const traces =
        endpoint === undefined && !namesCollector(process.env)
          ? undefined
          : await openTraces({ log, topic: names.chunks, group: flags.group, endpoint })
      const telling = startTelling(flags.json, loaded, log, names)
      const logger = createLogger({
        level: flags['log-level'],
        write: telling.log,
        short: process.stderr.isTTY === true,
      })
      if (created.length > 0) logger.info({ created, partitions }, 'topics created')
      const opened = phases.map(([phase, ms]) => `${phase} ${ms} ms`).join(', ')
      logger.info({ phases: Object.fromEntries(phases) }, `model opened: ${opened}`)
      // An embedded log is a file of this machine itself.
      if (log.kind === 'kafka' && log.blobs?.pathOf !== undefined)
        logger.warn(
          `The blob store is a folder of this machine, ${log.blobs.url}: every worker of the log must reach it (a network file system, or s3://), or sessions that move to another one wait for it.`,
        )
      const port = flags['metrics-port']
      try {
        const outcome = await host({
          log,
          names,
          loaded,
          settings: settingsOf(flags, given, blocks),
          untilIdle: flags['until-idle'] ?? null,
          metrics: port === undefined ? null : { port, host: flags['metrics-host'] },
          logger,
          traces,
          stopping,
          onStarted(started) {
            telling.begin(started)
            if (flags.json) {
              const about = { log: log.url, partitions, metrics: started.observationUrl, device: loaded.model.device }
              printJson({ type: 'started', ...about })
            }
          },
        })
        telling.end()
        tellOutcome(outcome, flags.json)
        return exitCodeOf(outcome)
      } finally {
        telling.end()
      }
    }
    // The model first: a mistyped folder must not leave an empty log behind.
    return withModel(flags.model, flags, (loaded, phases) =>
      withLog(flags, (log) => serve(log, loaded, phases), { sessionTimeout: flags['session-timeout'] }),
    )
  },
})
