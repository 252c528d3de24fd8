import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll } from 'vitest'
import type { EventLog, OpenLogOptions } from '../../../src/streams/log.ts'
import { openLog } from '../../../src/streams/open.ts'
import { freshPrefix } from '../../kafka/broker.ts'

/** One log's place: a file, or a prefix of topics and groups that nobody else uses. */
export interface Store {
  readonly url: string
  /** Another instance at the same store. */
  open(options?: OpenLogOptions): Promise<EventLog>
  /** Checks the store itself after a crash; throws what is wrong. */
  inspect?(): void
}

export interface Harness {
  newStore(): Promise<Store>
  /** Restarts whatever keeps the stores. All logs are closed before. */
  restart(): Promise<void>
  stop(): Promise<void>
  /** The shortest session time-out that the log allows, ms. */
  readonly sessionTimeout: number
  /** How often a committing process is killed. */
  readonly kills: number
}

/** A prefix of its own on a broker. */
export const storeOn = async (brokers: string): Promise<Store> => {
  const url = `kafka://${brokers}/${freshPrefix()}`
  return { url, open: (options) => openLog(url, options) }
}

/** From child.ts. */
export interface Message {
  readonly committed?: number
  readonly assignment?: { readonly generation: number; readonly partitions: readonly number[] }
  readonly done?: object
  readonly code?: string
}

/** What the claims work with; all that it opened or started ends with the test. */
export interface Fixture {
  harness(): Harness
  openAt(store: Store, options?: OpenLogOptions): Promise<EventLog>
  /** A new store with the topics `input`, `a` and `b`. */
  fresh(partitions?: number): Promise<{
    readonly store: Store
    readonly log: EventLog
    readonly topic: (last: string) => string
    readonly input: string
    readonly a: string
    readonly b: string
    readonly group: string
  }>
  startChild(
    role: 'committer' | 'member',
    store: Store,
    group: string,
    prefix: string,
  ): { readonly child: ChildProcess; readonly messages: readonly Message[]; readonly exited: Promise<void> }
}

/** `max.message.bytes` of the topics of `fresh`. */
export const LIMIT = 1_048_576
export const TIMEOUT = 120_000

/** Inside a `describe`. */
export const setUp = (start: () => Promise<Harness>): Fixture => {
  let harness: Harness
  const logs: EventLog[] = []
  const children: ChildProcess[] = []

  beforeAll(async () => {
    harness = await start()
  }, TIMEOUT)
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
    await Promise.all(logs.splice(0).map((log) => log.close()))
  }, TIMEOUT)
  afterAll(() => harness?.stop(), TIMEOUT)

  const openAt = async (store: Store, options?: OpenLogOptions): Promise<EventLog> => {
    const log = await store.open(options)
    logs.push(log)
    return log
  }

  return {
    harness: () => harness,
    openAt,
    fresh: async (partitions = 1) => {
      const store = await harness.newStore()
      const log = await openAt(store)
      const topic = (last: string): string => `${log.prefix}.${last}`
      const config = { 'max.message.bytes': String(LIMIT) }
      await log.createTopics(['in', 'a', 'b'].map((last) => ({ name: topic(last), partitions, config })))
      return { store, log, topic, input: topic('in'), a: topic('a'), b: topic('b'), group: `${log.prefix}-group` }
    },
    startChild: (role, store, group, prefix) => {
      const script = fileURLToPath(new URL('../child.ts', import.meta.url))
      const child = fork(script, [role, store.url, group, prefix, String(harness.sessionTimeout)], { execArgv: [] })
      children.push(child)
      const messages: Message[] = []
      child.on('message', (message) => messages.push(message as Message))
      return { child, messages, exited: new Promise((resolve) => child.on('exit', () => resolve())) }
    },
  }
}
