/** A stream of bytes as records: lines, or several lines joined, where only some begin a record. */
import { ContinuoError } from '../errors.ts'

const LINE_END = 0x0a
const RETURN = 0x0d
/** A longer record is cut, so that a stream without line ends takes no memory without end. */
export const MOST_RECORD_BYTES = 1 << 20

export interface Lines {
  /** The records that are whole now. */
  push(bytes: Uint8Array): readonly Uint8Array[]
  /** What is left at the end. */
  flush(): readonly Uint8Array[]
}

/**
 * `begins`: what the first line of a record matches; lines that do not match are joined to the one before, with their
 * line ends. Records are without their last line end.
 */
export const createLines = (begins: RegExp | null = null): Lines => {
  let held: Buffer = Buffer.alloc(0)
  /** The lines of the record that is not whole yet. */
  let parts: Buffer[] = []
  let size = 0

  const withoutReturn = (line: Buffer): Buffer => (line.at(-1) === RETURN ? line.subarray(0, -1) : line)

  const joined = (): readonly Uint8Array[] =>
    parts.length === 0
      ? []
      : [Buffer.concat(parts.flatMap((line, i) => (i === 0 ? [line] : [Buffer.of(LINE_END), line])))]

  /** The record before, where this line begins another one. */
  const take = (line: Buffer): readonly Uint8Array[] => {
    if (begins === null) return [line]
    const goesOn =
      parts.length > 0 && size + 1 + line.length <= MOST_RECORD_BYTES && !begins.test(line.toString('utf8'))
    const before = goesOn ? [] : joined()
    // A copy: the piece that it came in would stay in memory with it.
    const own = Buffer.from(line)
    if (goesOn) parts.push(own)
    else parts = [own]
    size = goesOn ? size + 1 + line.length : line.length
    return before
  }

  return {
    push(bytes) {
      const all = Buffer.concat([held, bytes])
      const records: Uint8Array[] = []
      let from = 0
      for (;;) {
        const end = all.indexOf(LINE_END, from)
        if (end < 0 && all.length - from < MOST_RECORD_BYTES) break
        const to = end < 0 || end - from > MOST_RECORD_BYTES ? from + MOST_RECORD_BYTES : end
        records.push(...take(withoutReturn(all.subarray(from, to))))
        from = to === end ? to + 1 : to
      }
      held = all.subarray(from)
      return records
    },
    flush() {
      const records = held.length > 0 ? [...take(withoutReturn(held))] : []
      records.push(...joined())
      held = Buffer.alloc(0)
      parts = []
      return records
    },
  }
}

/** The regular expression of `--join`. Throws INVALID for one that is none. */
export const beginsOf = (source: string): RegExp => {
  try {
    return new RegExp(source, 'u')
  } catch (error) {
    throw new ContinuoError(
      'INVALID',
      `--join is ${JSON.stringify(source)}, expected a regular expression: ${(error as Error).message}.`,
    )
  }
}
