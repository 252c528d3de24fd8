/** Log messages of a worker, by pino, to stderr: JSON lines, or short lines on a terminal. */
import { type DestinationStream, type Logger, pino } from 'pino'
import { escaped } from '../terminal.ts'

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

export interface LoggerOptions {
  readonly level: LogLevel
  /** Takes whole lines. */
  readonly write: (line: string) => void
  /** Short lines instead of JSON. */
  readonly short: boolean
}

/** Columns of the time and the level. */
const INDENT = 15
const HIDDEN = ['level', 'time', 'msg', 'pid', 'hostname', 'err']

const shorten = (line: string): string => {
  const entry = JSON.parse(line) as { level: number; time: number; msg?: string } & Record<string, unknown>
  const at = new Date(entry.time).toISOString().slice(11, 19)
  const fields = Object.entries(entry)
    .filter(([name]) => !HIDDEN.includes(name))
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
  const label = pino.levels.labels[entry.level] ?? String(entry.level)
  const said = `${entry.msg ?? ''}${fields.length === 0 ? '' : `  (${fields.join(' ')})`}`
  // What follows a line end stands below the message, so that no text from outside looks like a line of the log.
  return `${at} ${label.padEnd(5)} ${escaped(said).replaceAll('\n', `\n${' '.repeat(INDENT)}`)}\n`
}

export const createLogger = ({ level, write, short }: LoggerOptions): Logger => {
  const destination: DestinationStream = { write: short ? (line) => write(shorten(line)) : write }
  return pino({ level, base: null }, destination)
}

export type { Logger } from 'pino'
