/** The tools as a server of the Model Context Protocol on standard input and output. */
import { McpServer, type StandardSchemaWithJSON } from '@modelcontextprotocol/server'
import { StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio'
import { messageOf } from '../../errors.ts'
import { schemaFault } from '../../issues.ts'
import { escaped, escapedJson } from '../../terminal.ts'
import { say } from '../output.ts'
import { version } from '../version.ts'
import { boundedLines, MOST_MESSAGE } from './stdio.ts'
import { type Desk, TOOLS, type Tool } from './tools.ts'

/** The schema, with what is wrong as a sentence: zod's own words name no place. */
const told = ({ input }: Pick<Tool, 'input'>): StandardSchemaWithJSON<unknown, unknown> => ({
  '~standard': {
    ...input['~standard'],
    validate(value) {
      const parsed = input.safeParse(value)
      if (parsed.success) return { value: parsed.data }
      const { path, message, unknown } = schemaFault(parsed.error)
      const [stranger] = unknown
      const sentence =
        stranger === undefined
          ? `${path.length === 0 ? 'What was given' : `"${path.join('.')}"`} cannot be taken: ${message}.`
          : `"${stranger.slice(0, 64)}" is not known here.`
      return { issues: [{ message: escaped(sentence) }] }
    },
  } as StandardSchemaWithJSON<unknown, unknown>['~standard'],
})

/** Calls of a client that are under way at one time. */
const MOST_CALLS = 64

const said = (text: string, isError: boolean) => ({
  content: [{ type: 'text' as const, text }],
  ...(isError && { isError }),
})

const serverOf = (desk: Desk, stopping: AbortSignal): McpServer => {
  const server = new McpServer(
    { name: 'continuo', title: 'Continuo', version },
    {
      instructions: `Sessions of the model "${desk.model}" on an event log: each has read what was appended to it, for ever. A session begins with its first text.`,
    },
  )
  let open = 0
  for (const each of TOOLS) {
    const { name, title, description, hints, run } = each
    const config = { title, description, inputSchema: told(each), annotations: { ...hints, openWorldHint: false } }
    server.registerTool(name, config, async (given, context) => {
      if (open >= MOST_CALLS) return said(`${MOST_CALLS} calls are under way, as many as are taken at a time.`, true)
      const signal = AbortSignal.any([context.mcpReq.signal, stopping])
      open += 1
      try {
        // What others wrote must command no terminal that a client shows it on: JSON can say the same without.
        return said(escapedJson(JSON.stringify(await run(desk, given as never, signal))), false)
      } catch (error) {
        return said(escaped(messageOf(error)), true)
      } finally {
        open -= 1
      }
    })
  }
  return server
}

export interface Served {
  /** Resolves when the client has closed the connection. */
  readonly left: Promise<void>
  close(): Promise<void>
}

/** JSON-RPC: the message could not be read, so the id of its request is not known. */
const TOO_LONG = JSON.stringify({
  jsonrpc: '2.0',
  id: null,
  error: { code: -32_700, message: `A message has at most ${MOST_MESSAGE} bytes; this one was left out.` },
})

export const serveTools = (desk: Desk): Served => {
  const over = new AbortController()
  const left = Promise.withResolvers<void>()
  const input = process.stdin.pipe(boundedLines(() => process.stdout.write(`${TOO_LONG}\n`)))
  input.once('end', () => left.resolve())
  // A client that is gone reads no answer.
  process.stdout.on('error', () => left.resolve())
  const transport = new StdioServerTransport(input, process.stdout, { maxBufferSize: 2 * MOST_MESSAGE })
  const handle = serveStdio(() => serverOf(desk, over.signal), {
    transport,
    onerror: (error) => say(`A message of the client could not be used: ${messageOf(error)}`),
  })
  return {
    left: left.promise,
    async close() {
      over.abort()
      process.stdin.unpipe(input)
      process.stdin.pause()
      await handle.close()
    },
  }
}
