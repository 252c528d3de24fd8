/**
 * Requests of the process that holds the gateway, without a connection: they pass every check, bound and refusal that a
 * client's requests pass.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { FastifyInstance } from 'fastify'

export interface InnerRequest {
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly path: string
  readonly body?: object
  readonly headers?: Readonly<Record<string, string>>
  /** Its client goes away. */
  readonly signal: AbortSignal
}

/** Answers as over a connection; for routes whose answer is JSON. Rejects when the signal fires. */
export type Ask = (request: InnerRequest) => Promise<{ readonly status: number; readonly body: unknown }>

export const innerOf = (app: FastifyInstance): Ask => {
  const inner = new AsyncLocalStorage<AbortSignal>()
  app.addHook('onRequest', async (_request, { raw }) => {
    const signal = inner.getStore()
    if (signal === undefined) return
    const leave = (): void => void raw.destroy()
    if (signal.aborted) leave()
    signal.addEventListener('abort', leave)
    raw.once('close', () => signal.removeEventListener('abort', leave))
  })
  return async ({ method, path, body, headers, signal }) => {
    const given = { method, url: path, headers: { ...headers }, ...(body !== undefined && { payload: body }) }
    // It begins when it is waited for, so that is done within.
    const answered = await inner.run(signal, async () => await app.inject(given))
    return { status: answered.statusCode, body: JSON.parse(answered.payload) as unknown }
  }
}
