/** Printing: lines, JSON lines, tables, numbers for people. */

export const print = (line: string): void => void process.stdout.write(`${line}\n`)
export const printJson = (value: unknown): void => void process.stdout.write(`${JSON.stringify(value)}\n`)
/** Beside the output: what happened, what to do. */
export const say = (line: string): void => void process.stderr.write(`${line}\n`)

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

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it is about.
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g

/** Text from outside as a terminal may see it: a control sequence in a document must not command the terminal. */
export const printable = (text: string): string => (process.stdout.isTTY ? text.replace(CONTROLS, '\u{fffd}') : text)

/** One line of at most `width` characters, quoted like JSON. */
export const preview = (text: string, width = 60): string => {
  const quoted = JSON.stringify(text).replace(CONTROLS, '\u{fffd}')
  return quoted.length <= width ? quoted : `${quoted.slice(0, width - 1)}…`
}

/** A word as a shell takes it for one. */
export const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`

/** Columns that begin with `>` stand right. */
export const table = (header: readonly string[], rows: readonly (readonly string[])[]): string => {
  const names = header.map((name) => name.replace(/^>/, ''))
  const widths = names.map((name, at) => Math.max(name.length, ...rows.map((row) => row[at]!.length)))
  const format = (row: readonly string[]): string =>
    row
      .map((cell, at) => (header[at]!.startsWith('>') ? cell.padStart(widths[at]!) : cell.padEnd(widths[at]!)))
      .join('  ')
      .trimEnd()
  return [names, ...rows].map(format).join('\n')
}
