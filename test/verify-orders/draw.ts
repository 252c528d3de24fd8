/** Draws an order by a seed: all kinds of events of the input, in any order, also where they are refused. */
import { FAILPOINTS, type Failpoint } from '../../src/failpoint.ts'
import { type ChunkInput, type GrammarInput, MAX_RUN } from '../../topics/chunks.ts'
import { random } from '../crash/scenario.ts'
import { type Abilities, MODELS, OFTEN } from './models.ts'
import type { Deed, End, Fed, Order, Settings } from './order.ts'

/** Sentences, half a character, and characters of several bytes. */
const TEXTS = ['The harbour froze. ', 'No ship came in; ', 'é€😀 ', 'x\ud83d', '\n', 'And then? ', '0123456789 ']
const GRAMMARS: readonly GrammarInput[] = [
  { type: 'regex', pattern: '([a-z]{1,4}[ ,])*' },
  { type: 'json' },
  { type: 'gbnf', text: 'root ::= ("(" root ")")* "."' },
]
/** What is no event, or none that a session takes. */
const BAD = ['{"type":"text"', '{"type":"shout"}', '{"type":"tokens","tokens":[999]}', '', '{"type":"open","from":1}']

const POINTS: readonly Failpoint[] = FAILPOINTS.filter((name) => name !== 'adapt.begun')

export interface DrawOptions {
  /** Default: any, small ones more often. */
  readonly model?: string
  /** Whether workers are killed, each in a process of its own. */
  readonly kills: boolean
  /** On Kafka no single record is erased, and the last worker resolves what a killed one left open. */
  readonly log: 'embedded' | 'kafka'
}

interface Dice {
  /** Below 1. */
  readonly next: () => number
  readonly below: (bound: number) => number
  readonly chance: (share: number) => boolean
  readonly pick: <T>(items: readonly T[]) => T
}

const diceOf = (seed: number): Dice => {
  const next = random(seed)
  const below = (bound: number): number => Math.floor(next() * bound)
  return { next, below, chance: (share) => next() < share, pick: (items) => items[below(items.length)]! }
}

const textOf = ({ pick, below }: Dice, tokens: number): string => {
  let text = ''
  for (const length = 1 + below(tokens); text.length < length; ) text += pick(TEXTS)
  return text
}

const requestOf = ({ below, chance, pick }: Dice, requestId: string, tokens: number): ChunkInput => ({
  type: 'generate',
  requestId,
  maxTokens: 1 + below(tokens),
  temperature: pick([0, 0.8, 1, 3]),
  seed: below(9),
  ...(chance(0.3) && { run: 1 + below(MAX_RUN) }),
  ...(chance(0.2) && { topK: 1 + below(40), topP: 0.9, minP: 0.01 }),
  ...(chance(0.2) && { repetitionPenalty: 1.3, presencePenalty: 0.3, frequencyPenalty: 0.2, penaltyLast: below(300) }),
  ...(chance(0.1) && { topLogprobs: 2, logitBias: { 32: 1.5 } }),
  ...(chance(0.15) && { stop: [pick(['e', ' t', '\u00e9'])] }),
  ...(chance(0.1) && { stopTokens: [101, 32], ignoreEnd: chance(0.5) }),
  ...(chance(0.1) && { grammar: pick(GRAMMARS) }),
})

/** The sessions as somebody believes them to be who only sends events. */
interface Believed {
  /** Names that were used, and may be open, closed or deleted by now. */
  readonly names: string[]
  readonly open: Set<string>
  readonly deleted: string[]
  readonly requests: (readonly [session: string, requestId: string])[]
}

const settingsOf = ({ chance, next }: Dice) => {
  const wish = next()
  return {
    ...(wish < 0.3 && { surprisal: true }),
    ...(wish >= 0.15 && wish < 0.55 && { novelty: true }),
    ...(chance(0.3) && { memory: true }),
    ...(chance(0.3) && { perspectives: true }),
    ...(chance(0.2) && { embedding: true }),
  }
}

const cancelOf = (session: string, requestId: string): Fed => [session, { type: 'cancel', requestId }]

/** The next event or two. */
const step = (dice: Dice, believed: Believed, { remembers, adapts }: Abilities, tokens: number): readonly Fed[] => {
  const { below, chance, pick, next } = dice
  const { names, open, deleted, requests } = believed
  const fresh = (): string => {
    // Half of the time a name that was used: of a session that is closed, or was deleted.
    const free = names.filter((name) => !open.has(name))
    const name = free.length > 0 && chance(0.5) ? pick(free) : `s${names.length}`
    if (!names.includes(name)) names.push(name)
    open.add(name)
    return name
  }
  /** Mostly one that is open. */
  const any = (): string => (open.size > 0 && chance(0.95) ? pick([...open]) : pick([...names, 'nobody']))
  const text = (session: string): Fed => [session, { type: 'text', text: textOf(dice, tokens) }]
  const request = (session: string): Fed => {
    const requestId = `r${requests.length}`
    requests.push([session, requestId])
    return [session, requestOf(dice, requestId, tokens)]
  }
  const kind = next()
  if (open.size === 0 || kind < 0.1) return [text(fresh())]
  if (kind < 0.26) {
    const parent = any()
    const child = fresh()
    const from = { session: parent, ...(chance(0.1) && { pulse: below(40) }) }
    const fork: Fed = [child, { type: 'open', from, ...settingsOf(dice) }]
    return chance(0.6) ? [fork, chance(0.5) ? request(child) : text(child)] : [fork]
  }
  if (kind < 0.36) {
    const session = any()
    open.delete(session)
    deleted.push(session)
    return [[session, { type: 'delete' }]]
  }
  if (kind < 0.45) {
    const session = any()
    open.delete(session)
    return [[session, { type: 'close' }]]
  }
  if (kind < 0.57) return [request(any())]
  if (kind < 0.61 && requests.length > 0) {
    const [session, requestId] = pick(requests.slice(-3))
    return [cancelOf(session, requestId)]
  }
  if (kind < 0.67) return [[any(), { type: 'boundary', reset: chance(0.6) }]]
  if (kind < 0.71) return [[any(), { type: 'open', ...settingsOf(dice) }]]
  if (kind < 0.75) return [[any(), { type: 'tokens', tokens: Array.from({ length: below(20) }, () => below(256)) }]]
  if (kind < 0.77) return [[any(), { type: 'text', bytes: Buffer.from([below(256), 0xe2, 0x82]).toString('base64') }]]
  if (kind < 0.84 && (remembers || chance(0.1))) {
    const blocks = Array.from({ length: 1 + below(2) }, (_, at) => at + below(3))
    return [
      [
        any(),
        chance(0.5) ? { type: 'archive' } : { type: 'retrieve', ...(chance(0.5) && { blocks: [...new Set(blocks)] }) },
      ],
    ]
  }
  if (kind < 0.84 && (adapts || chance(0.1))) {
    const session = any()
    // A long one is likely to be ended by the worker, or by a cancel or a deletion that comes next.
    const evaluations = chance(0.3) ? 400 : 1 + below(12)
    const adapt = { type: 'adapt', evaluations, seed: below(9) } as const
    if (chance(0.5)) return [[session, adapt]]
    const requestId = `r${requests.length}`
    requests.push([session, requestId])
    return [[session, { ...adapt, requestId }], ...(chance(0.3) ? [cancelOf(session, requestId)] : [])]
  }
  if (kind < 0.86) return [[any(), pick(BAD)]]
  return [text(any())]
}

const endOf = ({ chance, pick, below }: Dice, kills: boolean): End => {
  if (kills && chance(0.6)) return { killAt: `${pick(POINTS)}@${1 + below(3)}` }
  return chance(0.3) ? { stopAt: 1 + below(4) } : 'idle'
}

const deedsOf = ({ chance, pick }: Dice, { deleted }: Believed, isKafka: boolean): readonly Deed[] => [
  ...(chance(0.4) ? ['gc' as const] : []),
  ...(chance(0.15) ? ['purge' as const] : []),
  ...(chance(0.15) ? ['trim' as const] : []),
  ...(!isKafka && deleted.length > 0 && chance(0.3) ? [{ erase: pick(deleted) }] : []),
]

/** The events as an attempt at something that is done once, often one that was sent before. */
const attempted = ({ pick, below }: Dice, events: readonly Fed[]): readonly Fed[] => {
  const once = { key: pick(['k', 'l', 'm']), attempt: `a${below(3)}` }
  return events.map(([session, given]) =>
    typeof given === 'string' || given.type === 'cancel' || given.type === 'delete'
      ? [session, given]
      : [session, { ...given, once }],
  )
}

export const drawOrder = (seed: number, { model: given, kills, log }: DrawOptions): Order => {
  const dice = diceOf(seed)
  const { chance, pick, below } = dice
  const model = given ?? (chance(0.1) ? pick(['rwkv7', 'recall']) : pick(OFTEN))
  const { tokens, ...abilities } = MODELS[model]!
  const believed: Believed = { names: [], open: new Set(), deleted: [], requests: [] }
  const isKafka = log === 'kafka'
  const count = 1 + below(4)
  const all: Fed[] = []
  for (const length = pick([8, 15, 30, 60]); all.length < length; ) {
    const events = step(dice, believed, abilities, tokens)
    all.push(...(chance(0.15) ? attempted(dice, events) : events))
  }
  const share = Math.ceil(all.length / count)
  const runs = Array.from({ length: count }, (_, at) => {
    const own = all.slice(at * share, (at + 1) * share)
    const lateFrom = chance(0.4) ? below(own.length + 1) : own.length
    const settings: Omit<Settings, 'tight' | 'roomTurn' | 'adaptTime'> = {
      snapshotEvery: pick([1, 8, 64, 4096]),
      commitInterval: pick([0, 5, 50]),
      maxContexts: pick([1, 3, 16]),
      compactFloor: pick([8, 20_000, 1 << 20]),
      sessionShare: pick([1, 64]),
    }
    const isLast = at === count - 1
    return {
      events: own.slice(0, lateFrom),
      late: own.slice(lateFrom),
      settings,
      end: isLast && isKafka ? 'idle' : endOf(dice, kills),
      deeds: deedsOf(dice, believed, isKafka),
    }
  })
  return {
    model,
    partitions: chance(0.15) ? 2 : 1,
    runs: runs.map((run) => ({
      ...run,
      settings: { ...run.settings, tight: chance(0.4), roomTurn: pick([0, 2000]), adaptTime: pick([1, 20, 60_000]) },
    })),
  }
}
