/**
 * A client that may be killed anywhere: `node reader.ts URL FILE`. It follows a stream with the EventSource of the npm
 * package, and appends each event with its id to the file, a line in one write. A new process goes on behind the last
 * whole line.
 */
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { EventSource } from 'eventsource'

const [url, file] = process.argv.slice(2) as [string, string]
const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : []
const last = lines.at(-2)
const lastId = last === undefined ? null : (JSON.parse(last) as { id: string }).id

/** What a page cannot do and a program can: the first request of a new process says where the last one was. */
const source = new EventSource(lastId === null ? `${url}?from=beginning` : url, {
  fetch: (input, { headers, ...init }) =>
    fetch(input, { ...init, headers: { ...(lastId !== null && { 'Last-Event-ID': lastId }), ...headers } }),
})
source.addEventListener('message', ({ data, lastEventId }) => {
  appendFileSync(file, `${JSON.stringify({ id: lastEventId, run: JSON.parse(data as string) as unknown })}\n`)
})
// Its timer of reconnection keeps no process alive.
setInterval(() => undefined, 1 << 30)
