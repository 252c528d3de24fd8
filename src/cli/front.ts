/**
 * What stands before a log, a gateway for example: with a worker in the same process, or as a client of workers
 * elsewhere.
 */
import { existsSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import { z } from 'zod'
import type { TopicNames } from '../../topics/index.ts'
import { ensureTopics, namesOf, partitionsIn } from '../client/topics.ts'
import { messageOf } from '../errors.ts'
import type { Verify } from '../gateway/console/verify.ts'
import { type AnswerSpans, openAnswerSpans } from '../gateway/genai-spans.ts'
import type { Served } from '../gateway/service.ts'
import { openForm } from '../models/chat/index.ts'
import { type Described, describePackage, type ModelPackage, openPackage } from '../models/open.ts'
import type { Logger } from '../observe/log.ts'
import { namesCollector, openTraces } from '../observe/tracing.ts'
import { refuseCompacted } from '../operators/pipeline/compacted-input.ts'
import { type VerifiedAtRest, verifyAtRest } from '../operators/verify/rest.ts'
import type { WorkerSettings } from '../operators/worker/settings.ts'
import type { EventLog } from '../streams/log.ts'
import { type Hosted, host as hostWorker, type Outcome } from '../worker/host.ts'
import type { ExitCode } from './command.ts'
import { exitCodeOf } from './commands/run.ts'
import { blocksOf, checkInput, openOptions, withExistingLog, withLog, withModel } from './common.ts'
import { optional, refuseIdle, usage, type Values } from './flags.ts'
import { checkRules, rulesOf } from './input-flags.ts'
import { say } from './output.ts'
import { metricsFlags, type placeFlags, settingsOf, workerFlags } from './worker-flags.ts'

/** The flags that say how a model is opened: a gateway without a worker reads nothing of it but its texts. */
const OPENING = ['overflow', 'cache-dtype', 'experts-from']

/** Of the flags of such a command those that are read here. */
export type FrontFlags = Values<typeof placeFlags & typeof workerFlags & typeof metricsFlags> & {
  readonly 'with-worker': boolean
  readonly 'model-name': string | undefined
  readonly otlp: string | undefined
}

/** What such a front is opened on. */
export interface Behind {
  readonly log: EventLog
  readonly names: TopicNames
  readonly served: Served
  /** The worker of this process, once it has joined its group; null: there is none. */
  readonly hosted: (() => Hosted | null) | null
  readonly verify: Verify
  /** Where spans are sent: those of answers. */
  readonly spans: AnswerSpans | undefined
}

/** Opens the front; what it gives is closed when the process is to end. */
export type OpenFront = (behind: Behind) => Promise<{ close(): Promise<void> }>

/** Columns and rows of the torus of experts, of a package that has one. */
const torusOf = (config: unknown): readonly [number, number] | null => {
  const found = z.object({ experts: z.object({ torus: z.tuple([z.int(), z.int()]) }) }).safeParse(config)
  return found.success ? found.data.experts.torus : null
}

/**
 * Ids that one context holds, by the counters of the graph, each of which moves on by one with an id; null: any number.
 */
const positionsOf = ({ graph, decoder, outerMemory, overflow }: Described['request']): number | null => {
  if (outerMemory != null || overflow !== undefined) return null
  const bounds = (graph?.declarations ?? []).flatMap((each) =>
    'counter' in each && each.derived !== true && each.max !== undefined ? [each.max] : [],
  )
  return decoder?.positions ?? (bounds.length > 0 ? Math.min(...bounds) : null)
}

const servedOf = (flags: FrontFlags, { found, request, text: { tokenizer } }: Described): Served => {
  const { dir, config, metadata } = found
  const { modelType, vocabSize, levels, outerMemory } = request
  const about = { dir, modelType, vocabSize, metadata }
  let form: ReturnType<Served['form']> | null = null
  const open = (): ReturnType<Served['form']> => {
    if (tokenizer === null) throw usage('This model has no tokenizer, so it cannot read messages.')
    // A day that a template asks for becomes part of the ids in the log: nothing that is computed later looks at a
    // clock.
    return openForm({ ...about, tokenizer }, () => new Date().toISOString().slice(0, 10))
  }
  return {
    id: flags['model-name'] ?? (existsSync(flags.model) ? basename(resolve(flags.model)) : flags.model),
    vocabSize,
    positions: positionsOf(request),
    about: { type: modelType, levels: levels ?? [], outerMemory: outerMemory != null, torus: torusOf(config) },
    tokenizer,
    form: async () => {
      form ??= open()
      return form
    },
  }
}

type Blocks = WorkerSettings['blocks']

/** verify of all of the log or of one session, with a model that `lend` has open for so long. */
const verifyWith =
  (
    log: EventLog,
    names: TopicNames,
    flags: FrontFlags,
    lend: (use: (loaded: ModelPackage, blocks: Blocks) => Promise<VerifiedAtRest>) => Promise<VerifiedAtRest>,
  ): Verify =>
  async (onProgress, session) => {
    const { partitions } = await partitionsIn(log, names)
    const only = session === undefined ? {} : { session }
    const options = { log, names, format: flags['input-format'], onProgress, ...only }
    return lend(({ model, tokenizer }, blocks) => verifyAtRest({ ...options, model, tokenizer, blocks }, partitions))
  }

const until = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })

/** The flag of the collector, in the commands that stand before a log. */
export const otlpFlag = optional(
  'URL',
  "send OpenTelemetry's span of each answer, and a worker's of each event, to this collector (OTLP over HTTP); OTEL_EXPORTER_OTLP_ENDPOINT does the same",
)

const isTraced = ({ otlp }: FrontFlags): boolean => otlp !== undefined || namesCollector(process.env)

const withWorker = async (
  flags: FrontFlags,
  log: EventLog,
  loaded: ModelPackage,
  settings: WorkerSettings,
  blocks: Blocks,
  logger: Logger,
  stopping: AbortSignal,
  spans: AnswerSpans | undefined,
  open: OpenFront,
): Promise<ExitCode> => {
  const names = namesOf(log, flags['input-topic'])
  await checkInput(log, flags['input-topic'])
  const { partitions } = await ensureTopics(log, names, flags.partitions, {
    alerts: settings.input?.alerts !== undefined,
  })
  checkRules(settings.input ?? {}, partitions)
  await refuseCompacted(log, names.chunks)
  const described = await describePackage(flags.model, openOptions(flags), () => undefined)
  const port = flags['metrics-port']
  const { group, otlp: endpoint } = flags
  const traces = isTraced(flags) ? await openTraces({ log, topic: names.chunks, group, endpoint }) : undefined
  const ending = new AbortController()
  let hosted: Hosted | null = null
  const started = Promise.withResolvers<void>()
  const hosting = hostWorker({
    log,
    names,
    loaded,
    settings,
    untilIdle: null,
    metrics: port === undefined ? null : { port, host: flags['metrics-host'] },
    logger,
    traces,
    stopping: ending.signal,
    onStarted(worker) {
      hosted = worker
      started.resolve()
    },
  })
  // Looked at below; a rejection before that is none that nobody handles.
  hosting.catch(() => undefined)
  let outcome: Outcome
  try {
    const served = servedOf(flags, described)
    const verify = verifyWith(log, names, flags, (use) => use(loaded, blocks))
    // A worker that cannot join its group, on a full disk for example, ends the command before anybody is told of an
    // address.
    await Promise.race([started.promise, hosting])
    const front = await open({ log, names, served, hosted: () => hosted, verify, spans })
    // The worker ends first only where it cannot go on.
    await Promise.race([until(stopping), hosting.catch(() => undefined)])
    await front.close()
  } finally {
    ending.abort()
    outcome = await hosting
  }
  for (const [partition, reason] of outcome.refused) say(`Partition ${partition}: ${messageOf(reason)}`)
  if (outcome.halted !== null) say(messageOf(outcome.halted))
  for (const error of outcome.unclean) say(`While stopping: ${messageOf(error)}`)
  return exitCodeOf(outcome)
}

/** Throws a usage error for flags of a worker that events of such a front would not go with. */
export const checkFront = (flags: FrontFlags, given: ReadonlySet<string>): void => {
  if (flags['input-format'] === 'text') throw usage('The gateway writes events as JSON: --input-format is json here.')
  if (flags['session-from'] !== undefined)
    throw usage('The gateway writes events with their session as the key: --session-from is key here.')
  rulesOf(flags, given)
  if (flags['metrics-port'] === undefined) refuseIdle(given, ['metrics-host'], '--metrics-port P')
}

const withoutWorker = async (
  flags: FrontFlags,
  stopping: AbortSignal,
  spans: AnswerSpans | undefined,
  open: OpenFront,
): Promise<ExitCode> => {
  const served = servedOf(flags, await describePackage(flags.model, openOptions(flags), say))
  return withExistingLog(flags, async (log) => {
    const names = namesOf(log, flags['input-topic'])
    await partitionsIn(log, names)
    const verify = verifyWith(log, names, flags, async (use) => {
      const loaded = await openPackage(flags.model, openOptions(flags))
      try {
        return await use(loaded, undefined)
      } finally {
        loaded.model.close()
      }
    })
    const front = await open({ log, names, served, hosted: null, verify, spans })
    await until(log.lost === undefined ? stopping : AbortSignal.any([stopping, log.lost]))
    await front.close()
    log.lost?.throwIfAborted()
    return 0
  })
}

/**
 * Opens the log, with a worker where the flags ask for one, and the front before it, until `stopping` fires or the
 * worker cannot go on.
 */
export const standBefore = async (
  flags: FrontFlags,
  given: ReadonlySet<string>,
  logger: Logger,
  stopping: AbortSignal,
  open: OpenFront,
): Promise<ExitCode> => {
  if (!flags['with-worker']) {
    const workersOwn = Object.keys({ ...workerFlags, ...metricsFlags }).filter((name) => !OPENING.includes(name))
    refuseIdle(given, workersOwn, '--with-worker')
  }
  const spans = isTraced(flags) ? await openAnswerSpans(flags.otlp) : undefined
  try {
    if (!flags['with-worker']) return await withoutWorker(flags, stopping, spans, open)
    return await withModel(flags.model, flags, (loaded) => {
      const { warn: _, ...blocks } = blocksOf(flags, given, loaded.model)
      const settings = settingsOf(flags, given, blocks)
      return withLog(flags, (log) => withWorker(flags, log, loaded, settings, blocks, logger, stopping, spans, open), {
        sessionTimeout: flags['session-timeout'],
      })
    })
  } finally {
    await spans?.close()
  }
}
