/**
 * Counts what clients ask of a Kafka broker: a proxy in front of it that reads the head of each request. Kafka
 * protocol: a request is its length (i32), then api key (i16), version (i16), correlation id (i32) and the client's id
 * (i16 length, bytes).
 */

import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'

export interface Count {
  requests: number
  /** Bytes to the broker, and back. */
  up: number
  down: number
}

export interface CountingProxy {
  readonly port: number
  /** Requests so far of clients whose id begins so, by api key; bytes back are under the key −1. */
  counts(client: string): Map<number, Count>
  stop(): Promise<void>
}

const HEAD = 14

/** Finds the heads of requests in a stream of bytes. */
const requestReader = (found: (client: string, key: number, bytes: number) => void) => {
  /** Bytes of the request in hand that are still to come and say nothing. */
  let skip = 0
  let begun: Buffer = Buffer.alloc(0)
  return (chunk: Buffer): void => {
    let at = 0
    while (at < chunk.length) {
      if (skip > 0) {
        const step = Math.min(skip, chunk.length - at)
        skip -= step
        at += step
        continue
      }
      const had = begun.length
      begun = Buffer.concat([begun, chunk.subarray(at, at + 512)])
      if (begun.length < HEAD) return
      const name = Math.max(0, begun.readInt16BE(12))
      const bytes = 4 + begun.readInt32BE(0)
      if (begun.length < Math.min(bytes, HEAD + name)) {
        at = chunk.length
        continue
      }
      found(begun.toString('utf8', HEAD, HEAD + name), begun.readInt16BE(4), bytes)
      begun = Buffer.alloc(0)
      skip = bytes - had
    }
  }
}

/** `target` is asked for at each connection: the broker may start after the proxy. */
export const startCountingProxy = async (target: () => number): Promise<CountingProxy> => {
  const all = new Map<string, Map<number, Count>>()
  const open = new Set<Socket>()
  const count = (client: string, key: number): Count => {
    const ofClient = all.get(client) ?? new Map<number, Count>()
    all.set(client, ofClient)
    const one = ofClient.get(key) ?? { requests: 0, up: 0, down: 0 }
    ofClient.set(key, one)
    return one
  }
  const server = createServer((client) => {
    const broker = connect(target(), '127.0.0.1')
    let name = ''
    const read = requestReader((id, key, bytes) => {
      name = id
      const one = count(id, key)
      one.requests += 1
      one.up += bytes
    })
    client.on('data', read)
    broker.on('data', (chunk) => {
      count(name, -1).down += chunk.length
    })
    for (const [socket, other] of [
      [client, broker],
      [broker, client],
    ] as const) {
      open.add(socket)
      socket.setNoDelay(true)
      socket.pipe(other)
      socket.on('error', () => other.destroy())
      socket.on('close', () => {
        open.delete(socket)
        other.destroy()
      })
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    counts(client) {
      const sums = new Map<number, Count>()
      for (const [id, ofClient] of all) {
        if (!id.startsWith(client)) continue
        for (const [key, one] of ofClient) {
          const sum = sums.get(key) ?? { requests: 0, up: 0, down: 0 }
          sums.set(key, { requests: sum.requests + one.requests, up: sum.up + one.up, down: sum.down + one.down })
        }
      }
      return sums
    },
    async stop() {
      server.close()
      for (const socket of open) socket.destroy()
    },
  }
}
