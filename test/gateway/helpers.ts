/** Gateways and workers in processes of their own, and what their clients do. */
import { createServer } from 'node:net'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { MODEL, type Running, start, temporary } from '../cli/helpers.ts'
import { checkAnswer, checkEvent } from './openapi.ts'

/** A port that was free a moment ago, for a gateway that comes back under the same address. */
export const freePort = (): Promise<number> =>
  new Promise((resolve, reject) => {
    const server = createServer()
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0))
    })
  })

export const logIn = (folder: string, name = 'log.db'): string => `file:${join(folder, name)}`

export interface Serving extends Running {
  readonly url: string
}

/** `continuo serve` on a log, listening. */
export const serving = async (log: string, ...more: readonly string[]): Promise<Serving> => {
  const port = more.includes('--port') ? [] : ['--port', '0']
  const model = more.includes('--model') ? [] : ['--model', MODEL]
  const running = start(['serve', '--log', log, ...model, ...port, ...more])
  const [, url] = await running.saw(/ at (https?:\/\/\S+?)[,.](?: |\n)/)
  return { ...running, url: url! }
}

/** One process that is gateway and worker; it ends with the test or the file that `finished` speaks of. */
export const servingAll = async (
  finished: (end: () => Promise<unknown>) => void,
  ...more: readonly string[]
): Promise<Serving> => {
  const gateway = await serving(
    logIn(temporary()),
    '--with-worker',
    '--threads',
    '1',
    '--commit-interval',
    '5',
    ...more,
  )
  finished(() => {
    gateway.child.kill('SIGTERM')
    return gateway.done
  })
  return gateway
}

/** Options of a request of OpenAI's client to a session that lasts. */
export const inSession = (id: string) => ({ headers: { 'x-session': encodeURIComponent(id) } })

export const endWithTest = (...all: readonly Running[]): void => {
  onTestFinished(async () => {
    for (const { child } of all) child.kill('SIGKILL')
    await Promise.all(all.map(({ done }) => done))
  })
}

export interface Told<T = unknown> {
  readonly status: number
  readonly headers: Headers
  readonly body: T
}

/** A JSON request; a body makes it a POST. Its answer is one that the OpenAPI document of the gateway has. */
export const ask = async <T = Record<string, unknown>>(
  url: string,
  body?: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<Told<T>> => {
  const sent =
    body === undefined ? {} : { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body) }
  const type = body === undefined ? {} : { 'content-type': 'application/json' }
  const response = await fetch(url, { ...sent, headers: { ...type, ...headers } })
  const { status } = response
  const told = (await response.json()) as T
  checkAnswer({ method: body === undefined ? 'GET' : 'POST', url, body }, status, told)
  return { status, headers: response.headers, body: told }
}

export interface Refused {
  readonly error: {
    readonly message: string
    readonly type: string
    readonly param: string | null
    readonly code: string | null
  }
}

export interface Event {
  readonly event: string
  readonly id: string | null
  readonly data: string
}

/**
 * Server-sent events as they come, by a reader of our own: it knows nothing of the gateway but the standard. Each is
 * one that the OpenAPI document has for its route.
 */
export async function* eventsOf(response: Response): AsyncGenerator<Event> {
  let text = ''
  let fields: { event?: string; id?: string; data: string[] } = { data: [] }
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
    text += piece
    const lines = text.split('\n')
    text = lines.pop()!
    for (const line of lines) {
      if (line === '') {
        if (fields.data.length > 0) {
          const data = fields.data.join('\n')
          checkEvent(response.url, data)
          yield { event: fields.event ?? 'message', id: fields.id ?? null, data }
        }
        fields = { data: [] }
        continue
      }
      const [, name = '', value = ''] = /^([^:]*)(?:: ?(.*))?$/.exec(line) ?? []
      if (name === 'event') fields.event = value
      if (name === 'id') fields.id = value
      if (name === 'data') fields.data.push(value)
    }
  }
}

/** The first `count` messages of a stream, which is left then. */
export const messages = async (
  url: string,
  count: number,
  headers: Readonly<Record<string, string>> = {},
): Promise<Event[]> => {
  const leaving = new AbortController()
  const found: Event[] = []
  const response = await fetch(url, { headers, signal: leaving.signal })
  if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`)
  for await (const event of eventsOf(response)) {
    if (event.event !== 'message') continue
    found.push(event)
    if (found.length === count) break
  }
  leaving.abort()
  return found
}
