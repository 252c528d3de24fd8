// @ts-check
/**
 * Requests to the gateway, with the key where it asks for one. EventSource cannot send a key, so streams are read by
 * fetch.
 */
import { byId, setText } from './dom.js'

const KEY = 'continuo-key'
/** Before a stream that broke is asked for again, ms: from the first pause to the longest. */
const PAUSES = [250, 500, 1000, 2000]

/** @type {Promise<void> | null} */
let asked = null

/** Asks for a key, once for all requests that wait for it. @param {boolean} wrong */
const askForKey = (wrong) => {
  asked ??= new Promise((resolve) => {
    const dialog = /** @type {HTMLDialogElement} */ (byId('key'))
    const value = /** @type {HTMLInputElement} */ (byId('key-value'))
    setText(byId('key-wrong'), wrong ? 'This key is not known here.' : '')
    dialog.addEventListener(
      'close',
      () => {
        sessionStorage.setItem(KEY, value.value.trim())
        value.value = ''
        asked = null
        resolve()
      },
      { once: true },
    )
    dialog.showModal()
  })
  return asked
}

/** What the gateway said where it did not do what was asked. */
export class Refused extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

/**
 * An answer with status 2xx; where a key is asked for, after it was given. Throws Refused with the gateway's sentence.
 * @param {string} path
 * @param {RequestInit} [init]
 * @returns {Promise<Response>}
 */
const answered = async (path, init = {}) => {
  for (;;) {
    const key = sessionStorage.getItem(KEY)
    const headers = { ...init.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) }
    const response = await fetch(path, { ...init, headers })
    if (response.ok) return response
    if (response.status === 401) {
      await response.body?.cancel()
      await askForKey(key !== null && key !== '')
      continue
    }
    const said = await response.json().catch(() => null)
    throw new Refused(response.status, said?.error?.message ?? `The gateway answered ${response.status}.`)
  }
}

/** @param {string} path */
export const get = async (path) => (await answered(path)).json()

/** @param {string} path @param {unknown} [body] */
export const post = async (path, body = {}) =>
  (
    await answered(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
  ).json()

/** @param {string} session */
export const pathOf = (session) => `/v1/sessions/${encodeURIComponent(session)}`

/**
 * Server-sent events of one response.
 * @param {Response} response
 * @returns {AsyncGenerator<{ event: string, data: string }>}
 */
async function* eventsOf(response) {
  const reader = /** @type {ReadableStream<BufferSource>} */ (response.body)
    .pipeThrough(new TextDecoderStream())
    .getReader()
  let text = ''
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    text += value
    const blocks = text.split('\n\n')
    text = /** @type {string} */ (blocks.pop())
    for (const block of blocks) {
      let event = 'message'
      const data = []
      for (const line of block.split('\n')) {
        if (line.startsWith('event: ')) event = line.slice(7)
        if (line.startsWith('data: ')) data.push(line.slice(6))
      }
      if (data.length > 0) yield { event, data: data.join('\n') }
    }
  }
}

/**
 * Follows a stream until the signal fires, and asks again when it breaks.
 * @param {string} path
 * @param {{ event: (name: string, data: any) => void, began?: () => void, broke?: (why: string) => void }} taker
 *   `began`: an answer begins, the first one or another; `broke`: it is asked for again soon.
 * @param {AbortSignal} signal
 */
export const follow = async (path, { event: take, began, broke }, signal) => {
  for (let tries = 0; !signal.aborted; tries += 1) {
    try {
      const response = await answered(path, { signal })
      began?.()
      for await (const { event, data } of eventsOf(response)) {
        tries = 0
        take(event, JSON.parse(data))
      }
      throw new Error('The gateway ended the stream.')
    } catch (error) {
      if (signal.aborted) return
      broke?.(error instanceof Refused ? error.message : 'The gateway does not answer.')
    }
    const pause = PAUSES[Math.min(tries, PAUSES.length - 1)]
    await new Promise((resolve) => setTimeout(resolve, pause))
  }
}
