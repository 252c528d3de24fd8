/**
 * Logs whose lines people have sorted by templates: tables (CSV) with the columns LineId, …, Content, EventId,
 * EventTemplate, as LogHub publishes them.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ContinuoError } from '../../src/errors.ts'

const CSV = '.csv'

export interface LogLine {
  /**
   * Time, host, level and what else stands before the message: the columns between LineId and Content, joined by
   * blanks.
   */
  readonly head: string
  readonly content: string
  /** Which template the line is of. */
  readonly event: string
}

export interface Log {
  readonly name: string
  readonly lines: readonly LogLine[]
}

/** Lines that every reader may learn from before it is judged: of its bits ("last"), and of what it finds. */
export const LEARNED = 1000
export const WARM = 100

/**
 * Records of a table by RFC 4180, its header first. Quoted fields may hold commas, line ends and doubled quotes. Throws
 * INVALID for a quote without an end.
 */
export const parseCsv = (text: string): readonly (readonly string[])[] => {
  const records: string[][] = []
  let record: string[] = []
  let at = 0
  while (at < text.length) {
    let field = ''
    if (text[at] === '"') {
      const began = at
      for (at += 1; ; at += 2) {
        const quote = text.indexOf('"', at)
        if (quote < 0)
          throw new ContinuoError('INVALID', `The quote at character ${began} has no end. Is the table cut off?`)
        field += text.slice(at, quote)
        at = quote
        if (text[at + 1] !== '"') break
        field += '"'
      }
      at += 1
    } else {
      const began = at
      while (at < text.length && text[at] !== ',' && text[at] !== '\n') at += 1
      field = text.slice(began, at)
      if (text[at] !== ',' && field.endsWith('\r')) field = field.slice(0, -1)
    }
    record.push(field)
    if (text[at] === ',') {
      at += 1
      if (at < text.length) continue
      record.push('')
    } else {
      if (text[at] === '\r') at += 1
      if (at < text.length && text[at] !== '\n')
        throw new ContinuoError('INVALID', `Expected a comma or a line end behind a quote, at character ${at}.`)
      at += 1
    }
    records.push(record)
    record = []
  }
  return records
}

/** The names of the logs in a folder, in order; none where there is no such folder. */
export const logsIn = (folder: string): readonly string[] =>
  (existsSync(folder) ? readdirSync(folder) : [])
    .filter((file) => file.endsWith(CSV))
    .map((file) => file.slice(0, -CSV.length))
    .sort()

/** Throws INVALID for a table without the columns, and for a log too short to judge by. */
export const readLog = (folder: string, name: string): Log => {
  const path = join(folder, `${name}${CSV}`)
  const [header = [], ...records] = parseCsv(readFileSync(path, 'utf8'))
  const content = header.indexOf('Content')
  const event = header.indexOf('EventId')
  if (content < 0 || event < 0)
    throw new ContinuoError(
      'INVALID',
      `${path} has the columns ${header.join(', ')}; expected Content and EventId too.`,
    )
  const first = header[0] === 'LineId' ? 1 : 0
  const lines = records.map((record) => ({
    head: record.slice(first, content).filter(Boolean).join(' '),
    content: record[content] ?? '',
    event: record[event] ?? '',
  }))
  if (lines.length <= LEARNED)
    throw new ContinuoError('INVALID', `${path} has ${lines.length} lines, expected more than ${LEARNED}.`)
  return { name, lines }
}

/** The text of each line: its message, or the whole line. */
export const textsOf = (lines: readonly LogLine[], whole: boolean): readonly string[] =>
  lines.map(({ head, content }) => (whole && head !== '' ? `${head} ${content}` : content))

/** Of each line, whether it is the first of its template. */
export const firstsOf = (lines: readonly LogLine[]): readonly boolean[] => {
  const seen = new Set<string>()
  return lines.map(({ event }) => seen.size < seen.add(event).size)
}

/** What a reader gets: the lines with a line end behind each. */
export const bytesOf = (texts: readonly string[]): Buffer => Buffer.from(texts.map((text) => `${text}\n`).join(''))
