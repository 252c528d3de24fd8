/**
 * The wires of a cluster: every address that a broker advertises is a proxy in this process, so that a broker can be
 * cut off without the rights to a firewall.
 *
 * A dark wire behaves like a network that swallows packets: connections are accepted, bytes are taken and never
 * answered, and nobody is told. When it is lit again, what was taken is delivered, as TCP would send it again; so a
 * request can come long after its sender gave up.
 *
 * Between brokers the proxy has to know who calls. All of them call from 127.0.0.1, so it reads the client id in the
 * first request, where Kafka puts the caller's node number: `1`, `broker-1-fetcher-0`, `raft-client-1`.
 */
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'

/** Who may be cut off: clients from a broker, or a broker from the other brokers and their controllers. */
export type Cut = 'clients' | 'brokers'

export interface Wires {
  /** A port that leads to `target` of broker `node`; `internal` ones are called by brokers. */
  lay(node: number, target: number, internal: boolean): Promise<number>
  darken(node: number, cut: Cut): void
  isCut(node: number): boolean
  /** Lights everything. */
  light(): void
  /** Bytes that wait in the dark. */
  readonly held: number
  close(): Promise<void>
}

/** Bytes that one direction of a connection holds; beyond it the sender's own buffers fill. */
const MOST_HELD = 8 << 20
/** Length, key, version, correlation id and length of the client id. */
const PREAMBLE = 14

/** One direction of a connection, from where it is read to where it is written; undefined until it is dialled. */
interface Way {
  readonly source: Socket
  readonly sink: Socket
  readonly held: Buffer[]
  bytes: number
  over: boolean
}

interface Link {
  readonly node: number
  readonly internal: boolean
  readonly near: Socket
  /** The connection to the broker; made once the caller is known and the wire is lit. */
  far: Socket | undefined
  /** Number of the calling broker; null for anybody else, undefined before the first request. */
  from: number | null | undefined
  there: Way | undefined
  back: Way | undefined
  /** What came before there was a connection to the broker. */
  readonly early: Buffer[]
  /** Connects, if it is time, and lets through what waits. */
  advance(): void
}

/** The node number in a first request; undefined while too little of it has come. */
const callerOf = (held: readonly Buffer[]): number | null | undefined => {
  const bytes = Buffer.concat(held)
  if (bytes.length < PREAMBLE) return undefined
  const length = bytes.readInt16BE(PREAMBLE - 2)
  if (length > 0 && bytes.length < PREAMBLE + length) return undefined
  const client = length > 0 ? bytes.toString('utf8', PREAMBLE, PREAMBLE + length) : ''
  const found = /^(?:broker-|raft-client-)?(\d+)(?:$|-)/.exec(client)
  return found === null ? null : Number(found[1])
}

export const layWires = (): Wires => {
  const dark: Record<Cut, Set<number>> = { clients: new Set(), brokers: new Set() }
  const servers: Server[] = []
  const links = new Set<Link>()

  const isDark = ({ node, internal, from }: Link): boolean => {
    if (!internal) return dark.clients.has(node)
    return from !== node && (dark.brokers.has(node) || (typeof from === 'number' && dark.brokers.has(from)))
  }

  const flow = (link: Link, way: Way): void => {
    if (isDark(link)) return
    for (const chunk of way.held.splice(0)) if (!way.sink.destroyed) way.sink.write(chunk)
    way.bytes = 0
    if (way.over) way.sink.end()
    else if (way.sink.writableNeedDrain) way.source.pause()
    else way.source.resume()
  }

  const lead = (link: Link, source: Socket, sink: Socket, held: Buffer[] = []): Way => {
    const way: Way = { source, sink, held, bytes: 0, over: source.readableEnded || source.destroyed }
    source.on('data', (chunk: Buffer) => {
      way.held.push(chunk)
      way.bytes += chunk.length
      if (way.bytes >= MOST_HELD) source.pause()
      flow(link, way)
    })
    const over = (): void => {
      way.over = true
      flow(link, way)
    }
    source.on('end', over).on('close', over)
    sink.on('drain', () => flow(link, way))
    return way
  }

  const dial = (link: Link, target: number): void => {
    const { near } = link
    const far = connect({ port: target, host: '127.0.0.1', allowHalfOpen: true })
    link.far = far
    far.setNoDelay(true)
    far.on('error', () => near.destroy())
    far.on('close', () => near.destroyed && links.delete(link))
    near.removeAllListeners('data')
    link.there = lead(link, near, far, link.early)
    link.back = lead(link, far, near)
  }

  const accept = (node: number, target: number, internal: boolean, near: Socket): void => {
    const link: Link = {
      node,
      internal,
      near,
      far: undefined,
      from: internal ? undefined : null,
      there: undefined,
      back: undefined,
      early: [],
      advance() {
        if (link.from === undefined || isDark(link)) return
        if (link.far === undefined) dial(link, target)
        for (const way of [link.there, link.back]) if (way !== undefined) flow(link, way)
      },
    }
    links.add(link)
    near.setNoDelay(true)
    near.on('error', () => {})
    near.on('close', () => (link.far?.destroyed ?? true) && links.delete(link))
    near.on('data', (chunk: Buffer) => {
      link.early.push(chunk)
      if (link.from === undefined) link.from = callerOf(link.early)
      link.advance()
    })
    link.advance()
  }

  return {
    async lay(node, target, internal) {
      const server = createServer({ allowHalfOpen: true }, (near) => accept(node, target, internal, near))
      servers.push(server)
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject).listen(0, '127.0.0.1', resolve)
      })
      return (server.address() as AddressInfo).port
    },
    darken: (node, cut) => void dark[cut].add(node),
    isCut: (node) => dark.clients.has(node) || dark.brokers.has(node),
    light() {
      for (const nodes of Object.values(dark)) nodes.clear()
      for (const link of [...links]) link.advance()
    },
    get held() {
      let sum = 0
      for (const { there, back } of links) sum += (there?.bytes ?? 0) + (back?.bytes ?? 0)
      return sum
    },
    async close() {
      const closed = servers.map((server) => new Promise((resolve) => server.close(resolve)))
      for (const { near, far } of links) {
        near.destroy()
        far?.destroy()
      }
      await Promise.all(closed)
    },
  }
}
