/**
 * A tokenizer.json on a stream: text passes through four stages, and each holds back what more text could change.
 *
 *   bytes, halves ─▶ added tokens ─▶ normalizer ─▶ normalized added tokens ─▶ pre-tokens ─▶ BPE or Unigram
 *
 * An added token ends everything before it. A pre-token is encoded when its ends are certain, always alone; so ids
 * depend on the text and not on how it arrived.
 */
import { type AddedToken, type AddedTokens, findAdded } from './added.ts'
import { bytesOfHalf, decodeHeld, encodeHeld, FLAGS, type Held, halfOfBytes, isHighHalf } from './held.ts'
import { cutsOf, type NormalizerPlan } from './normalize.ts'
import type { Pipeline } from './pipeline.ts'
import { split } from './pretokens.ts'
import type { Pushed, Tokenizer } from './types.ts'
import { unfinishedAtEnd } from './unfinished.ts'

export interface Parts {
  /** Added tokens that are looked for in the text as it is. */
  readonly added: AddedTokens
  readonly normalizer: NormalizerPlan | null
  /** Added tokens that are looked for in the normalized text. */
  readonly marked: AddedTokens | null
  readonly pipeline: Pipeline
  /** The ids of a pre-token. */
  readonly encode: (pretoken: string) => readonly number[]
  /** Ids that begin a context. */
  readonly begin: readonly number[]
  /** The sum of those of FLAGS that this tokenizer needs; the others are left out of the held text. */
  readonly flags: number
  /** The special tokens, and the other added tokens in the places of `added` and `marked`. */
  readonly apart: {
    readonly special: ReadonlyMap<string, number>
    readonly added: AddedTokens
    readonly marked: AddedTokens | null
  }
}

const REPLACEMENT = '\ufffd'

/** One call: what was held back before it, read from the held text, and the ids that it gives. */
class Run {
  readonly ids: number[] = []
  private readonly parts: Parts
  private flags: number
  private word: string
  private marked: string
  private raw: string
  private open: string

  constructor(parts: Parts, { flags, word, marked, raw, open }: Held) {
    this.parts = parts
    this.flags = flags
    this.word = word
    this.marked = marked
    this.raw = raw
    this.open = open
  }

  private has(flag: number): boolean {
    return (this.flags & flag) !== 0
  }

  private set(flag: number, on: boolean): void {
    this.flags = on ? this.flags | flag : this.flags & ~flag
  }

  private piece = (piece: string): void => {
    for (const pretoken of this.parts.pipeline.finish(piece))
      for (const id of this.parts.encode(pretoken)) this.ids.push(id)
  }

  /** Splits normalized text in which no added token stands into pre-tokens. */
  private partText = (text: string): void => {
    const { prefix, unless, prefixFirstOnly, translate, stages } = this.parts.pipeline
    if (!this.has(FLAGS.part)) {
      this.set(FLAGS.part, true)
      const wanted = !(prefixFirstOnly && this.has(FLAGS.later)) && !unless.some((start) => text.startsWith(start))
      if (wanted) this.word += prefix
    }
    this.word += translate(text)
    this.word = this.word.slice(split(stages, this.word, false, this.piece))
  }

  private endPart(): void {
    split(this.parts.pipeline.stages, this.word, true, this.piece)
    this.word = ''
    this.set(FLAGS.part, false)
  }

  private markedToken = ({ id }: AddedToken): void => {
    this.endPart()
    this.set(FLAGS.later, true)
    this.ids.push(id)
  }

  private normalized(text: string, ended: boolean): void {
    const { marked } = this.parts
    if (marked === null) {
      if (text !== '') this.partText(text)
    } else {
      const all = this.marked + text
      const stripping = this.has(FLAGS.strippedMarked)
      const found = findAdded(marked, all, ended, stripping, this.partText, this.markedToken)
      this.marked = all.slice(found.rest)
      this.set(FLAGS.strippedMarked, found.stripping && !ended)
    }
    if (ended) this.endPart()
  }

  /** Normalizes a piece of text that can be normalized alone, and goes on with the result. */
  private stretch(text: string, normalizer: NormalizerPlan): void {
    if (text === '') return
    const fresh = !this.has(FLAGS.section)
    this.set(FLAGS.section, true)
    this.normalized(fresh ? normalizer.first(text) : normalizer.rest(text), false)
  }

  private sectionText = (text: string): void => {
    const { normalizer } = this.parts
    if (normalizer === null) {
      this.normalized(text, false)
      return
    }
    const all = this.raw + text
    let from = 0
    for (const cut of cutsOf(normalizer, all)) {
      this.stretch(all.slice(from, cut), normalizer)
      from = cut
    }
    this.raw = all.slice(from)
  }

  private endSection(): void {
    const { normalizer } = this.parts
    if (normalizer !== null) this.stretch(this.raw, normalizer)
    this.raw = ''
    this.normalized('', true)
    this.set(FLAGS.section, false)
  }

  private token = ({ id }: AddedToken): void => {
    this.endSection()
    this.set(FLAGS.later, true)
    this.ids.push(id)
  }

  /** Well-formed text. */
  read(text: string, ended: boolean): void {
    const all = this.open + text
    const stripping = this.has(FLAGS.stripped)
    const found = findAdded(this.parts.added, all, ended, stripping, this.sectionText, this.token)
    this.open = all.slice(found.rest)
    this.set(FLAGS.stripped, found.stripping)
    if (ended) this.endSection()
    if (this.ids.length > 0 && !this.has(FLAGS.begun)) this.ids.unshift(...this.parts.begin)
    if (this.ids.length > 0) this.set(FLAGS.begun, true)
  }

  held(half: string): string {
    const { word, marked, raw, open } = this
    return encodeHeld({ flags: this.flags & this.parts.flags, word, marked, raw, open, half })
  }
}

export const streamTokenizer = (parts: Parts, about: Pick<Tokenizer, 'vocabSize' | 'eos' | 'bytesOf'>): Tokenizer => {
  // A byte order mark is text like any other here.
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  const textOfHalf = (half: string): string =>
    half === '' ? '' : isHighHalf(half) ? REPLACEMENT : decoder.decode(bytesOfHalf(half))
  const begun = encodeHeld({ flags: FLAGS.begun & parts.flags, word: '', marked: '', raw: '', open: '', half: '' })
  const read = (before: Held, text: string, half: string): Pushed => {
    const run = new Run(parts, before)
    run.read(text, false)
    return { ids: Int32Array.from(run.ids), held: run.held(half) }
  }
  const { special, added, marked } = parts.apart
  const untrusted: Parts = { ...parts, added, marked }
  const nothing = { word: '', marked: '', raw: '', open: '', half: '' }
  const AFTER = { nothing: 0, token: FLAGS.later, text: FLAGS.later | FLAGS.section | FLAGS.part } as const
  return {
    ...about,
    begun,
    turns: {
      special,
      encode(text, after) {
        const run = new Run(untrusted, { ...nothing, flags: FLAGS.begun | AFTER[after] })
        run.read(text.toWellFormed(), true)
        return Int32Array.from(run.ids)
      },
    },
    push(held, text) {
      if (text === '') return { ids: new Int32Array(0), held }
      const before = decodeHeld(held)
      const all = (isHighHalf(before.half) ? before.half : textOfHalf(before.half)) + text
      const last = all.charCodeAt(all.length - 1)
      const end = last >= 0xd800 && last < 0xdc00 ? all.length - 1 : all.length
      return read(before, all.slice(0, end).toWellFormed(), all.slice(end))
    },
    pushBytes(held, bytes) {
      // No bytes are no event: they must not break a pair.
      if (bytes.length === 0) return { ids: new Int32Array(0), held }
      const before = decodeHeld(held)
      const high = isHighHalf(before.half)
      const all = Buffer.concat([high ? new Uint8Array(0) : bytesOfHalf(before.half), bytes])
      const end = all.length - unfinishedAtEnd(all)
      const text = (high ? REPLACEMENT : '') + decoder.decode(all.subarray(0, end))
      return read(before, text, halfOfBytes(all.subarray(end)))
    },
    flush(held) {
      const before = decodeHeld(held)
      const run = new Run(parts, before)
      run.read(textOfHalf(before.half), true)
      return Int32Array.from(run.ids)
    },
  }
}
