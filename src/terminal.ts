/**
 * Text from outside on a terminal: ids, reasons, lines and texts that others wrote must not command it, set its title,
 * turn its letters round or forge rows. All that the command line and the logs print goes through here (cli/output.ts,
 * observe/log.ts).
 */

const OTHERS = '\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069'
const LONE = '[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]'
/**
 * Control characters but line end and tab, marks of direction, separators of lines and paragraphs, halves of
 * characters.
 */
const UNSAFE = new RegExp(`[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f${OTHERS}]|${LONE}`, 'g')
/** Bold, dim, underlined, colours, and their ends: what `styleText` writes. Concealed text is not among it. */
const STYLE = String.raw`\u001b\[(?:1|2|3|4|22|23|24|3[0-79]|9[0-7])m`
const STYLED = new RegExp(`(${STYLE})`, 'g')
const REPLACED = '\ufffd'

/** The text with a mark in place of each character that a terminal would obey. */
export const escaped = (text: string): string => text.replace(UNSAFE, REPLACED)

/** The same of a text that may be styled. */
export const escapedAround = (text: string): string =>
  text
    .split(STYLED)
    .map((part, i) => (i % 2 === 1 ? part : escaped(part)))
    .join('')

/** JSON that says the same with no such character in it. */
export const escapedJson = (json: string): string =>
  json.replace(UNSAFE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)

/** The text in one row, of `most` characters: its middle is left out. */
export const inCell = (text: string, most: number): string => {
  const row = text.replace(/[\n\t]/g, REPLACED)
  if (row.length <= most) return row
  const half = (most - 1) >> 1
  return `${row.slice(0, half)}…${row.slice(row.length - half)}`
}
