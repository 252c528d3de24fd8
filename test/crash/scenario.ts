/**
 * What the crash suites feed: several sessions on two partitions, long records, generations in progress, boundaries
 * with and without reset, closings and re-openings, deletions, and events that must end as dead letters. The same seed
 * gives the same events.
 */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { RecordIn } from '../../src/streams/log.ts'
import { partitionOfKey } from '../../src/streams/murmur2.ts'
import { type ChunkInput, type GrammarInput, MAX_RUN } from '../../topics/chunks.ts'

const document = readFileSync(fileURLToPath(new URL('../../docs/demo/harbour-log.txt', import.meta.url)), 'utf8')

/** mulberry32: small, seeded, good enough to choose events. */
export const random = (seed: number): (() => number) => {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

const SESSIONS = ['alder', 'birch', 'cedar', 'durmast', 'elm', 'fir']

const encode = (session: string, event: ChunkInput | string, at: number): RecordIn => ({
  key: Buffer.from(session),
  value: Buffer.from(typeof event === 'string' ? event : JSON.stringify(event)),
  headers: [['trace', Buffer.from(`t-${at}`)]],
  timestamp: 1_700_000_000_000 + at,
})

/** They bind what is generated, and can go on as long as it is asked for. */
const GRAMMARS: readonly GrammarInput[] = [
  { type: 'regex', pattern: '([A-Z]?[a-z]+[ ,]|[0-9]{1,3}[.;] )*' },
  {
    type: 'jsonSchema',
    schema: { type: 'array', items: { type: 'object', properties: { said: { type: 'string' }, at: {} } } },
  },
  { type: 'gbnf', text: 'root ::= (said "\\n")*\nsaid ::= "(" ([^()] | said)* ")"' },
]

const generateOf = (
  session: string,
  requestId: string,
  maxTokens: number,
  seed: number,
  stop: string[],
  at: number,
): RecordIn =>
  encode(
    session,
    // Each request has another length of its records.
    {
      type: 'generate',
      requestId,
      maxTokens,
      temperature: 0.9,
      topP: 0.95,
      topK: 40,
      seed,
      stop,
      run: 1 + (seed % MAX_RUN),
      ...(seed % 4 === 1 && { grammar: GRAMMARS[seed % GRAMMARS.length]! }),
      // Where somebody is killed, what penalties count must come again.
      ...(seed % 2 === 0 && { repetitionPenalty: 1.2, presencePenalty: 0.3, frequencyPenalty: 0.2, penaltyLast: 300 }),
      ...(seed % 3 === 0 && { minP: 0.01, topLogprobs: 2, logitBias: { 32: 0.5 } }),
    },
    at,
  )

export interface RoundSize {
  /** Events of a round, of all kinds. */
  readonly events: number
  /** Tokens of the generation that ends it. */
  readonly tail: number
}

/** One list of records a round, without end; each round keeps a worker busy for a fraction of a second. */
export function* rounds(seed: number, { events, tail }: RoundSize): Generator<readonly RecordIn[], never> {
  const next = random(seed)
  const pick = <T>(items: readonly T[]): T => items[Math.floor(next() * items.length)]!
  const text = (length: number): string => {
    const start = Math.floor(next() * (document.length - length))
    return document.slice(start, start + length)
  }
  let at = 0
  let request = 0
  const generate = (session: string, maxTokens: number, stop: string[]): RecordIn => {
    const id = `r${request++}`
    return generateOf(session, id, maxTokens, request, stop, at++)
  }
  for (let round = 0; ; round += 1) {
    const records: RecordIn[] = []
    for (let n = 0; n < events; n += 1) {
      const session = pick(SESSIONS)
      const dice = next()
      if (dice < 0.5)
        records.push(encode(session, { type: 'text', text: text(40 + Math.floor(next() * 400)), id: `c${at}` }, at++))
      else if (dice < 0.6)
        records.push(encode(session, { type: 'tokens', tokens: [...Buffer.from(text(30), 'utf8')] }, at++))
      else if (dice < 0.75) {
        records.push(encode(session, { type: 'text', text: 'The keeper wrote: ' }, at++))
        records.push(generate(session, 8 + Math.floor(next() * 60), next() < 0.3 ? [' the', '.'] : []))
      } else if (dice < 0.83) records.push(encode(session, { type: 'boundary', reset: next() < 0.5 }, at++))
      else if (dice < 0.88)
        records.push(
          encode(session, { type: 'close' }, at++),
          encode(session, { type: 'text', text: 'too late' }, at++),
        )
      else if (dice < 0.92)
        records.push(encode(session, { type: 'open', surprisal: next() < 0.5, novelty: at % 4 > 0 }, at++))
      else if (dice < 0.94) records.push(encode(session, { type: 'delete' }, at++))
      else
        records.push(
          encode(
            session,
            pick([
              '{"type":"text"',
              '{"type":"shout"}',
              '{"type":"tokens","tokens":[999]}',
              // A dead letter of most families.
              '{"type":"adapt","evaluations":21}',
            ]),
            at++,
          ),
        )
    }
    // A generation is always in progress: whoever is killed was, or will be, in the middle of one.
    const session = pick(SESSIONS)
    records.push(encode(session, { type: 'open' }, at++))
    if (round % 9 === 4) records.push(encode(session, { type: 'text', text: text(5000) }, at++))
    records.push(encode(session, { type: 'text', text: 'And then ' }, at++), generate(session, tail, []))
    yield records
  }
}

/**
 * Rounds in which every session asks for one continuation after the other, of 90 tokens at most, half of them in a
 * fresh context: whenever a worker is killed, it generates.
 */
export const continuations = (count: number): readonly (readonly RecordIn[])[] => {
  let at = 0
  return Array.from({ length: count }, (_, round) =>
    Array.from({ length: 5 }, (_, turn) =>
      SESSIONS.flatMap((session, n) => {
        const [begin, seed] = [((round * 5 + turn) * 6 + n) * 20, round * 100 + turn * 10 + n]
        return [
          encode(session, { type: 'boundary', reset: turn % 2 === 0 }, at++),
          encode(session, { type: 'text', text: document.slice(begin % 12_000, (begin % 12_000) + 20) }, at++),
          generateOf(session, `g${seed}`, 40 + ((seed * 7) % 51), seed, [], at++),
        ]
      }),
    ).flat(),
  )
}

export const scenario = (count: number, seed = 7, events = 8): readonly (readonly RecordIn[])[] => {
  const source = rounds(seed, { events, tail: 300 })
  return Array.from({ length: count }, () => source.next().value)
}

/**
 * Rounds in which half of the sessions begin a fresh context and read more than two blocks of 256 tokens, and one
 * generates.
 */
export const turnovers = (count: number): readonly (readonly RecordIn[])[] => {
  let at = 0
  return Array.from({ length: count }, (_, round) => {
    const begun = SESSIONS.filter((_, n) => (n + round) % 2 === 0)
    const records = begun.flatMap((session, n) => {
      const begin = (round * 577 + n * 1301) % (document.length - 560)
      return [
        encode(session, { type: 'boundary', reset: true }, at++),
        encode(session, { type: 'text', text: document.slice(begin, begin + 560) }, at++),
      ]
    })
    const last = begun[round % begun.length]!
    return [...records, generateOf(last, `t${round}`, 120, round, [], at++)]
  })
}

/**
 * Rounds in which every session is forked between two of its events, often while it generates. Each has three children
 * and a grandchild, which are closed and forked anew in turn, so that forks come to new and to closed sessions. Some
 * forks name a session of the other partition.
 */
export const forks = (count: number, partitions: number): readonly (readonly RecordIn[])[] => {
  const homeOf = (id: string): number => partitionOfKey(Buffer.from(id), partitions)
  const childOf = (session: string, n: number, home = homeOf(session)): string => {
    for (let salt = 0; ; salt += 1) if (homeOf(`${session}-${n}-${salt}`) === home) return `${session}-${n}-${salt}`
  }
  let at = 0
  const text = (session: string, length: number): RecordIn => {
    const begin = (at * 97) % 12_000
    return encode(session, { type: 'text', text: document.slice(begin, begin + length), id: `f${at}` }, at++)
  }
  const fork = (session: string, parent: string): readonly RecordIn[] => [
    encode(session, { type: 'close' }, at++),
    encode(session, { type: 'open', surprisal: at % 2 === 0, novelty: at % 4 < 2, from: { session: parent } }, at++),
  ]
  return Array.from({ length: count }, (_, round) =>
    SESSIONS.flatMap((session, n) => {
      const seed = round * 10 + n
      const child = childOf(session, round % 3)
      const grandchild = childOf(session, 3)
      return [
        ...((round + n) % 4 === 0 ? [encode(session, { type: 'boundary', reset: true }, at++)] : []),
        text(session, 30 + (seed % 40)),
        ...((round + n) % 2 === 0 ? [generateOf(session, `p${seed}`, 24, seed, [], at++)] : []),
        ...fork(child, session),
        text(session, 12),
        text(child, 8),
        generateOf(child, `c${seed}`, 20 + n, seed, [], at++),
        ...((round + n) % 3 === 0 ? [...fork(grandchild, child), text(grandchild, 9)] : []),
        ...(n === round % 6 ? fork(childOf(session, 4, (homeOf(session) + 1) % partitions), session) : []),
      ]
    }),
  )
}

/**
 * Rounds of greed, of four kinds: a session is sent many requests, another a long text in many records, a third is
 * forked into sessions that each generate, and sessions of one share all generate, more of them than there are
 * contexts. Between these events others ask for little.
 */
export const greed = (count: number): readonly (readonly RecordIn[])[] => {
  let at = 0
  const text = (session: string, length: number): RecordIn => {
    const begin = (at * 97) % 12_000
    return encode(session, { type: 'text', text: document.slice(begin, begin + length), id: `w${at}` }, at++)
  }
  const shared = ({ headers = [], ...record }: RecordIn): RecordIn => ({
    ...record,
    headers: [...headers, ['continuo-share', Buffer.from('greedy')]],
  })
  return Array.from({ length: count }, (_, round) => {
    const seed = (n: number): number => round * 100 + n
    const greedy = [
      ...Array.from({ length: 6 }, (_, n) => [
        generateOf('requests', `q${seed(n)}`, 20, seed(n), [], at++),
        text('file', 200),
        text('file', 150),
        encode(`fork-${round}-${n}`, { type: 'open', from: { session: 'forked' } }, at++),
        generateOf(`fork-${round}-${n}`, `f${seed(n)}`, 20, seed(n) + 1, [], at++),
        shared(text(`key-${n}`, 20)),
        shared(generateOf(`key-${n}`, `k${seed(n)}`, 40, seed(n) + 2, [], at++)),
      ]),
    ]
    const asks = SESSIONS.map((session, n) => [
      text(session, 16),
      generateOf(session, `a${seed(n)}`, 2, seed(n) + 3, [], at++),
    ])
    const begun = [text('requests', 20), text('forked', 20)]
    const dropped = encode(`fork-${round}-0`, { type: 'delete' }, at++)
    return [...begun, ...greedy.flatMap((each, n) => [...each, ...asks[n]!]), ...(round % 2 === 0 ? [dropped] : [])]
  })
}

/**
 * For an external memory: sessions that read on and on and are told what their memory did. Each round ends in a
 * retrieval whose blocks come at the next beat, so whoever is killed leaves some pending. Some rounds archive what is
 * in the window, bring named blocks back (of a session that has them, or of one that has not), fork a session, or begin
 * it anew.
 */
export const remembering = (count: number): readonly (readonly RecordIn[])[] => {
  let at = 0
  return Array.from({ length: count }, (_, round) =>
    SESSIONS.flatMap((session, n) => {
      const seed = round * 10 + n
      const begin = (round * 1409 + n * 577) % (document.length - 400)
      const event = (of: ChunkInput): RecordIn => encode(session, of, at++)
      return [
        event({ type: 'open', memory: true, surprisal: n % 2 === 0 }),
        ...((round + n) % 7 === 6 ? [event({ type: 'boundary', reset: true })] : []),
        event({ type: 'text', text: document.slice(begin, begin + 150 + 40 * n) }),
        ...((round + n) % 3 === 1 ? [event({ type: 'archive' })] : []),
        ...((round + n) % 2 === 0 ? [event({ type: 'retrieve', blocks: [n, 2 * round + n + 1] })] : []),
        ...((round + n) % 4 === 3 ? [event({ type: 'retrieve' })] : []),
        generateOf(session, `m${seed}`, 20 + 3 * n, seed, [], at++),
        ...(n === round % 6
          ? [
              encode(`${session}-${round}`, { type: 'open', memory: true, from: { session } }, at++),
              encode(`${session}-${round}`, { type: 'text', text: document.slice(begin, begin + 90) }, at++),
            ]
          : []),
        event({ type: 'text', text: 'What was it.' }),
      ]
    }),
  )
}

/**
 * For a model that adapts: sessions that read a little, adapt, and tell what draws find with what was learnt. Some
 * adapt twice at one pulse, or with text held back; some are forked or begin anew behind it. The last event of most
 * rounds is an adaptation that takes longer.
 */
export const adapting = (count: number): readonly (readonly RecordIn[])[] => {
  let at = 0
  return Array.from({ length: count }, (_, round) =>
    SESSIONS.flatMap((session, n) => {
      const seed = round * 10 + n
      const begin = (round * 1409 + n * 577) % (document.length - 200)
      const event = (of: ChunkInput): RecordIn => encode(session, of, at++)
      const adapt = (evaluations: number): RecordIn => event({ type: 'adapt', evaluations, seed: seed + evaluations })
      const half = n % 2 === 0 ? '\ud83d' : ''
      return [
        event({ type: 'open', perspectives: n % 3 !== 2, surprisal: n % 2 === 0 }),
        ...((round + n) % 5 === 4 ? [event({ type: 'boundary', reset: true })] : []),
        event({ type: 'text', text: document.slice(begin, begin + 20 + 15 * n) + half }),
        adapt(9 + 2 * n),
        ...((round + n) % 3 === 0 ? [adapt(1)] : []),
        generateOf(session, `a${seed}`, 20 + 3 * n, seed, [], at++),
        ...(n === round % 6
          ? [
              encode(`${session}-${round}`, { type: 'open', perspectives: true, from: { session } }, at++),
              encode(`${session}-${round}`, { type: 'adapt', evaluations: 17, seed }, at++),
              generateOf(`${session}-${round}`, `f${seed}`, 20, seed, [], at++),
            ]
          : []),
        ...((round + n) % 7 === 6 ? [event({ type: 'close' }), adapt(4)] : []),
        ...((round + n) % 7 !== 6 && n === 5 ? [adapt(60)] : []),
      ]
    }),
  )
}

/** Turnovers that one life reads: fewer, and on a busy machine it is over before enough has died to be worth a move. */
const TURNOVERS = 5

/**
 * The same, more of it at a time, beside sessions that read two blocks once and then rest: what they left is in the way
 * of what dies behind it.
 */
export const residents = (count: number): readonly (readonly RecordIn[])[] => {
  const resting = ['hazel', 'ivy', 'juniper', 'larch'].map((session, n) =>
    encode(session, { type: 'text', text: document.slice(n * 991, n * 991 + 560) }, n),
  )
  const all = turnovers(count * TURNOVERS)
  return Array.from({ length: count }, (_, round) => [
    ...(round === 0 ? resting : []),
    ...all.slice(round * TURNOVERS, (round + 1) * TURNOVERS).flat(),
  ])
}
