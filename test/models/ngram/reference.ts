/**
 * An ngram memory written from its description (docs/ngram.md), which shares nothing with the engine: hashes in whole
 * numbers of any length, the mixture in double precision. Slow, and made for texts of some thousand bytes.
 */

import { byteReader, classOf, coarse, mix, subwordReader, type TextReader } from './reader.ts'

/** What an engine's tables must hold after the same tokens. */
export interface NgramReference {
  /**
   * Reads a token; the logits of the token after it, [256] where tokens are bytes. `base` is added to them, by a weight
   * that is learned. `learns`, by default true: the token teaches it.
   */
  readonly step: (token: number, base?: ArrayLike<number>, learns?: boolean) => Float64Array
  /** The table `slots`, as bytes. */
  readonly slots: () => Uint8Array
  /** The table `text`, as bytes. `DRAWN` of it follow from numbers of the mixture. */
  readonly text: () => Uint8Array
}

/**
 * Bytes of the table `text` that depend on which token is the likeliest: the second row of corrections, and the token.
 */
export const DRAWN = { from: 1340, to: 1348 } as const

const CONTEXTS = 22
const RANKS = 3
/** A table `text` has room for so many votes. */
const MOST_VOTES = CONTEXTS * RANKS
/** Classes of counts: own, of others, and whether the token came last. */
const CONFIDENCES = 8 * 8 * 2
/** Which contexts vote, and how many rows there are of scales, of dense logits and of each correction. */
interface Form {
  readonly small: boolean
  readonly contexts: readonly number[]
  readonly scales: readonly number[]
  readonly dense: readonly number[]
  readonly corrections: number
}
const WHOLE: Form = {
  small: false,
  contexts: Array.from({ length: CONTEXTS }, (_, c) => c),
  scales: [20, 256, 64, 256, 256, 128, 80, 256],
  dense: [1, 16, 64, 16],
  corrections: 256,
}
const SMALL: Form = {
  small: true,
  contexts: [0, 1, 5, 8, 9, 13],
  scales: [20, 16, 32, 16, 32, 16, 20, 16],
  dense: [1, 16, 8, 8],
  corrections: 32,
}
const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0)
const big = BigInt

const countClass = (count: number): number =>
  [1, 2, 3, 5, 8, 20, 80].reduce((at, least) => at + (count >= least ? 1 : 0), 0)

interface Slot {
  check: number
  readonly last: { rank: number }
  /** The most frequent first. */
  readonly kept: { token: number; count: number }[]
}
const freeSlot = (): Slot => ({
  check: 0,
  last: { rank: 0 },
  kept: Array.from({ length: RANKS }, () => ({ token: 0, count: 0 })),
})

/** The byte followed: its count rises and the others' fall, or it takes the place of the rarest. */
const count = (slot: Slot, token: number): void => {
  const { kept } = slot
  let rank = kept.findIndex((one) => one.count > 0 && one.token === token)
  if (rank >= 0) {
    kept[rank]!.count = Math.min(kept[rank]!.count + 1, 250)
    for (const [i, one] of kept.entries()) {
      if (i === rank || one.count <= 1) continue
      const half = Math.ceil(one.count / 2)
      one.count = half > 6 ? half + Math.floor(half / 4) : half
    }
  } else {
    const free = kept.findIndex((one) => one.count === 0)
    rank = free < 0 ? RANKS - 1 : free
    kept[rank] = { token, count: 1 }
    for (const one of kept.slice(0, rank)) if (one.count > 2) one.count -= Math.floor(one.count / 4)
  }
  for (; rank > 0 && kept[rank]!.count >= kept[rank - 1]!.count; rank -= 1)
    [kept[rank - 1], kept[rank]] = [kept[rank]!, kept[rank - 1]!]
  slot.last.rank = rank
}

/** Numbers as f32 has them. */
const f32 = Math.fround
const RATES = {
  weight: { step: f32(0.15), floor: 3 },
  scale: { step: f32(0.8), floor: 12 },
  match: { step: f32(0.4), floor: 1 },
  base: { step: f32(0.1), floor: 4 },
} as const
const DECAY = f32(0.99998)
const DENSE_STEPS = [0.1, 0.2, 0.2, 0.1].map(f32)
const CORRECTION_STEP = f32(0.16)
const GAIN = f32(0.2)

/** Numbers that learn by Adagrad whose sums of squares decay. */
const learners = (first: ArrayLike<number>, { step, floor }: { readonly step: number; readonly floor: number }) => {
  const value = Float64Array.from(first)
  const squares = new Float64Array(first.length)
  const by = (i: number, gradient: number): number => {
    squares[i] = squares[i]! * DECAY + gradient * gradient
    return (step * gradient) / Math.sqrt(squares[i]! + floor)
  }
  return { value, by }
}

/** What tokens are. */
interface Kind {
  readonly form: Form
  readonly text: TextReader
  readonly tokens: number
  /** Dense logits have so many columns; a token has this one. */
  readonly columns: number
  readonly columnOf: (token: number) => number
  /** A slot's check of a key. */
  readonly checkOf: (key: bigint) => number
  readonly slotBytes: 8 | 16
  /** Hashed with the last byte, for the second row of corrections. */
  readonly behind: (byte: number, token: number) => bigint
  /** Bytes of the table `text` behind those of a text of bytes. */
  readonly written: (votes: readonly number[]) => Uint8Array
}

/**
 * A part that a memory may be without, to see what it gives (bench/ablations.ts): a context by its number, or what
 * learns.
 */
export type Part = number | 'match' | 'weights' | 'scales' | 'dense' | 'correction'

const bytes = (form: Form, text: TextReader): Kind => ({
  ...{ form, text, tokens: 256, columns: 256, columnOf: (byte) => byte, slotBytes: 8 },
  checkOf: (key) => Number(((key >> 50n) | 4n) & 0xfffcn),
  behind: (byte, token) => big(byte * 256 + token),
  written: () => new Uint8Array(),
})

/** `learned`: what a package begins with, the weights and then 17 rows of logits; null: nothing. */
export const ngramReference = (
  slots: number,
  learned: ArrayLike<number> | null = null,
  without: ReadonlySet<Part> = new Set(),
): NgramReference => reference(slots, learned, bytes(WHOLE, byteReader(slots)), without)

/** Of the small form: its text is that of half of its slots. */
export const smallReference = (slots: number, learned: ArrayLike<number> | null = null): NgramReference =>
  reference(slots, learned, bytes(SMALL, byteReader(slots / 2)))

/** A class of 128: whether the text begins with a blank, the coarse classes of its first other byte and of its last. */
const classOfText = (text: Uint8Array): number => {
  if (text.length === 0) return 0
  const blank = text[0] === 32
  const first = text[blank && text.length > 1 ? 1 : 0]!
  return (blank ? 64 : 0) + coarse(classOf(first)) * 8 + coarse(classOf(text.at(-1)!))
}

/** Of tokens that stand for these bytes. Each step needs a base. */
export const subwordReference = (
  slots: number,
  texts: readonly Uint8Array[],
  learned: ArrayLike<number> | null = null,
): NgramReference => {
  const { text, written } = subwordReader(slots, texts)
  return reference(slots, learned, {
    ...{
      form: WHOLE,
      text,
      written,
      tokens: texts.length,
      columns: 128,
      columnOf: (token) => classOfText(texts[token]!),
    },
    slotBytes: 16,
    checkOf: (key) => Number((((key >> 52n) | (key << 12n)) & 0xfffffffcn) | 4n),
    behind: (byte, token) => (big(byte) << 24n) | big(token),
  })
}

const reference = (
  slots: number,
  learned: ArrayLike<number> | null,
  kind: Kind,
  without: ReadonlySet<Part> = new Set(),
): NgramReference => {
  const { form, text, tokens: TOKENS } = kind
  const { t } = text
  const SCALE_ROWS = form.scales
  const DENSE_FIRST = form.dense.map((_, k) => sum(form.dense.slice(0, k)))
  const VOTES = form.contexts.length * RANKS
  /** A row of scales: of each context, of the base, of each table of dense logits. */
  const BASE_SCALE = form.contexts.length
  const SCALES = BASE_SCALE + 1 + DENSE_FIRST.length
  const columnOf = Int32Array.from({ length: TOKENS }, (_, token) => kind.columnOf(token))
  const table = Array.from({ length: slots }, freeSlot)

  const weights = learners(
    Array.from({ length: VOTES * CONFIDENCES }, (_, j) => {
      if (learned !== null) return learned[j]!
      const [own, others] = [Math.floor((j % CONFIDENCES) / 16), Math.floor((j % 16) / 2)]
      return Math.floor(j / CONFIDENCES) % RANKS === 0 && others < own ? f32(f32(0.04) * (own - others)) : 0
    }),
    RATES.weight,
  )
  const scaleRows = SCALE_ROWS.map((rows) =>
    Array.from({ length: rows }, () => Array<number>(SCALES).fill(1 / SCALE_ROWS.length)),
  )
  const scaleSquares = learners(Array<number>(SCALES).fill(0), RATES.scale)
  const match = learners(
    Array.from({ length: 24 }, (_, i) => (i === 0 ? 0 : f32(f32(0.3) + f32(f32(0.1) * i)))),
    RATES.match,
  )
  const baseWeight = learners([1], RATES.base)
  const dense = Array.from({ length: sum(form.dense) }, (_, row) =>
    Float64Array.from({ length: kind.columns }, (_, b) =>
      learned !== null && kind.columns === 256 && row < 17 && !without.has('dense')
        ? learned[VOTES * CONFIDENCES + row * kind.columns + b]!
        : 0,
    ),
  )
  const corrections = [0, 1].map(() => Array.from({ length: form.corrections }, () => Array<number>(17).fill(0)))

  // What the last prediction was made of.
  const asked = {
    /** Of each context that votes. */
    slots: Array<number>(form.contexts.length).fill(-1),
    rows: Array<number>(SCALE_ROWS.length).fill(0),
    dense: [0, 0, 0, 0],
    corrected: [0, 0] as [number, number],
    likeliest: 0,
    match: null as null | { readonly weight: number },
    matchToken: 0,
    votes: [] as { readonly weight: number; readonly token: number }[],
    base: null as null | ArrayLike<number>,
    p: new Float64Array(TOKENS),
    scale: Array<number>(SCALES).fill(0),
    share: 0,
    along: 0,
  }
  /** Of all predictions: a vote stays until another one takes its number. */
  const stale = Array.from({ length: MOST_VOTES }, () => ({ weight: 0, token: 0 }))

  const learn = (y: number): void => {
    const error = (b: number): number => (b === y ? 1 : 0) - asked.p[b]!
    const gradient = Array<number>(SCALES).fill(0)
    const errors = new Float64Array(kind.columns)
    for (let b = 0; b < TOKENS; b += 1) errors[columnOf[b]!]! += error(b)
    for (const { weight, token } of asked.votes) {
      const context = Math.floor(weight / (CONFIDENCES * RANKS))
      const e = error(token)
      gradient[context]! += e * weights.value[weight]!
      if (!without.has('weights')) weights.value[weight]! += weights.by(weight, e * asked.scale[context]!)
    }
    const { base } = asked
    const ofBase = base === null ? 0 : asked.p.reduce((sum, _, b) => sum + error(b) * base[b]!, 0)
    gradient[BASE_SCALE] = GAIN * ofBase
    for (const [k, row] of asked.dense.entries())
      gradient[BASE_SCALE + 1 + k] = GAIN * errors.reduce((sum, e, column) => sum + e * dense[row]![column]!, 0)
    for (const [c, g] of gradient.entries()) {
      const step = without.has('scales') ? 0 : scaleSquares.by(c, g)
      for (const [s, row] of asked.rows.entries()) scaleRows[s]![row]![c]! += step
    }
    if (asked.match !== null) match.value[asked.match.weight]! += match.by(asked.match.weight, error(asked.matchToken))
    if (base !== null) baseWeight.value[0] = Math.max(0, baseWeight.value[0]! + baseWeight.by(0, ofBase))
    for (const [k, row] of without.has('dense') ? [] : asked.dense.entries())
      for (const [column, e] of errors.entries()) dense[row]![column]! += DENSE_STEPS[k]! * e
    const wrong = (asked.likeliest === y ? 1 : 0) - asked.share
    const place = Math.floor(asked.along)
    for (const [k, row] of without.has('correction') ? [] : asked.corrected.entries()) {
      const at = corrections[k]![row]!
      at[place]! += CORRECTION_STEP * wrong * (1 - (asked.along - place))
      at[place + 1]! += CORRECTION_STEP * wrong * (asked.along - place)
    }
    for (const slot of asked.slots) if (slot >= 0) count(table[slot]!, y)
  }

  const find = (key: bigint, isNewWanted: boolean): number => {
    const place = Number((((key >> 20n) & 0xffffffffn) * big(slots)) >> 32n) & ~1
    const check = kind.checkOf(key)
    const pair = [table[place]!, table[place + 1]!] as const
    const own = pair.findIndex((slot) => slot.check === check)
    if (own >= 0 || !isNewWanted) return own >= 0 ? place + own : -1
    const [a, b] = pair.map((slot) => (slot.check === 0 ? -1 : slot.kept[0]!.count)) as [number, number]
    const weaker = a <= b ? 0 : 1
    const best = pair[weaker]!.kept[0]!
    if (pair[weaker]!.check !== 0 && best.count > 1) {
      best.count -= 1 + Math.floor(best.count / 8)
      return -1
    }
    table[place + weaker] = { ...freeSlot(), check }
    return place + weaker
  }

  const ask = (learns: boolean): void => {
    asked.votes = []
    const keys = text.keys()
    const sure = Array<number>(CONTEXTS).fill(0)
    const look = (context: number, i: number): number => {
      const key = keys[context]!
      const at = key === null || without.has(context) ? -1 : find(key, learns)
      asked.slots[i] = at
      if (at < 0) return 0
      const { kept, last } = table[at]!
      const all = kept.reduce((sum, one) => sum + one.count, 0)
      const best = kept[0]!.count
      for (const [rank, one] of kept.entries()) {
        // Ranks behind a free one are none.
        if (one.count === 0) break
        const confidence = countClass(one.count) * 16 + countClass(all - one.count) * 2 + (last.rank === rank ? 1 : 0)
        const vote = { weight: (i * RANKS + rank) * CONFIDENCES + confidence, token: one.token }
        stale[asked.votes.length] = vote
        asked.votes.push(vote)
      }
      if (best === 0) return 0
      return best === all ? (best > 3 ? 3 : 2) : best > 2 * (all - best) ? 1 : 0
    }
    for (const [i, context] of form.contexts.entries()) sure[context] = look(context, i)
    // Of the last three, four, five bytes, the longest that is sure; slots may have gone to later contexts meanwhile.
    let order = 0
    for (const [i, context] of form.contexts.entries()) {
      if (context > 2) continue
      const [a, b, d] = (asked.slots[i]! < 0 ? freeSlot() : table[asked.slots[i]!]!).kept.map((one) => one.count)
      if (sure[context]! > 0 || a! > b! + d!) order = context + 1
    }
    const { length } = t.match
    const predicted = text.matched()
    const [of, before] = [0, 1].map((n) => classOf(t.position > n ? text.back(n) : 0)) as [number, number]
    const { small } = form
    const place = Math.min(Math.floor((t.position - t.lineStart) / 4), 15)
    const eighth = Math.min(Math.floor(length / 8), 3)
    const picked = [
      order * 5 + (length === 0 ? 0 : length < 8 ? 1 : length < 16 ? 2 : length < 32 ? 3 : 4),
      small ? of : of * 16 + before,
      Math.min(t.fields, small ? 15 : 31) * 2 + (t.field === 0n ? 1 : 0),
      small ? sure[5]! * 4 + sure[8]! : sure[5]! * 64 + sure[4]! * 16 + sure[3]! * 4 + sure[7]!,
      Number(mix(t.masked * 3n) % big(SCALE_ROWS[4]!)),
      Number(mix(t.shape) % big(SCALE_ROWS[5]!)),
      length === 0 ? of : 16 + eighth + (small ? 0 : classOf(text.firstByte(predicted)) * 4),
      small ? place : of * 16 + place,
    ]
    asked.rows = picked
    const rows = [0, of, coarse(before) + (small ? 0 : coarse(of) * 8), t.fields % form.dense[3]!]
    asked.dense = rows.map((row, k) => DENSE_FIRST[k]! + row)
    const weight =
      length < 16 ? length : length < 32 ? 12 + Math.floor(length / 4) : length <= 64 ? 20 : length <= 200 ? 21 : 22
    asked.match = length === 0 || without.has('match') ? null : { weight }
    asked.matchToken = predicted
  }

  const predict = (base: ArrayLike<number> | undefined): Float64Array => {
    asked.base = base ?? null
    asked.scale = asked.scale.map((_, lane) => asked.rows.reduce((sum, row, s) => sum + scaleRows[s]![row]![lane]!, 0))
    const gains = asked.scale.slice(BASE_SCALE).map((scale) => GAIN * (scale - 1))
    const counted = Math.max(baseWeight.value[0]! + gains[0]!, 0)
    const y = Float64Array.from(
      { length: TOKENS },
      (_, b) =>
        asked.dense.reduce((sum, row, k) => sum + (1 + gains[k + 1]!) * dense[row]![columnOf[b]!]!, 0) +
        counted * (base?.[b] ?? 0),
    )
    for (const { weight, token } of asked.votes)
      y[token]! += asked.scale[Math.floor(weight / (CONFIDENCES * RANKS))]! * weights.value[weight]!
    if (asked.match !== null) y[asked.matchToken]! += match.value[asked.match.weight]!
    const most = Math.max(...y)
    const powers = y.map((v) => Math.exp(v - most))
    const total = powers.reduce((a, b) => a + b)
    asked.p = powers.map((power) => power / total)
    asked.likeliest = y.indexOf(most)
    const share = Math.min(Math.max(asked.p[asked.likeliest]!, 1e-6), 1 - 1e-6)
    const logit = Math.log(share / (1 - share))
    asked.along = Math.min(Math.max(logit + 8, 0), f32(15.99))
    const place = Math.floor(asked.along)
    const c = t.position > 0 ? text.back(0) : 0
    asked.corrected = [t.masked * 7n + t.field, kind.behind(c, asked.likeliest)].map((of) =>
      Number(mix(of) % big(form.corrections)),
    ) as [number, number]
    const correction = asked.corrected.reduce((sum, row, k) => {
      const [low, high] = corrections[k]![row]!.slice(place, place + 2) as [number, number]
      return sum + low + (asked.along - place) * (high - low)
    }, 0)
    y[asked.likeliest]! += correction
    asked.share = 1 / (1 + Math.exp(-(logit + correction)))
    return y
  }

  const step = (token: number, base?: ArrayLike<number>, learns = true): Float64Array => {
    if (learns && text.tokens() > 0) learn(token)
    text.read(token)
    ask(learns)
    return predict(base)
  }

  const written = (): Uint8Array => {
    const out = Buffer.alloc(1560 + t.numbers.length * 24 + 16 * t.matches.length + t.ring.length)
    let end = 0
    const put = (bytes: 1 | 2 | 4 | 8, ...numbers: (number | bigint)[]): void => {
      for (const number of numbers) {
        if (bytes === 8) out.writeBigUInt64LE(big(number), end)
        else out.writeUIntLE(Number(number) >>> 0, end, bytes)
        end += bytes
      }
    }
    put(8, t.word, t.word1, t.word2, t.line, t.masked, t.masked1, t.masked2, t.field, t.shape, t.number)
    put(4, t.position, t.lineStart, t.numberStart, t.fields, t.match.place, t.match.length, t.column, t.fieldPlace)
    put(4, t.entry, t.digits, t.order, t.afterDigit ? 1 : 0, ...t.expects)
    put(1, ...t.expected.flat(), ...t.follows1.flat())
    let first = 0
    const rows = asked.rows.map((row, s) => {
      first += SCALE_ROWS[s]!
      return first - SCALE_ROWS[s]! + row
    })
    put(4, ...asked.slots, ...Array<number>(CONTEXTS - asked.slots.length).fill(0), ...rows, ...asked.dense)
    put(4, asked.corrected[0], asked.corrected[1] + form.corrections, asked.likeliest)
    put(4, asked.match?.weight ?? -1, asked.matchToken, asked.votes.length)
    put(2, ...stale.map(({ weight }) => weight))
    // Votes of subwords are further behind.
    put(1, ...stale.map(({ token }) => (kind.slotBytes === 8 ? token : 0)), 0, 0)
    for (const { last, before, place, digits, two } of t.numbers) {
      put(8, last, before)
      put(4, place)
      put(2, digits, two ? 1 : 0)
    }
    put(4, ...t.matches, ...t.columns, ...t.fieldPlaces, ...t.follows2)
    out.set(t.ring, end)
    return Buffer.concat([out, kind.written(stale.map(({ token }) => token))])
  }

  return {
    step,
    slots: () => {
      const out = Buffer.alloc(kind.slotBytes * slots)
      for (const [i, { check, last, kept }] of table.entries()) {
        const at = kind.slotBytes * i
        if (kind.slotBytes === 8) out.writeUInt16LE(check + last.rank, at)
        else out.writeUInt32LE(check + last.rank, at)
        for (const [rank, { token, count }] of kept.entries()) {
          if (kind.slotBytes === 16) out.writeUInt32LE(token * 256 + count, at + 4 + 4 * rank)
          else out.set([token], at + 2 + rank)
          if (kind.slotBytes === 8) out.set([count], at + 5 + rank)
        }
      }
      return out
    },
    text: written,
  }
}
