/**
 * A hub on this machine that speaks the protocol of the public one: lists of files, redirects of large ones, ETags,
 * ranges. And its faults.
 */
import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export const COMMIT = 'c0ffee'.repeat(6) + 'c0de'

export interface Asked {
  readonly url: string
  readonly range: string | undefined
  readonly authorization: string | undefined
  /** Which of the two machines: the hub itself, or where it redirects to. */
  readonly at: 'hub' | 'store'
}

/** What goes wrong, looked up before a request is served; true: it was answered. */
export type Fault = (asked: Asked, response: ServerResponse) => boolean

export interface TestHub {
  readonly url: string
  readonly asked: Asked[]
  /** The content of each file; what is larger than 100 bytes is large (LFS). */
  readonly files: Map<string, Buffer>
  fault: Fault
  close(): Promise<void>
}

const LARGE = 100

const etagOf = (content: Buffer): string =>
  content.length > LARGE
    ? createHash('sha256').update(content).digest('hex')
    : createHash('sha1').update(`blob ${content.length}\0`).update(content).digest('hex')

const send = (request: IncomingMessage, response: ServerResponse, content: Buffer, headers: object): void => {
  const range = /^bytes=(\d+)-$/.exec(request.headers.range ?? '')
  const from = range === null ? 0 : Number(range[1])
  if (from > content.length) {
    response.writeHead(416).end()
    return
  }
  response.writeHead(range === null ? 200 : 206, {
    ...headers,
    'content-length': content.length - from,
    ...(range !== null && { 'content-range': `bytes ${from}-${content.length - 1}/${content.length}` }),
  })
  response.end(content.subarray(from))
}

const listening = (server: Server): Promise<string> =>
  new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve(`http://127.0.0.1:${(server.address() as AddressInfo).port}`))
  })

export const startHub = async (model: string, content: Readonly<Record<string, string | Buffer>>): Promise<TestHub> => {
  const files = new Map(Object.entries(content).map(([name, value]) => [name, Buffer.from(value)]))
  const asked: Asked[] = []
  const noted = (request: IncomingMessage, at: Asked['at'], response: ServerResponse): boolean => {
    const { range, authorization } = request.headers
    const note = { url: request.url!, range, authorization, at }
    asked.push(note)
    return hub.fault(note, response)
  }
  const store = createServer((request, response) => {
    if (noted(request, 'store', response)) return
    const found = files.get(decodeURIComponent(request.url!.slice(1)))
    // A store has ETags of its own, which mean nothing to whoever follows.
    if (found) send(request, response, found, { etag: '"d41d8cd98f00b204e9800998ecf8427e-1"' })
    else response.writeHead(404).end()
  })
  const storeUrl = await listening(store)
  const server = createServer((request, response) => {
    if (noted(request, 'hub', response)) return
    const { url } = request
    if (url!.startsWith(`/api/models/${model}/revision/`)) {
      const siblings = [...files.keys()].map((rfilename) => ({ rfilename }))
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ sha: COMMIT, siblings }))
      return
    }
    const name = decodeURIComponent(url!.replace(`/${model}/resolve/${COMMIT}/`, ''))
    const found = files.get(name)
    if (found === undefined) {
      response.writeHead(404, { 'x-error-code': 'EntryNotFound' }).end()
      return
    }
    const etag = `"${etagOf(found)}"`
    const common = { 'x-repo-commit': COMMIT }
    if (found.length <= LARGE) {
      send(request, response, found, { ...common, etag })
      return
    }
    const linked = { 'x-linked-etag': etag, 'x-linked-size': found.length, etag: '"not of the file"' }
    response.writeHead(302, { ...common, ...linked, location: `${storeUrl}/${encodeURIComponent(name)}` }).end('Found')
  })
  const url = await listening(server)
  const closed = (one: Server): Promise<void> =>
    new Promise((resolve) => {
      one.close(() => resolve())
      one.closeAllConnections()
    })
  const hub: TestHub = {
    ...{ url, asked, files, fault: () => false },
    async close() {
      await Promise.all([closed(server), closed(store)])
    },
  }
  return hub
}
