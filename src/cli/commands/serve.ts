import { readFileSync } from 'node:fs'
import { messageOf } from '../../errors.ts'
import { boardAt } from '../../gateway/console/boards.ts'
import { openKeyring } from '../../gateway/keys.ts'
import { tryPort } from '../../gateway/port.ts'
import { type GatewayOptions, isLoopback, LIMITS, serveGateway } from '../../gateway/server.ts'
import type { Limits } from '../../gateway/service.ts'
import { createLogger, LOG_LEVELS, type Logger } from '../../observe/log.ts'
import { readiness } from '../../observe/readiness.ts'
import type { Hosted } from '../../worker/host.ts'
import { command } from '../command.ts'
import { choice, list, on, optional, text, usage, type Values, whole } from '../flags.ts'
import { type Behind, checkFront, otlpFlag, standBefore } from '../front.ts'
import { openUrl } from '../open-url.ts'
import { print, printJson, say } from '../output.ts'
import { untilSignal } from '../signals.ts'
import { metricsFlags, placeFlags, workerFlags } from '../worker-flags.ts'

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
  otlp: otlpFlag,
  'log-level': choice(LOG_LEVELS, 'of the log on stderr', 'info'),
}
type Flags = Values<typeof FLAGS> & { readonly json: boolean }

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

const start = async (
  flags: Flags,
  logger: Logger,
  { log, names, served, hosted, verify, spans }: Behind,
): Promise<{ close(): Promise<void> }> => {
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
    spans,
    ...(worker !== null && { unready }),
  })
  if (flags.json) printJson({ type: 'listening', url: gateway.url, model: served.id, worker: worker !== null })
  else {
    print(`Serving ${served.id} at ${gateway.url}${worker === null ? '' : ', with a worker'}.`)
    print(`The console is the page at ${gateway.url}/`)
  }
  if (flags.open) openUrl(`${gateway.url}/`, say)
  return { close: () => gateway.close(flags.grace * SECOND) }
}

export const serve = command({
  name: 'serve',
  about:
    'An HTTP gateway before a log: requests become events, and answers are read from the output topics. It speaks the protocol of OpenAI (completions, chats and responses) and its own: sessions, events into them, and streams that neither lose nor repeat tokens when a client, gateway or worker is killed. Workers answer (continuo run), or one in this process by --with-worker. At / it shows the console, a page on all of this (docs/console.md). docs/serve.md has the routes.',
  flags: FLAGS,
  notes:
    'Without --keys it answers at an address of this machine alone. SIGTERM ends streams, gives answers under way their time, and leaves; clients reconnect where they were.',
  examples: [
    'serve --log file:continuo.db --model models/demo --with-worker',
    'serve --log kafka://127.0.0.1:9092/continuo --model models/demo --host 0.0.0.0 --keys keys.json --https-cert cert.pem --https-key key.pem',
  ],
  async run(flags, _args, given) {
    checkAddress(flags)
    checkFront(flags, given)
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
    return standBefore(flags, given, logger, stopping, (behind) => start(flags, logger, behind))
  },
})
