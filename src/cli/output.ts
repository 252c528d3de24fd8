/**
 * Printing: lines, JSON lines, tables, numbers for people. What goes to a terminal commands it nowhere (terminal.ts); a
 * pipe gets every byte.
 */
import type { StoredRecord } from '../streams/log.ts'
import { escaped, escapedAround, escapedJson, inCell } from '../terminal.ts'

/** Characters of a cell of a table: an id may have thousands. */
const MOST_CELL = 80

export const print = (line: string): void =>
  void process.stdout.write(`${process.stdout.isTTY ? escapedAround(line) : line}\n`)
export const printJson = (value: unknown): void => {
  const json = JSON.stringify(value)
  process.stdout.write(`${process.stdout.isTTY ? escapedJson(json) : json}\n`)
}
/** One row of a list, whatever stands in it. */
export const printRow = (text: string): void => print(inCell(text, Number.POSITIVE_INFINITY))
/** A name from outside as a part of a row; JSON has it whole. */
export const shortName = (name: string): string => inCell(name, MOST_CELL)
/** Beside the output: what happened, what to do. */
export const say = (line: string): void =>
  void process.stderr.write(`${process.stderr.isTTY ? escapedAround(line) : line}\n`)

export const count = (value: number): string => Math.round(value).toLocaleString('en-US')

export const plural = (value: number, one: string, many = `${one}s`): string =>
  `${count(value)} ${value === 1 ? one : many}`

export const bytes = (value: number): string => {
  if (value < 1000) return `${value} B`
  if (value < 1e6) return `${(value / 1e3).toFixed(1)} kB`
  return value < 1e9 ? `${(value / 1e6).toFixed(1)} MB` : `${(value / 1e9).toFixed(2)} GB`
}

/** nats → bits, per predicted byte or token; null where nothing was predicted. */
export const bitsPer = (nats: number, predictions: number): number | null =>
  predictions === 0 ? null : nats / Math.LN2 / predictions

/** Text that is written without a line end. */
export const write = (text: string): void => void process.stdout.write(process.stdout.isTTY ? escaped(text) : text)

/** One line of at most `width` characters, quoted like JSON. */
export const preview = (text: string, width = 60): string => {
  const quoted = escaped(JSON.stringify(text))
  return quoted.length <= width ? quoted : `${quoted.slice(0, width - 1)}…`
}

/** A word as a shell takes it for one. */
export const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`

/**
 * Columns that begin with `>` stand right. Cells are one row, and cut in the middle where they are long; those of the
 * last column are not cut.
 */
export const table = (header: readonly string[], given: readonly (readonly string[])[]): string => {
  const rows = given.map((row) =>
    row.map((cell, at) => inCell(cell, at === header.length - 1 ? Number.POSITIVE_INFINITY : MOST_CELL)),
  )
  const names = header.map((name) => name.replace(/^>/, ''))
  const widths = names.map((name, at) => Math.max(name.length, ...rows.map((row) => row[at]!.length)))
  const format = (row: readonly string[]): string =>
    row
      .map((cell, at) => (header[at]!.startsWith('>') ? cell.padStart(widths[at]!) : cell.padEnd(widths[at]!)))
      .join('  ')
      .trimEnd()
  return [names, ...rows].map(format).join('\n')
}

/** Of a record of an output topic that holds no event. */
export const noEvent = ({ topic, partition, offset }: StoredRecord): string =>
  `${topic}, partition ${partition}, offset ${offset}: the record is no event of Continuo and is left out. Its value was altered, or somebody else wrote it; continuo verify names all of them.`
