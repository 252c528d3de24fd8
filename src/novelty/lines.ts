/**
 * The lines of a stream of tokens, each judged when its end is read; or its records of several lines, judged when the
 * first line of the next one has ended. Where a line ends depends on the bytes alone, so the same lines are judged
 * whatever pieces the stream came in. What has not ended is a part of the state.
 */
import { LINES_OF_TOKEN, type LineNovelty } from '../../topics/novelty.ts'
import { textOf } from '../text.ts'
import { type ByteReader, type ByteWriter, createReader, createWriter, isCount, Unreadable } from './bytes.ts'
import { createJudge, type Novelty, type NoveltyJudge, type Standing } from './judge.ts'

const LINE_END = 0x0a
const RETURN = 0x0d
/** Bytes of a line behind these cost what they cost, and are not looked at. */
const MOST_LINE = 4096
/** A record ends where it would be longer, so that one is told of where no line begins another. */
const MOST_RECORD = 1 << 20
/** What nothing predicts, the first byte of a context, in bits. */
const UNPREDICTED = 8
/** The rank from which on a line's text, pattern and words are told, and characters of them. */
const TOLD_RANK = 0.95
const TOLD_TEXT = 200
const TOLD_WORD = 40
const VERSION = 4
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const CONTROLS = /[\u0000-\u0009\u000b-\u001f\u007f]/g
const LONE_HALF = /[\ud800-\udbff]$/

/** Whether a line begins a record. Lines that do not are joined to the one before; null: each line is a record. */
export type Begins = ((line: Uint8Array) => boolean) | null

/** Judges the lines of one session. */
export interface LineJudge {
  /**
   * Reads a token of these bytes, fed at this pulse; `nats`: NaN where nothing predicted it. Adds the lines, or
   * records, that it ends to `told`.
   */
  token(bytes: Uint8Array, nats: number, pulse: number, told: LineNovelty[], begins?: Begins): void
  /** Judges what was read of a line or record as a whole one, at the end of a text; `pulse`: of the next token. */
  end(pulse: number, begins?: Begins): readonly LineNovelty[]
  /** One that goes on by itself. */
  copy(): LineJudge
  /** What judges lines with what it remembers of them, for another stream. A line that has not ended ends here. */
  elsewhere(): NoveltyJudge
  /** All of it, for `createLineJudge`; the same bytes wherever the same was read. */
  state(): Uint8Array
}

/**
 * Bytes that were read: how many, of which the first are held with the bits of each; the pulse of the first; what they
 * cost, bits.
 */
interface Piece {
  size: number
  began: number
  cost: number
  readonly held: Uint8Array
  readonly bits: Float64Array
}

const createPiece = (): Piece => ({
  ...{ size: 0, began: 0, cost: 0 },
  ...{ held: new Uint8Array(MOST_LINE), bits: new Float64Array(MOST_LINE) },
})

const heldOf = ({ size }: Piece): number => Math.min(size, MOST_LINE)

const append = (piece: Piece, byte: number, bits: number, pulse: number): void => {
  if (piece.size === 0) piece.began = pulse
  if (piece.size < MOST_LINE) {
    piece.held[piece.size] = byte
    piece.bits[piece.size] = bits
  }
  piece.size += 1
  piece.cost += bits
}

/** `next` behind a line end of these bits. What of it was not held is not held there either. */
const join = (piece: Piece, next: Piece, bits: number): void => {
  const { size, cost } = next
  const held = heldOf(next)
  append(piece, LINE_END, bits, next.began)
  const room = Math.max(0, Math.min(held, MOST_LINE - piece.size))
  piece.held.set(next.held.subarray(0, room), Math.min(piece.size, MOST_LINE))
  piece.bits.set(next.bits.subarray(0, room), Math.min(piece.size, MOST_LINE))
  piece.size += size
  piece.cost += cost
}

const empty = (piece: Piece): void => {
  piece.size = 0
  piece.cost = 0
}

const readPiece = (from: ByteReader): Piece => {
  const piece = createPiece()
  piece.size = from.f64()
  piece.began = from.f64()
  piece.cost = from.f64()
  if (!isCount(piece.size) || !isCount(piece.began)) throw new Unreadable('has a line of no length')
  if (!isCost(piece.cost)) throw new Unreadable('has a line that nothing can cost')
  const length = heldOf(piece)
  piece.held.set(from.bytes(length))
  for (let at = 0; at < length; at += 1) piece.bits[at] = from.f64()
  if (!piece.bits.every(isCost)) throw new Unreadable('has a byte that nothing can cost')
  return piece
}

const writePiece = (piece: Piece, to: ByteWriter): void => {
  for (const number of [piece.size, piece.began, piece.cost]) to.f64(number)
  const length = heldOf(piece)
  to.bytes(piece.held.subarray(0, length))
  for (const own of piece.bits.subarray(0, length)) to.f64(own)
}

/** So that sums of them stay numbers. The largest surprisal of a token is some 1e39 bits. */
const isCost = (bits: number): boolean => Math.abs(bits) <= 1e50
/** Never −0, which JSON would change. */
const rounded = (number: number): number => Math.round(number * 1000) / 1000 + 0
const standing = ({ score, rank }: Standing): Standing => ({ score: Math.max(0, rounded(score)), rank })
/**
 * Characters that JSON writes as six bytes are replaced, so that an observation has a bound. A record has line ends.
 */
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
  /**
   * Bits of tokens without bytes; lines told before; and of the record behind `record`: the pulse behind its last
   * line's end, whose bits these are.
   */
  let [carried, count, to, ending] = [0, 0, 0, 0]
  let [line, record]: [Piece, Piece | null] = [createPiece(), null]
  if (reader !== undefined) {
    carried = reader.f64()
    count = reader.f64()
    to = reader.f64()
    ending = reader.f64()
    if (!isCount(count) || !isCount(to)) throw new Unreadable('has no number of lines')
    if (!isCost(carried) || !isCost(ending)) throw new Unreadable('has a line that nothing can cost')
    line = readPiece(reader)
    if (reader.count(1) === 1) record = readPiece(reader)
    if (record?.size === 0) throw new Unreadable('has a record without a line')
  }
  const judge = createJudge(reader)
  reader?.end()

  /** What is told of a piece that ended; it is empty then. */
  const ended = (piece: Piece, pulse: number): LineNovelty => {
    const all = heldOf(piece)
    const length = all > 0 && all === piece.size && piece.held[all - 1] === RETURN ? all - 1 : all
    const text = piece.held.subarray(0, length)
    const novelty = judge.judge(text, piece.bits.subarray(0, length), piece.began)
    count += 1
    const told = toldOf(novelty, text, {
      line: count,
      fromPulse: piece.began,
      toPulse: pulse,
      bytes: piece.size,
      bits: rounded(piece.cost),
    })
    empty(piece)
    return told
  }

  /** The line, which ended at `pulse` with an end of these bits, becomes the last one of the record, or its first. */
  const joinLine = (bits: number, pulse: number): void => {
    record ??= createPiece()
    if (record.size > 0) {
      join(record, line, ending)
      empty(line)
    } else [record, line] = [line, record]
    to = pulse
    ending = bits
  }

  const endRecord = (): LineNovelty[] => (record === null || record.size === 0 ? [] : [ended(record, to)])

  /** What a line that ended at `pulse` ends: itself, or the record before it. */
  const endLine = (bits: number, pulse: number, begins: Begins): LineNovelty[] => {
    const before = record?.size ?? 0
    if (begins === null) {
      if (before === 0) return [ended(line, pulse)]
      // Records are joined no longer: this line is the last that was.
      joinLine(bits, pulse)
      return endRecord()
    }
    const isFirst = before + 1 + line.size > MOST_RECORD || begins(line.held.subarray(0, heldOf(line)))
    const told = isFirst ? endRecord() : []
    joinLine(bits, pulse)
    return told
  }

  return {
    token(bytes, nats, pulse, told, begins = null) {
      carried += Number.isNaN(nats) ? bytes.length * UNPREDICTED : nats / Math.LN2
      if (bytes.length === 0) return
      const each = carried / bytes.length
      carried = 0
      const before = told.length
      for (const byte of bytes) {
        if (byte !== LINE_END || told.length >= before + LINES_OF_TOKEN) append(line, byte, each, pulse)
        else if (line.size > 0) told.push(...endLine(each, pulse + 1, begins))
      }
    },
    end: (pulse, begins = null) => [...(line.size === 0 ? [] : endLine(0, pulse, begins)), ...endRecord()],
    copy() {
      return createLineJudge(this.state())
    },
    elsewhere() {
      if (line.size > 0 || (record?.size ?? 0) > 0) {
        const whole = this.copy()
        whole.end(0)
        return whole.elsewhere()
      }
      const own = createWriter()
      judge.write(own)
      return createJudge(createReader(own.done()), true)
    },
    state() {
      const own = createWriter()
      own.u32(VERSION)
      for (const number of [carried, count, to, ending]) own.f64(number)
      writePiece(line, own)
      const isJoined = record !== null && record.size > 0
      own.u32(isJoined ? 1 : 0)
      if (isJoined) writePiece(record!, own)
      judge.write(own)
      return own.done()
    },
  }
}
