/**
 * The lines of a stream of tokens, each judged when its end is read. Where a line ends depends on the bytes alone, so the same lines are judged whatever
 * pieces the stream came in. The line that has not ended is a part of the state.
 */
import { LINES_OF_TOKEN, type LineNovelty } from '../../topics/novelty.ts'
import { textOf } from '../text.ts'
import { type ByteReader, createReader, createWriter, isCount, Unreadable } from './bytes.ts'
import { createJudge, type Novelty, type NoveltyJudge, type Standing } from './judge.ts'

const LINE_END = 0x0a
const RETURN = 0x0d
/** Bytes of a line behind these cost what they cost, and are not looked at. */
const MOST_LINE = 4096
/** What nothing predicts, the first byte of a context, in bits. */
const UNPREDICTED = 8
/** The rank from which on a line's text, pattern and words are told, and characters of them. */
const TOLD_RANK = 0.95
const TOLD_TEXT = 200
const TOLD_WORD = 40
const VERSION = 3
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const CONTROLS = /[\u0000-\u001f\u007f]/g
const LONE_HALF = /[\ud800-\udbff]$/

/** Judges the lines of one session. */
export interface LineJudge {
  /** Reads a token of these bytes, fed at this pulse; `nats`: NaN where nothing predicted it. Adds the lines that it ends to `told`. */
  token(bytes: Uint8Array, nats: number, pulse: number, told: LineNovelty[]): void
  /** Judges what was read of a line as a whole one, at the end of a text; `pulse`: of the next token. */
  end(pulse: number): readonly LineNovelty[]
  /** One that goes on by itself. */
  copy(): LineJudge
  /** What judges lines with what it remembers of them, for another stream. A line that has not ended ends here. */
  elsewhere(): NoveltyJudge
  /** All of it, for `createLineJudge`; the same bytes wherever the same was read. */
  state(): Uint8Array
}

/** So that sums of them stay numbers. The largest surprisal of a token is some 1e39 bits. */
const isCost = (bits: number): boolean => Math.abs(bits) <= 1e50
/** Never −0, which JSON would change. */
const rounded = (number: number): number => Math.round(number * 1000) / 1000 + 0
const standing = ({ score, rank }: Standing): Standing => ({ score: Math.max(0, rounded(score)), rank })
/** Characters that JSON writes as six bytes are replaced, so that an observation has a bound. */
const cut = (text: string, most: number): string =>
  (text.length > most ? `${text.slice(0, most).replace(LONE_HALF, '')}…` : text).replace(CONTROLS, '\ufffd')

/** What an observation says of a line. */
const toldOf = (
  novelty: Novelty,
  line: Uint8Array,
  cost: Pick<LineNovelty, 'line' | 'fromPulse' | 'toPulse' | 'bytes' | 'bits'>,
): LineNovelty => {
  const { structure, values, rate, silence, seen, first, last } = novelty
  const tells = [structure, values, rate, silence].some(
    ({ score, rank }) => score > 0 && rank !== null && rank >= TOLD_RANK,
  )
  return {
    ...cost,
    structure: standing(structure),
    values: standing(values),
    rate: standing(rate),
    ...(silence.score > 0 && {
      silence: {
        ...standing(silence),
        kinds: silence.kinds.map((kind) => ({ ...kind, pattern: cut(kind.pattern, TOLD_TEXT) })),
      },
    }),
    seen,
    ...(first !== null && last !== null && { first, last }),
    ...(tells && {
      text: cut(textOf(line), TOLD_TEXT),
      pattern: cut(novelty.pattern(), TOLD_TEXT),
      words: novelty.words().map(({ word, bits }) => ({ word: cut(word, TOLD_WORD), bits: rounded(bits) })),
    }),
  }
}

/** `from`: what `state` gave. Throws `Unreadable`. */
export const createLineJudge = (from?: Uint8Array): LineJudge => {
  const reader: ByteReader | undefined = from && createReader(from)
  if (reader !== undefined && reader.u32() !== VERSION) throw new Unreadable('is of another version')
  const held = new Uint8Array(MOST_LINE)
  const bits = new Float64Array(MOST_LINE)
  /** Bytes of the line so far, of which `held` has the first; where it began; what it cost; bits of tokens without bytes; and lines before it. */
  let [size, began, cost, carried, count] = [0, 0, 0, 0, 0]
  if (reader !== undefined) {
    size = reader.f64()
    began = reader.f64()
    cost = reader.f64()
    carried = reader.f64()
    count = reader.f64()
    if (![size, began, count].every(isCount)) throw new Unreadable('has a line of no length')
    if (!isCost(cost) || !isCost(carried)) throw new Unreadable('has a line that nothing can cost')
    const length = Math.min(size, MOST_LINE)
    held.set(reader.bytes(length))
    for (let at = 0; at < length; at += 1) bits[at] = reader.f64()
    if (!bits.every(isCost)) throw new Unreadable('has a byte that nothing can cost')
  }
  const judge = createJudge(reader)
  reader?.end()

  const ended = (pulse: number): LineNovelty => {
    const all = Math.min(size, MOST_LINE)
    const length = all > 0 && all === size && held[all - 1] === RETURN ? all - 1 : all
    const line = held.subarray(0, length)
    const novelty = judge.judge(line, bits.subarray(0, length), began)
    count += 1
    const told = toldOf(novelty, line, {
      line: count,
      fromPulse: began,
      toPulse: pulse,
      bytes: size,
      bits: rounded(cost),
    })
    size = 0
    cost = 0
    return told
  }

  return {
    token(bytes, nats, pulse, told) {
      carried += Number.isNaN(nats) ? bytes.length * UNPREDICTED : nats / Math.LN2
      if (bytes.length === 0) return
      const each = carried / bytes.length
      carried = 0
      const before = told.length
      for (let at = 0; at < bytes.length; at += 1) {
        const byte = bytes[at]!
        if (byte === LINE_END && told.length < before + LINES_OF_TOKEN) {
          if (size > 0) told.push(ended(pulse + 1))
          continue
        }
        if (size === 0) began = pulse
        if (size < MOST_LINE) {
          held[size] = byte
          bits[size] = each
        }
        size += 1
        cost += each
      }
    },
    end: (pulse) => (size === 0 ? [] : [ended(pulse)]),
    copy() {
      return createLineJudge(this.state())
    },
    elsewhere() {
      if (size > 0) {
        const whole = this.copy()
        whole.end(0)
        return whole.elsewhere()
      }
      const to = createWriter()
      judge.write(to)
      return createJudge(createReader(to.done()), true)
    },
    state() {
      const to = createWriter()
      to.u32(VERSION)
      for (const number of [size, began, cost, carried, count]) to.f64(number)
      const length = Math.min(size, MOST_LINE)
      to.bytes(held.subarray(0, length))
      for (const own of bits.subarray(0, length)) to.f64(own)
      judge.write(to)
      return to.done()
    },
  }
}
