/**
 * Requests to a hub (the HTTP interface of Hugging Face's): redirects followed by hand, refusals as sentences, waits
 * where asked.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { ContinuoError, messageOf } from '../errors.ts'

export interface Hub {
  /** http: or https:, without a slash at the end. */
  readonly url: string
  /** Sent as a bearer token, to this hub alone. */
  readonly token?: string | undefined
  readonly signal?: AbortSignal | undefined
  /** Milliseconds before the first retry; doubled each time. Default 500. */
  readonly pause?: number | undefined
  /** Milliseconds without a byte after which a connection counts as broken. Default 60,000. */
  readonly patience?: number | undefined
}

const MOST_REDIRECTS = 8
/** Tries in a row that brought nothing new. */
const MOST_TRIES = 5
/** Seconds that a hub may ask us to wait (Retry-After). */
const MOST_WAIT = 120

/** A fault of the connection or of the hub that may pass. */
export class Passing extends Error {
  readonly wait: number | undefined
  constructor(message: string, wait?: number) {
    super(message)
    this.wait = wait
  }
}

const refusal = (status: number, what: string, token: boolean): ContinuoError => {
  const refused = (code: 'INVALID' | 'DENIED', why: string): ContinuoError => new ContinuoError(code, `${what}: ${why}`)
  const key = token
    ? 'the token in HF_TOKEN does not open it'
    : 'it needs a token; set HF_TOKEN to one that may read it'
  // A hub says 401 of what is not there, too, unless one has shown a token.
  if (status === 401)
    return refused('DENIED', `the hub refused (401). Either there is no such model, or ${key}. Check the name first.`)
  if (status === 403)
    return refused(
      'DENIED',
      `the hub refused (403): its licence has to be accepted on the page of the model first, or ${key}.`,
    )
  if (status === 404) return refused('INVALID', 'the hub has no such model, revision or file (404). Check the name.')
  return refused('INVALID', `the hub answered ${status}, expected 200. Check --hub.`)
}

export interface Answer {
  /** Headers of the hub's own answer, before any redirect. */
  readonly first: Headers
  readonly response: Response
  /** To be called whenever bytes came: the connection lives. */
  readonly alive: () => void
  /** To be called at the end. */
  readonly done: () => void
}

/** One GET. Throws Passing for what may pass, INVALID or DENIED for what does not. */
export const get = async (hub: Hub, path: string, headers: Readonly<Record<string, string>> = {}): Promise<Answer> => {
  const controller = new AbortController()
  const patience = hub.patience ?? 60_000
  let timer: NodeJS.Timeout | undefined
  const alive = (): void => {
    clearTimeout(timer)
    timer = setTimeout(() => controller.abort(new Error(`nothing came for ${patience / 1000} s`)), patience)
  }
  const stop = (): void => controller.abort(hub.signal?.reason)
  const done = (): void => {
    clearTimeout(timer)
    hub.signal?.removeEventListener('abort', stop)
  }
  hub.signal?.addEventListener('abort', stop)
  const own = new URL(hub.url).origin
  let url = new URL(`${hub.url}${path}`)
  let first: Headers | null = null
  try {
    hub.signal?.throwIfAborted()
    for (let hops = 0; ; hops += 1) {
      alive()
      const authorization =
        hub.token !== undefined && url.origin === own ? { authorization: `Bearer ${hub.token}` } : {}
      // Encoded bytes would have another length than the file.
      const sent = { 'accept-encoding': 'identity', 'user-agent': 'continuo', ...headers, ...authorization }
      const response = await fetch(url, { headers: sent, redirect: 'manual', signal: controller.signal })
      first ??= response.headers
      const { status } = response
      if (status === 200 || status === 206) return { first, response, alive, done }
      await response.body?.cancel()
      const location = response.headers.get('location')
      if (status >= 300 && status < 400 && location !== null) {
        if (hops === MOST_REDIRECTS)
          throw new ContinuoError('INVALID', `${hub.url}${path}: more than ${MOST_REDIRECTS} redirects. Check --hub.`)
        url = new URL(location, url)
        if (!/^https?:$/.test(url.protocol))
          throw new ContinuoError(
            'INVALID',
            `${hub.url}${path}: a redirect to ${url.protocol}, expected http: or https:.`,
          )
        continue
      }
      if (status === 416 || status === 429 || status >= 500) {
        const asked = Number(response.headers.get('retry-after') ?? Number.NaN)
        throw new Passing(`the hub answered ${status}`, Number.isFinite(asked) ? Math.min(asked, MOST_WAIT) : undefined)
      }
      throw refusal(status, `${hub.url}${path}`, hub.token !== undefined)
    }
  } catch (error) {
    done()
    if (error instanceof ContinuoError || error instanceof Passing) throw error
    hub.signal?.throwIfAborted()
    throw passing(error)
  }
}

/** What fetch threw, with the cause that it hides. */
export const passing = (error: unknown): Passing => {
  const cause = error instanceof Error ? error.cause : undefined
  return new Passing(cause === undefined ? messageOf(error) : `${messageOf(error)} (${messageOf(cause)})`)
}

/**
 * Calls `attempt` until it succeeds. After MOST_TRIES faults in a row without progress it throws UNAVAILABLE.
 * `progress` says how far the work has come.
 */
export const persist = async <T>(
  hub: Hub,
  what: string,
  progress: () => number,
  attempt: () => Promise<T>,
): Promise<T> => {
  let tries = 0
  let best = progress()
  for (;;) {
    try {
      return await attempt()
    } catch (error) {
      if (!(error instanceof Passing)) throw error
      const now = progress()
      tries = now > best ? 1 : tries + 1
      best = Math.max(best, now)
      if (tries >= MOST_TRIES)
        throw new ContinuoError(
          'UNAVAILABLE',
          `${what}: ${error.message}, ${tries} times in a row. The same command goes on where this one stopped.`,
          { cause: error },
        )
      const wait = error.wait === undefined ? (hub.pause ?? 500) * 2 ** (tries - 1) : 1000 * error.wait
      await pause(wait, undefined, { ...(hub.signal && { signal: hub.signal }) }).catch(() =>
        hub.signal?.throwIfAborted(),
      )
    }
  }
}

/** The JSON at a path, of at most `most` bytes. */
export const getJson = (hub: Hub, path: string, most: number): Promise<unknown> =>
  persist(
    hub,
    `${hub.url}${path}`,
    () => 0,
    async () => {
      const { response, alive, done } = await get(hub, path)
      try {
        const pieces: Uint8Array[] = []
        let bytes = 0
        for await (const piece of response.body ?? []) {
          alive()
          bytes += (piece as Uint8Array).length
          if (bytes > most)
            throw new ContinuoError('INVALID', `${hub.url}${path}: more than ${most} bytes. Check --hub.`)
          pieces.push(piece as Uint8Array)
        }
        return JSON.parse(Buffer.concat(pieces).toString()) as unknown
      } catch (error) {
        if (error instanceof SyntaxError)
          throw new ContinuoError('INVALID', `${hub.url}${path}: no JSON (${error.message}). Check --hub.`)
        if (error instanceof ContinuoError) throw error
        hub.signal?.throwIfAborted()
        throw passing(error)
      } finally {
        done()
      }
    },
  )
