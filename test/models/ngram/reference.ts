/**
 * An ngram memory written from its description (docs/ngram.md), which shares nothing with the engine: hashes in whole numbers of any length, the
 * mixture in double precision. Slow, and made for texts of some thousand bytes.
 */

/** What an engine's tables must hold after the same bytes. */
export interface NgramReference {
  /**
   * Reads a byte; the logits [256] of the byte after it. `base` [256] is added to them, by a weight that is learned. `learns`, by default true: the byte
   * teaches it.
   */
  readonly step: (byte: number, base?: ArrayLike<number>, learns?: boolean) => Float64Array
  /** The table `slots`, as bytes. */
  readonly slots: () => Uint8Array
  /** The table `text`, as bytes. `DRAWN` of it follow from numbers of the mixture. */
  readonly text: () => Uint8Array
}

/** Bytes of the table `text` that depend on which byte is the likeliest: the second row of corrections, and the byte. */
export const DRAWN = { from: 1340, to: 1348 } as const

const TOKENS = 256
const CONTEXTS = 22
const RANKS = 3
const VOTES = CONTEXTS * RANKS
/** Classes of counts: own, of others, and whether the byte came last. */
const CONFIDENCES = 8 * 8 * 2
const SCALE_ROWS = [20, 256, 64, 256, 256, 128, 80, 256]
const DENSE_FIRST = [0, 1, 17, 81]
const MOST_DIGITS = 20

const WORD = (1n << 64n) - 1n
const mix = (hash: bigint): bigint => {
  let h = hash & WORD
  h ^= h >> 29n
  h = (h * 0xbf58476d1ce4e5b9n) & WORD
  return h ^ (h >> 32n)
}
const big = BigInt

const between = (c: number, from: string, to: string): boolean => c >= from.charCodeAt(0) && c <= to.charCodeAt(0)
const CLASSES: readonly ((c: number) => boolean)[] = [
  (c) => c === 10,
  (c) => c === 32,
  (c) => between(c, '0', '9'),
  (c) => between(c, 'a', 'f'),
  (c) => between(c, 'g', 'z'),
  (c) => between(c, 'A', 'F'),
  (c) => between(c, 'G', 'Z'),
  ...['.', ':', '/', '=,', '_-', '([<', ')]>'].map((of) => (c: number) => of.includes(String.fromCharCode(c))),
  (c) => c >= 128,
  () => true,
]
const classOf = (c: number): number => CLASSES.findIndex((is) => is(c))
const coarse = (of: number): number => [0, 1, 2, 3, 3, 4, 4, 5, 5, 5, 5, 5, 6, 6, 7, 6][of]!
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

interface Numbered {
  last: bigint
  before: bigint
  place: number
  digits: number
  two: boolean
}

/** The text so far as contexts see it. */
const reader = (slots: number) => {
  let ringSize = 4096
  while (ringSize < slots && ringSize < 65536) ringSize *= 2
  const places = ringSize / 16
  const list = (): number[] => Array<number>(places).fill(0)
  const t = {
    word: 0n,
    word1: 0n,
    word2: 0n,
    line: 0n,
    masked: 0n,
    masked1: 0n,
    masked2: 0n,
    field: 0n,
    shape: 0n,
    number: 0n,
    position: 0,
    lineStart: 0,
    numberStart: 0,
    fields: 0,
    match: 0,
    matchLength: 0,
    column: 0,
    fieldPlace: 0,
    entry: 0,
    digits: 0,
    order: 0,
    afterDigit: false,
    expects: [0, 0] as [number, number],
    expected: [Array<number>(MOST_DIGITS).fill(0), Array<number>(MOST_DIGITS).fill(0)] as const,
    follows1: Array.from({ length: 256 }, () => [0, 0, 0, 0]),
    numbers: Array.from(
      { length: ringSize / 64 },
      (): Numbered => ({ last: 0n, before: 0n, place: 0, digits: 0, two: false }),
    ),
    matches: list(),
    columns: list(),
    fieldPlaces: list(),
    follows2: list(),
    ring: new Uint8Array(ringSize),
  }
  const at = (place: number): number => t.ring[place % ringSize]!
  const back = (n: number): number => at((t.position - 1 - n + 2 ** 32) % ringSize)
  const holds = (place: number): boolean => t.position - place <= ringSize
  const index = (hash: bigint): number => Number(mix(hash) % big(places))
  /** Puts the position into a list of places, and gives what was there. */
  const exchanged = (of: number[], hash: bigint): number => {
    const i = index(hash)
    const was = of[i]!
    of[i] = t.position
    return was
  }

  const followMatch = (c: number): void => {
    if (t.matchLength > 0 && at(t.match) === c) {
      t.matchLength += 1
      t.match += 1
    } else {
      t.matchLength = 0
    }
    if (t.position < 6) return
    let h = 0n
    for (let i = 0; i < 6; i += 1) h = ((h ^ big(back(i))) * 0x100000001b3n) & WORD
    const place = exchanged(t.matches, h)
    if (t.matchLength > 0 || place === 0 || !holds(place)) return
    let length = 0
    while (
      length < 32 &&
      length < place &&
      holds(place - 1 - length) &&
      at(place - 1 - length + ringSize) === back(length)
    )
      length += 1
    if (length < 5) return
    t.match = place
    t.matchLength = length
  }

  const beginLine = (): void => {
    t.masked2 = t.masked1
    t.masked1 = t.masked
    t.line = 1n
    t.masked = 1n
    t.shape = 1n
    t.word = 0n
    t.word1 = 0n
    t.word2 = 0n
    t.field = 0n
    t.fields = 0
    t.afterDigit = false
    t.fieldPlace = 0
    t.lineStart = t.position
  }

  const followLine = (c: number, digit: boolean): void => {
    const char = String.fromCharCode(c)
    t.line = mix(t.line * 31n + big(c) + 7n)
    if (!digit) t.masked = mix(t.masked * 31n + big(c) + 7n)
    else if (!t.afterDigit) t.masked = mix(t.masked * 31n + 300n)
    t.afterDigit = digit
    t.shape = mix(t.shape * 31n + big(classOf(c)))
    if (between(c, 'a', 'z') || between(c, 'A', 'Z') || c >= 128 || digit || '_.-$'.includes(char)) {
      t.word = mix(t.word * 37n + big(c) + 3n)
    } else {
      if (t.word !== 0n) {
        t.word2 = t.word1
        t.word1 = t.word
      }
      t.word = 0n
    }
    if (' =,:[(;"'.includes(char)) {
      t.fields += 1
      t.field = 0n
      t.fieldPlace = exchanged(t.fieldPlaces, big(t.fields) * 77n + t.word1 * 5n)
    } else {
      t.field = mix(t.field * 41n + big(c) + 5n)
      if (t.fieldPlace !== 0) t.fieldPlace += 1
    }
  }

  const expectedAt = (which: 0 | 1): number => (t.digits < t.expects[which] ? (t.expected[which][t.digits] ?? 0) : 0)
  const expect = (which: 0 | 1, number: bigint, least: number): void => {
    const digits = number.toString().padStart(least, '0')
    for (const [i, digit] of [...digits].entries()) t.expected[which][i] = digit.charCodeAt(0)
    t.expects[which] = digits.length
  }
  const numbered = (): Numbered => t.numbers[t.entry - 1]!

  const followNumber = (c: number, digit: boolean): void => {
    if (digit) {
      if (t.digits === 0) {
        t.numberStart = t.position - 1
        t.number = 0n
      }
      if (t.entry !== 0) {
        const { place, digits } = numbered()
        const last = t.digits < digits ? at(place + t.digits) : 0
        if (t.order === 1 && last !== c) t.order = last < c ? 2 : 3
        for (const which of [0, 1] as const) if (expectedAt(which) !== c) t.expects[which] = 0
      }
      t.digits += 1
      if (t.digits < 19) t.number = t.number * 10n + big(c - 48)
      return
    }
    if (t.digits > 0 && t.entry !== 0) {
      const entry = numbered()
      entry.two = entry.digits > 0
      entry.before = entry.last
      entry.last = t.number
      entry.place = t.numberStart
      entry.digits = Math.min(t.digits, 255)
    }
    t.digits = 0
    t.order = 1
    t.entry = Number(mix(t.masked * 3n + 0x77n) % big(t.numbers.length)) + 1
    t.expects = [0, 0]
    const { last, before, place, digits, two } = numbered()
    const most = 10n ** 18n
    if (digits === 0 || digits >= 19 || last >= most || before > most) return
    const step = two ? 2n * last - before : last + 1n
    const least = holds(place) && at(place) === 48 ? digits : 1
    // A number that fell below 0 is none.
    expect(0, step < 0n || step > most ? last : step, least)
    expect(1, last + 1n, least)
  }

  const read = (c: number): void => {
    const here = t.position
    t.ring[here % ringSize] = c
    t.position += 1
    followMatch(c)
    const digit = between(c, '0', '9')
    if (c === 10) beginLine()
    else followLine(c, digit)
    followNumber(c, digit)
    t.column = exchanged(t.columns, t.masked)
    if (here < 2) return
    const follows = t.follows1[back(1)]!
    follows.splice(0, 3, c, follows[0]!, follows[1]!)
    const both = index(big((back(1) << 8) | back(2)))
    t.follows2[both] = ((t.follows2[both]! << 8) | c) & 0xffffff
  }

  /** Hashes of the contexts of the next byte; null where there is none. */
  const keys = (): (bigint | null)[] => {
    const c = big(back(0))
    const golden = 0x9e3779b1n
    const hashed = (h: bigint): bigint => mix(h) | 1n
    const bytes = (...of: number[]): bigint => of.reduce((all, byte) => (all << 8n) | big(byte), 0n)
    const few = (order: number): bigint | null => {
      if (t.position < order) return null
      let h = (big(order) * 0x9e3779b97f4a7c15n) & WORD
      for (let i = 0; i < order; i += 1) h = ((h ^ big(back(i))) * 0x100000001b3n + (h >> 41n)) & WORD
      return hashed(h)
    }
    const behind = (is: () => bigint): bigint | null => (t.position >= 5 ? hashed(is()) : null)
    const above = t.column !== 0 && holds(t.column) ? at(t.column) : 0
    const there = t.fieldPlace !== 0 && holds(t.fieldPlace) ? at(t.fieldPlace) : 0
    const matched = t.matchLength > 0 ? at(t.match) : 0
    const [one0, one1] = t.follows1[back(0)]! as [number, number]

    const entry = t.entry === 0 || numbered().digits === 0 ? null : numbered()
    const [next, after] = [0, 1].map((i) =>
      entry !== null && t.digits + i < entry.digits ? at(entry.place + t.digits + i) : 0,
    ) as [number, number]
    const [step, one] = entry === null ? [0, 0] : [expectedAt(0), expectedAt(1)]
    const rest = entry === null ? -1 : entry.digits - t.digits
    const left = big(rest < 0 ? 0 : rest < 14 ? rest + 1 : 15)
    const line = mix(t.masked * 5n + 0x99n)
    const steps = bytes(step, t.expects[0] > 0 ? 1 : 0, one) * 64n
    return [
      few(2),
      few(3),
      few(4),
      hashed(t.word * 3n + t.word1 * 5n + 0x101n),
      hashed(t.line + 0x303n),
      hashed(t.masked * 3n + 0x404n),
      hashed(t.masked * 3n + t.masked1 * 5n + 0x606n),
      hashed(t.line * 3n + t.masked1 * 5n + t.masked2 * 11n + 0x707n),
      hashed(big(t.fields) * 977n + t.field * 5n + 0x808n),
      behind(() => bytes(back(1), back(2), back(3)) * 0x9e37n + 0x909n),
      behind(() => bytes(back(0), back(2), back(3)) * 0x9e37n + 0xa0an),
      hashed((bytes(above) * 256n + c) * 0x9e3779n + t.field * 3n + 0xc0cn),
      hashed((bytes(there) * 256n + c) * 0x9e3779n + (big(t.fields) << 32n) + 0xd0dn),
      hashed(big(t.position - t.lineStart) * 911n + c + 0x111n),
      behind(() => bytes(one1, one0, back(0)) * golden + 0x1212n),
      behind(() => {
        const both = t.follows2[index(big((back(0) << 8) | back(1)))]!
        return ((big(both) << 16n) | bytes(back(0), back(1))) * golden + 0x1313n
      }),
      hashed(bytes(matched, Math.min(t.matchLength, 15), back(0)) * golden + 0x1414n),
      hashed(line + big((next * 4 + t.order) * 16) + left + 0x2121n),
      hashed((bytes(next, t.order, after) * 16n + left) * golden + 0x2222n),
      hashed((steps + big(t.order * 16) + left) * golden + 0x2323n),
      hashed(line * 3n + steps + 0x2424n),
      hashed(line * 3n + big(t.digits * 16) + (t.digits > 0 ? c : 0n) + 0x2525n),
    ]
  }
  return { t, at, back, read, keys }
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

/** `learned`: what a package begins with, the weights and then 17 rows of logits; null: nothing. */
export const ngramReference = (slots: number, learned: ArrayLike<number> | null = null): NgramReference => {
  const text = reader(slots)
  const { t } = text
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
    Array.from({ length: rows }, () => Array<number>(CONTEXTS).fill(1 / SCALE_ROWS.length)),
  )
  const scaleSquares = learners(Array<number>(CONTEXTS).fill(0), RATES.scale)
  const match = learners(
    Array.from({ length: 24 }, (_, i) => (i === 0 ? 0 : f32(f32(0.3) + f32(f32(0.1) * i)))),
    RATES.match,
  )
  const baseWeight = learners([1], RATES.base)
  const dense = Array.from({ length: 97 }, (_, row) =>
    Float64Array.from({ length: TOKENS }, (_, b) =>
      learned !== null && row < 17 ? learned[VOTES * CONFIDENCES + row * TOKENS + b]! : 0,
    ),
  )
  const corrections = [0, 1].map(() => Array.from({ length: 256 }, () => Array<number>(17).fill(0)))

  // What the last prediction was made of.
  const asked = {
    slots: Array<number>(CONTEXTS).fill(-1),
    rows: Array<number>(SCALE_ROWS.length).fill(0),
    dense: [0, 0, 0, 0],
    corrected: [0, 0] as [number, number],
    likeliest: 0,
    match: null as null | { readonly weight: number },
    matchToken: 0,
    votes: [] as { readonly weight: number; readonly token: number }[],
    base: null as null | ArrayLike<number>,
    p: new Float64Array(TOKENS),
    scale: Array<number>(CONTEXTS).fill(0),
    share: 0,
    along: 0,
  }
  /** Of all predictions: a vote stays until another one takes its number. */
  const stale = Array.from({ length: VOTES }, () => ({ weight: 0, token: 0 }))

  const learn = (y: number): void => {
    const error = (b: number): number => (b === y ? 1 : 0) - asked.p[b]!
    const gradient = Array<number>(CONTEXTS).fill(0)
    for (const { weight, token } of asked.votes) {
      const context = Math.floor(weight / (CONFIDENCES * RANKS))
      const e = error(token)
      gradient[context]! += e * weights.value[weight]!
      weights.value[weight]! += weights.by(weight, e * asked.scale[context]!)
    }
    for (const [c, g] of gradient.entries()) {
      const step = scaleSquares.by(c, g)
      for (const [s, row] of asked.rows.entries()) scaleRows[s]![row]![c]! += step
    }
    if (asked.match !== null) match.value[asked.match.weight]! += match.by(asked.match.weight, error(asked.matchToken))
    const { base } = asked
    if (base !== null) {
      const expected = asked.p.reduce((sum, share, b) => sum + share * base[b]!, 0)
      baseWeight.value[0] = Math.max(0, baseWeight.value[0]! + baseWeight.by(0, base[y]! - expected))
    }
    for (const [k, row] of asked.dense.entries())
      for (let b = 0; b < TOKENS; b += 1) dense[row]![b]! += DENSE_STEPS[k]! * error(b)
    const wrong = (asked.likeliest === y ? 1 : 0) - asked.share
    const place = Math.floor(asked.along)
    for (const [k, row] of asked.corrected.entries()) {
      const at = corrections[k]![row]!
      at[place]! += CORRECTION_STEP * wrong * (1 - (asked.along - place))
      at[place + 1]! += CORRECTION_STEP * wrong * (asked.along - place)
    }
    for (const slot of asked.slots) if (slot >= 0) count(table[slot]!, y)
  }

  const find = (key: bigint, isNewWanted: boolean): number => {
    const place = Number((((key >> 20n) & 0xffffffffn) * big(slots)) >> 32n) & ~1
    const check = Number(((key >> 50n) | 4n) & 0xfffcn)
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

  const ask = (c: number, learns: boolean): void => {
    asked.votes = []
    const sure = text.keys().map((key, context) => {
      const at = key === null ? -1 : find(key, learns)
      asked.slots[context] = at
      if (at < 0) return 0
      const { kept, last } = table[at]!
      const all = kept.reduce((sum, one) => sum + one.count, 0)
      const best = kept[0]!.count
      for (const [rank, one] of kept.entries()) {
        // Ranks behind a free one are none.
        if (one.count === 0) break
        const confidence = countClass(one.count) * 16 + countClass(all - one.count) * 2 + (last.rank === rank ? 1 : 0)
        const vote = { weight: (context * RANKS + rank) * CONFIDENCES + confidence, token: one.token }
        stale[asked.votes.length] = vote
        asked.votes.push(vote)
      }
      if (best === 0) return 0
      return best === all ? (best > 3 ? 3 : 2) : best > 2 * (all - best) ? 1 : 0
    })
    // Of the last three, four, five bytes, the longest that is sure; slots may have gone to later contexts meanwhile.
    let order = 0
    for (let i = 0; i < 3; i += 1) {
      const [a, b, d] = (asked.slots[i]! < 0 ? freeSlot() : table[asked.slots[i]!]!).kept.map((one) => one.count)
      if (sure[i]! > 0 || a! > b! + d!) order = i + 1
    }
    const length = t.matchLength
    const predicted = length > 0 ? text.at(t.match) : 0
    const [of, before] = [classOf(c), classOf(t.position > 1 ? text.back(1) : 0)]
    const picked = [
      order * 5 + (length === 0 ? 0 : length < 8 ? 1 : length < 16 ? 2 : length < 32 ? 3 : 4),
      of * 16 + before,
      Math.min(t.fields, 31) * 2 + (t.field === 0n ? 1 : 0),
      sure[5]! * 64 + sure[4]! * 16 + sure[3]! * 4 + sure[7]!,
      Number(mix(t.masked * 3n) % 256n),
      Number(mix(t.shape) % 128n),
      length === 0 ? of : 16 + classOf(predicted) * 4 + Math.min(Math.floor(length / 8), 3),
      of * 16 + Math.min(Math.floor((t.position - t.lineStart) / 4), 15),
    ]
    asked.rows = picked
    asked.dense = [0, of, coarse(of) * 8 + coarse(before), t.fields % 16].map((row, k) => DENSE_FIRST[k]! + row)
    const weight =
      length < 16 ? length : length < 32 ? 12 + Math.floor(length / 4) : length <= 64 ? 20 : length <= 200 ? 21 : 22
    asked.match = length === 0 ? null : { weight }
    asked.matchToken = predicted
  }

  const predict = (c: number, base: ArrayLike<number> | undefined): Float64Array => {
    asked.base = base ?? null
    asked.scale = asked.scale.map((_, context) =>
      asked.rows.reduce((sum, row, s) => sum + scaleRows[s]![row]![context]!, 0),
    )
    const y = Float64Array.from(
      { length: TOKENS },
      (_, b) => asked.dense.reduce((sum, row) => sum + dense[row]![b]!, 0) + baseWeight.value[0]! * (base?.[b] ?? 0),
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
    asked.corrected = [t.masked * 7n + t.field, big(c * 256 + asked.likeliest)].map((of) => Number(mix(of) % 256n)) as [
      number,
      number,
    ]
    const correction = asked.corrected.reduce((sum, row, k) => {
      const [low, high] = corrections[k]![row]!.slice(place, place + 2) as [number, number]
      return sum + low + (asked.along - place) * (high - low)
    }, 0)
    y[asked.likeliest]! += correction
    asked.share = 1 / (1 + Math.exp(-(logit + correction)))
    return y
  }

  const step = (c: number, base?: ArrayLike<number>, learns = true): Float64Array => {
    if (learns && t.position > 0) learn(c)
    text.read(c)
    ask(c, learns)
    return predict(c, base)
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
    put(4, t.position, t.lineStart, t.numberStart, t.fields, t.match, t.matchLength, t.column, t.fieldPlace)
    put(4, t.entry, t.digits, t.order, t.afterDigit ? 1 : 0, ...t.expects)
    put(1, ...t.expected.flat(), ...t.follows1.flat())
    let first = 0
    const rows = asked.rows.map((row, s) => {
      first += SCALE_ROWS[s]!
      return first - SCALE_ROWS[s]! + row
    })
    put(4, ...asked.slots, ...rows, ...asked.dense)
    put(4, asked.corrected[0], asked.corrected[1] + 256, asked.likeliest)
    put(4, asked.match?.weight ?? -1, asked.matchToken, asked.votes.length)
    put(2, ...stale.map(({ weight }) => weight))
    put(1, ...stale.map(({ token }) => token), 0, 0)
    for (const { last, before, place, digits, two } of t.numbers) {
      put(8, last, before)
      put(4, place)
      put(2, digits, two ? 1 : 0)
    }
    put(4, ...t.matches, ...t.columns, ...t.fieldPlaces, ...t.follows2)
    out.set(t.ring, end)
    return out
  }

  return {
    step,
    slots: () => {
      const out = new Uint8Array(8 * slots)
      for (const [i, { check, last, kept }] of table.entries()) {
        out[8 * i] = (check | last.rank) & 255
        out[8 * i + 1] = check >> 8
        for (let rank = 0; rank < RANKS; rank += 1) {
          out[8 * i + 2 + rank] = kept[rank]!.token
          out[8 * i + 5 + rank] = kept[rank]!.count
        }
      }
      return out
    },
    text: written,
  }
}
