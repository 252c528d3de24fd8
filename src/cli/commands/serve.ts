import { existsSync, readFileSync } from 'node:fs'
import { basename, resolve } from 'node:path'
import { z } from 'zod'
import type { TopicNames } from '../../../topics/index.ts'
import { ensureTopics, namesOf, partitionsIn } from '../../client/topics.ts'
import { messageOf } from '../../errors.ts'
import { boardAt } from '../../gateway/boards.ts'
import type { Verify } from '../../gateway/console-verify.ts'
import { openKeyring } from '../../gateway/keys.ts'
import { tryPort } from '../../gateway/port.ts'
import { type GatewayOptions, isLoopback, LIMITS, serveGateway } from '../../gateway/server.ts'
import type { Limits, Served } from '../../gateway/service.ts'
import { openForm } from '../../models/chat/index.ts'
import { type Described, describePackage, type ModelPackage, openPackage } from '../../models/open.ts'
import { createLogger, LOG_LEVELS, type Logger } from '../../observe/log.ts'
import { readiness } from '../../observe/readiness.ts'
import { refuseCompacted } from '../../operators/compacted-input.ts'
import type { WorkerSettings } from '../../operators/settings.ts'
import { type VerifiedAtRest, verifyAtRest } from '../../operators/verify-rest.ts'
import type { EventLog } from '../../streams/log.ts'
import { type Hosted, host as hostWorker, type Outcome } from '../../worker/host.ts'
import { command, type ExitCode } from '../command.ts'
import { blocksOf, checkInput, openOptions, withExistingLog, withLog, withModel } from '../common.ts'
import { choice, list, on, optional, refuseIdle, text, usage, type Values, whole } from '../flags.ts'
import { checkRules, rulesOf } from '../input-flags.ts'
import { openUrl } from '../open-url.ts'
import { print, printJson, say } from '../output.ts'
import { untilSignal } from '../signals.ts'
import { metricsFlags, placeFlags, settingsOf, workerFlags } from '../worker-flags.ts'
import { exitCodeOf } from './run.ts'

const SECOND = 1000

const gatewayFlags = {
  host: text('HOST', 'address to listen at; one that others reach needs --keys', '127.0.0.1'),
  port: whole('N', 'port to listen at; 0 takes a free one', 8080, { min: 0, max: 65_535 }),
  'model-name': optional('NAME', 'what clients call the model (default: the name of its folder or file)'),
  keys: optional('FILE', 'API keys that are let in; continuo keys add makes them'),
  'https-cert': optional('FILE', "the gateway's certificate with its chain (PEM): it is served by TLS then"),
  'https-key': optional('FILE', 'the private key of that certificate (PEM)'),
  'rate-limit': whole(
    'N',
    'requests a minute of one key, or of one address where there are no keys; 0: any number',
    LIMITS.rate,
    {
      min: 0,
    },
  ),
  'body-limit': whole('BYTES', 'of one request', LIMITS.body, { min: 1024, max: 256 << 20 }),
  'max-open': whole('N', 'answers and streams under way at one time', LIMITS.open, { min: 1, max: 65_536 }),
  'session-backlog': whole(
    'N',
    'events of a session that no worker has finished yet, at which more are refused; 0: any number',
    LIMITS.sessionBacklog,
    { min: 0 },
  ),
  'key-backlog': whole('N', 'the same, of all sessions to which one key has sent; 0: any number', LIMITS.keyBacklog, {
    min: 0,
  }),
  'max-tokens': whole('N', 'tokens of one answer at most', LIMITS.tokens, { min: 1, max: 1_000_000 }),
  'prefix-sessions': whole(
    'N',
    'sessions that are kept where prompts end or part, so that a later prompt which begins alike reads only what is new; 0: none',
    LIMITS.prefixes.sessions,
    { min: 0, max: 65_536 },
  ),
  'prefix-bytes': whole('BYTES', 'of their snapshots, all together', LIMITS.prefixes.bytes, { min: 0 }),
  'answer-timeout': whole('S', 'seconds that an answer may take', LIMITS.answer / SECOND, { min: 1, max: 86_400 }),
  'stall-timeout': whole(
    'S',
    'seconds after which a reader that takes nothing is disconnected',
    LIMITS.stall / SECOND,
    {
      min: 1,
      max: 3600,
    },
  ),
  'no-cancel': on('an answer whose client goes away is generated to its end'),
  'worker-metrics': list(
    'URL',
    'where a worker elsewhere serves its metrics (--metrics-port): the console shows what only it knows; may be repeated',
  ),
  open: on('open the console in a browser'),
  grace: whole('S', 'seconds that answers under way have to end, after a signal', 10, { min: 0, max: 3600 }),
}

const FLAGS = {
  ...placeFlags,
  ...gatewayFlags,
  'with-worker': on('also run a worker in this process; the flags below are its own'),
  ...workerFlags,
  ...metricsFlags,
  'log-level': choice(LOG_LEVELS, 'of the log on stderr', 'info'),
}
type Flags = Values<typeof FLAGS> & { readonly json: boolean }

/** The flags that say how a model is opened: a gateway without a worker reads nothing of it but its texts. */
const OPENING = ['overflow', 'cache-dtype', 'experts-from']

const limitsOf = (flags: Flags): Limits => ({
  body: flags['body-limit'],
  rate: flags['rate-limit'],
  open: flags['max-open'],
  answer: flags['answer-timeout'] * SECOND,
  stall: flags['stall-timeout'] * SECOND,
  sessionBacklog: flags['session-backlog'],
  keyBacklog: flags['key-backlog'],
  tokens: flags['max-tokens'],
  prefixes: { sessions: flags['prefix-sessions'], bytes: flags['prefix-bytes'] },
})

const readPem = (file: string): Buffer => {
  try {
    return readFileSync(file)
  } catch (error) {
    throw usage(`${file} cannot be read: ${messageOf(error)}.`)
  }
}

const tlsOf = ({ 'https-cert': cert, 'https-key': key }: Flags): GatewayOptions['tls'] => {
  if ((cert === undefined) !== (key === undefined))
    throw usage('--https-cert and --https-key go together; one of them is missing.')
  return cert === undefined || key === undefined ? null : { cert: readPem(cert), key: readPem(key) }
}

const checkAddress = ({ host, keys }: Flags): void => {
  if (keys === undefined && !isLoopback(host))
    throw usage(
      `Others reach ${host}, so the gateway needs --keys FILE there (continuo keys add NAME --keys FILE makes one).`,
    )
}

/** Columns and rows of the torus of experts, of a package that has one. */
const torusOf = (config: unknown): readonly [number, number] | null => {
  const found = z.object({ experts: z.object({ torus: z.tuple([z.int(), z.int()]) }) }).safeParse(config)
  return found.success ? found.data.experts.torus : null
}

const servedOf = (flags: Flags, { found, request, text: { tokenizer } }: Described): Served => {
  const { dir, config, metadata } = found
  const { modelType, vocabSize, levels, outerMemory, decoder, overflow } = request
  const about = { dir, modelType, vocabSize, metadata }
  let form: ReturnType<Served['form']> | null = null
  const open = (): ReturnType<Served['form']> => {
    if (tokenizer === null) throw usage('This model has no tokenizer, so it cannot read messages.')
    // A day that a template asks for becomes part of the ids in the log: nothing that is computed later looks at a clock.
    return openForm({ ...about, tokenizer }, () => new Date().toISOString().slice(0, 10))
  }
  return {
    id: flags['model-name'] ?? (existsSync(flags.model) ? basename(resolve(flags.model)) : flags.model),
    vocabSize,
    positions: outerMemory == null && overflow === undefined ? (decoder?.positions ?? null) : null,
    about: { type: modelType, levels: levels ?? [], outerMemory: outerMemory != null, torus: torusOf(config) },
    tokenizer,
    form: async () => {
      form ??= open()
      return form
    },
  }
}

type Blocks = WorkerSettings['blocks']

/** verify for the console, with a model that `lend` has open for so long. */
const verifyWith =
  (
    log: EventLog,
    names: TopicNames,
    flags: Flags,
    lend: (use: (loaded: ModelPackage, blocks: Blocks) => Promise<VerifiedAtRest>) => Promise<VerifiedAtRest>,
  ): Verify =>
  async (onProgress) => {
    const { partitions } = await partitionsIn(log, names)
    return lend(({ model, tokenizer }, blocks) =>
      verifyAtRest({ log, names, model, tokenizer, format: flags['input-format'], blocks, onProgress }, partitions),
    )
  }

const start = async (
  flags: Flags,
  log: EventLog,
  names: TopicNames,
  served: Served,
  logger: Logger,
  hosted: (() => Hosted | null) | null,
  verify: Verify,
) => {
  const worker = hosted && (() => hosted()?.worker ?? null)
  const unready = (): string | null => {
    const state = readiness(worker?.() ?? null)
    return state.ready ? null : (state.reason ?? 'The worker is not ready.')
  }
  const gateway = await serveGateway({
    log,
    names,
    served,
    host: flags.host,
    port: flags.port,
    keys: flags.keys === undefined ? null : openKeyring(flags.keys, (message) => logger.warn(message)),
    tls: tlsOf(flags),
    limits: limitsOf(flags),
    keepsAnswers: flags['no-cancel'],
    logger,
    boards: [
      ...(hosted === null
        ? []
        : [
            { url: null, read: (after: Parameters<Hosted['board']['read']>[0]) => hosted()?.board.read(after) ?? null },
          ]),
      ...flags['worker-metrics'].map(boardAt),
    ],
    verify,
    ...(worker !== null && { unready }),
  })
  if (flags.json) printJson({ type: 'listening', url: gateway.url, model: served.id, worker: worker !== null })
  else {
    print(`Serving ${served.id} at ${gateway.url}${worker === null ? '' : ', with a worker'}.`)
    print(`The console is the page at ${gateway.url}/`)
  }
  if (flags.open) openUrl(`${gateway.url}/`, say)
  return gateway
}

const until = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })

const withWorker = async (
  flags: Flags,
  log: EventLog,
  loaded: ModelPackage,
  settings: WorkerSettings,
  blocks: Blocks,
  logger: Logger,
  stopping: AbortSignal,
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
    // A worker that cannot join its group, on a full disk for example, ends the command before anybody is told of an address.
    await Promise.race([started.promise, hosting])
    const gateway = await start(flags, log, names, served, logger, () => hosted, verify)
    // The worker ends first only where it cannot go on.
    await Promise.race([until(stopping), hosting.catch(() => undefined)])
    await gateway.close(flags.grace * SECOND)
  } finally {
    ending.abort()
    outcome = await hosting
  }
  for (const [partition, reason] of outcome.refused) say(`Partition ${partition}: ${messageOf(reason)}`)
  if (outcome.halted !== null) say(messageOf(outcome.halted))
  for (const error of outcome.unclean) say(`While stopping: ${messageOf(error)}`)
  return exitCodeOf(outcome)
}

export const serve = command({
  name: 'serve',
  about:
    'An HTTP gateway before a log: requests become events, and answers are read from the output topics. It speaks the protocol of OpenAI (completions, chats and responses) and its own: sessions, events into them, and streams of tokens that lose and repeat nothing when a client reconnects. Workers answer (continuo run), or one in this process by --with-worker. At / it shows the console, a page on all of this (docs/console.md). docs/serve.md has the routes.',
  flags: FLAGS,
  notes:
    'Without --keys it answers at an address of this machine alone. SIGTERM ends streams, gives answers under way their time, and leaves; clients reconnect where they were.',
  examples: [
    'serve --log file:continuo.db --model models/demo --with-worker',
    'serve --log kafka://127.0.0.1:9092/continuo --model models/demo --host 0.0.0.0 --keys keys.json --https-cert cert.pem --https-key key.pem',
  ],
  async run(flags, _args, given) {
    checkAddress(flags)
    if (flags['input-format'] === 'text') throw usage('The gateway writes events as JSON: --input-format is json here.')
    if (flags['session-from'] !== undefined)
      throw usage('The gateway writes events with their session as the key: --session-from is key here.')
    rulesOf(flags, given)
    if (flags['metrics-port'] === undefined) refuseIdle(given, ['metrics-host'], '--metrics-port P')
    tlsOf(flags)
    for (const url of flags['worker-metrics'])
      if (!/^https?:\/\/[^/?#]+$/.test(url))
        throw usage(
          `--worker-metrics takes the address of a worker's metrics, as http://127.0.0.1:9464; "${url}" is none.`,
        )
    // Before a model is read, or a partition of the log is claimed.
    await tryPort(flags.host, flags.port)
    const logger = createLogger({
      level: flags['log-level'],
      write: (line) => process.stderr.write(line),
      short: process.stderr.isTTY === true,
    })
    const stopping = untilSignal('Stopping: answers under way have their time. Once more ends at once.')
    if (flags['with-worker'])
      return withModel(flags.model, flags, (loaded) => {
        const { warn: _, ...blocks } = blocksOf(flags, given, loaded.model)
        return withLog(
          flags,
          (log) => withWorker(flags, log, loaded, settingsOf(flags, given, blocks), blocks, logger, stopping),
          {
            sessionTimeout: flags['session-timeout'],
          },
        )
      })
    const workersOwn = Object.keys({ ...workerFlags, ...metricsFlags }).filter((name) => !OPENING.includes(name))
    refuseIdle(given, workersOwn, '--with-worker')
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
      const gateway = await start(flags, log, names, served, logger, null, verify)
      await until(log.lost === undefined ? stopping : AbortSignal.any([stopping, log.lost]))
      await gateway.close(flags.grace * SECOND)
      log.lost?.throwIfAborted()
      return 0
    })
  },
})
