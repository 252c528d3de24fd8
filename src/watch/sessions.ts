/**
 * Records of several sources, each read by a session of its own: one learns a host, and what is new to it is ranked
 * among its lines alone.
 */
import type { WorkItem, WorkResult } from '../engine/work.ts'
import type { Tokenizer } from '../models/tokenizer/types.ts'
import { createJudge, type Novelty, type NoveltyJudge } from '../novelty/judge.ts'
import { textOf } from '../text.ts'
import { type Costs, createCosts } from './costs.ts'
import type { Field } from './field.ts'
import { createNearest, type Nearest } from './nearest.ts'

/**
 * Sessions that are remembered; the one that was silent for longest is forgotten, and begins anew where it comes again.
 */
const MOST_SESSIONS = 512
/** Lines of a session that are kept to find the nearest. */
const KEPT_LINES = 1000

type Context = WorkItem['context'] & { close(): void }

/** What a session has when it begins. */
export interface Beginning {
  readonly context: Context
  readonly judge: NoveltyJudge
}

/** A model, or a store of its contexts. */
export interface Contexts {
  createContext(): Context
  submit(item: WorkItem): Promise<WorkResult>
}

/** A record of the stream, read. */
export interface Read {
  readonly session: string
  readonly line: Uint8Array
  /** Its number in the stream, from 1. */
  readonly number: number
  readonly bits: Float64Array
  readonly novelty: Novelty
  /**
   * The earlier line of the session that is most like this one; null: none is. To be asked before the next record is
   * read.
   */
  nearest(): { readonly line: number; readonly text: string } | null
}

interface Session {
  readonly context: Context
  readonly costs: Costs
  readonly judge: NoveltyJudge
  readonly lines: Nearest | null
}

export interface SessionOptions {
  /** The field that names the session; default: all records are of one. */
  readonly field?: Field | undefined
  /** What each session begins with; default: nothing. */
  readonly beginning?: (() => Promise<Beginning>) | undefined
  /** Whether `nearest` will be asked. */
  readonly explains?: boolean
  readonly most?: number
}

export interface Sessions {
  /** Reads these records, and gives them in their order. */
  read(records: readonly Uint8Array[]): AsyncGenerator<Read>
  /** Sessions that were begun, and those of them that were forgotten. */
  readonly begun: number
  readonly forgotten: number
}

export const createSessions = (
  contexts: Contexts,
  tokenizer: Tokenizer,
  {
    field,
    beginning = async () => ({ context: contexts.createContext(), judge: createJudge() }),
    explains = false,
    most = MOST_SESSIONS,
  }: SessionOptions = {},
): Sessions => {
  /** The one used last stands last. */
  const sessions = new Map<string, Session>()
  let [number, begun] = [0, 0]

  const begin = async (id: string): Promise<void> => {
    const { context, judge } = await beginning()
    begun += 1
    const lines = explains ? createNearest(KEPT_LINES) : null
    sessions.set(id, { context, costs: createCosts(contexts, context, tokenizer), judge, lines })
  }
  const use = (id: string): Session => {
    const session = sessions.get(id)!
    sessions.delete(id)
    sessions.set(id, session)
    return session
  }
  const forgetOldest = (): void => {
    const [id, { context }] = sessions.entries().next().value!
    sessions.delete(id)
    context.close()
  }

  /** Records of at most so many sessions as are remembered. */
  async function* readSome(records: readonly (readonly [id: string, line: Uint8Array])[]): AsyncGenerator<Read> {
    const bySession = Map.groupBy(records.keys(), (at) => records[at]![0])
    for (const id of bySession.keys()) if (!sessions.has(id)) await begin(id)
    const bits = new Array<Float64Array>(records.length)
    const reading = [...bySession].map(async ([id, places]) => {
      const own = await use(id).costs.read(places.map((at) => records[at]![1]))
      for (const [i, at] of places.entries()) bits[at] = own[i]!
    })
    while (sessions.size > most) forgetOldest()
    await Promise.all(reading)
    for (const [at, [session, line]] of records.entries()) {
      const { judge, lines } = sessions.get(session)!
      number += 1
      const novelty = judge.judge(line, bits[at]!, number)
      const text = lines === null ? '' : textOf(line)
      yield { session, line, number, bits: bits[at]!, novelty, nearest: () => lines?.find(text) ?? null }
      lines?.add(number, text)
    }
  }

  return {
    async *read(records) {
      let some: [id: string, line: Uint8Array][] = []
      const ids = new Set<string>()
      for (const line of records) {
        const id = field?.(textOf(line)) ?? ''
        if (ids.size === most && !ids.has(id)) {
          yield* readSome(some)
          some = []
          ids.clear()
        }
        ids.add(id)
        some.push([id, line])
      }
      yield* readSome(some)
    },
    get begun() {
      return begun
    },
    get forgotten() {
      return begun - sessions.size
    },
  }
}
