import { partitionsIn } from '../../client/topics.ts'
import { LIMITS, serveGateway } from '../../gateway/server.ts'
import { createLogger, LOG_LEVELS } from '../../observe/log.ts'
import { command } from '../command.ts'
import { choice, on, optional, whole } from '../flags.ts'
import { checkFront, otlpFlag, standBefore } from '../front.ts'
import { say } from '../output.ts'
import { untilSignal } from '../signals.ts'
import { metricsFlags, placeFlags, workerFlags } from '../worker-flags.ts'

const SECOND = 1000

export const mcp = command({
  name: 'mcp',
  about:
    'A server of the Model Context Protocol (MCP) on standard input and output, for programs that give tools to a model: sessions of a log are listed, read, fed, continued, forked and deleted, lines that stand out are read, and what was computed is verified. Workers answer (continuo run), or one in this process by --with-worker. docs/clients.md has the tools.',
  flags: {
    ...placeFlags,
    'model-name': optional('NAME', 'what the model is called (default: the name of its folder or file)'),
    'max-tokens': whole('N', 'tokens of one answer at most', LIMITS.tokens, { min: 1, max: 1_000_000 }),
    'answer-timeout': whole('S', 'seconds that an answer may take', LIMITS.answer / SECOND, { min: 1, max: 86_400 }),
    'with-worker': on('also run a worker in this process; the flags below are its own'),
    ...workerFlags,
    ...metricsFlags,
    otlp: otlpFlag,
    'log-level': choice(LOG_LEVELS, 'of the log on stderr', 'warn'),
  },
  notes:
    'It is started by the client, which speaks on its standard input and reads its standard output; nothing else is written there. It ends when the client closes the input. Whoever can start it can read and change every session of the log.',
  examples: ['mcp --log file:continuo.db --model models/demo --with-worker'],
  async run(flags, _args, given) {
    checkFront(flags, given)
    const logger = createLogger({
      level: flags['log-level'],
      write: (line) => process.stderr.write(line),
      short: process.stderr.isTTY === true,
    })
    const leaving = new AbortController()
    const stopping = AbortSignal.any([untilSignal(), leaving.signal])
    const limits = {
      ...LIMITS,
      ...{ rate: 0, answer: flags['answer-timeout'] * SECOND, tokens: flags['max-tokens'] },
    }
    return standBefore(flags, given, logger, stopping, async ({ log, names, served, verify, spans }) => {
      const { partitions } = await partitionsIn(log, names)
      const gateway = await serveGateway({
        ...{ log, names, served, host: '127.0.0.1', port: null, keys: null, tls: null },
        ...{ limits, logger, boards: [], verify, spans },
      })
      // Before that a list of sessions would lack some.
      await gateway.caughtUp
      const { serveTools } = await import('../mcp/server.ts')
      const desk = { log, names, partitions, gateway, model: served.id, verify, maxTokens: limits.tokens }
      const tools = serveTools(desk)
      void tools.left.then(() => leaving.abort())
      if (process.stdin.isTTY) say('Waiting for a client of MCP on standard input; Ctrl-C ends.')
      return {
        async close() {
          await tools.close()
          await gateway.close(0)
        },
      }
    })
  },
})
