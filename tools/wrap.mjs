// Wraps prose at 120 columns: comments of the TypeScript and JavaScript sources, and paragraphs and lists of the
// documents. A paragraph without a line that is too long stays as it is, and so do code, tables, figures and headings.
// With --write, writes; else names the files that it would change, and fails.
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const WIDTH = 120
const root = join(import.meta.dirname, '..')

/**
 * Words in lines of at most `WIDTH`, the first behind `first`, the others behind `rest`; a word that is longer has a
 * line of its own.
 */
const filled = (words, first, rest) => {
  const lines = []
  let line = first
  let isEmpty = true
  for (const word of words) {
    if (!isEmpty && line.length + 1 + word.length > WIDTH) {
      lines.push(line)
      line = rest
      isEmpty = true
    }
    line += isEmpty ? word : ` ${word}`
    isEmpty = false
  }
  return [...lines, line]
}

/** What begins a list, a quotation or a heading at the start of a line, be it a word of a sentence or a plus. */
const MARKER = /^(?:[-*+>]|#+|\d+[.)])$/

/** The parts of a text that may begin a line: its words, a marker together with the word before it. */
const wordsOf = (text) => {
  const words = []
  for (const word of text.trim().split(/ +/))
    words.push(words.length > 0 && MARKER.test(word) ? `${words.pop()} ${word}` : word)
  return words
}

/**
 * Lines of prose with each paragraph filled that has a line too long. `indent` stands before each line. A line that
 * begins with two spaces or more, a table's, a list's or a fence's ends a paragraph, and none of these but an item of a
 * list is filled.
 */
const wrapped = (lines, indent) => {
  const out = []
  let isCode = false
  for (let at = 0; at < lines.length; ) {
    const line = lines[at]
    if (/^\s*\x60{3}/.test(line)) isCode = !isCode
    const item =
      /^( *(?:[-*]|\d+\.) +)\S/.exec(line)?.[1] ?? (/^ {2,}|^[|#<>@]|^\s*$|^\s*\x60{3}|[│─┌└├▶]/.test(line) ? null : '')
    if (isCode || item === null) {
      out.push(indent + line)
      at += 1
      continue
    }
    const hanging = ' '.repeat(item.length)
    let end = at + 1
    while (
      end < lines.length &&
      lines[end].startsWith(hanging) &&
      !/^\s*$|^ *(?:[-*]|\d+\.) +\S|^ *[|#<>@]|^ *\x60{3}|[│─┌└├▶]/.test(lines[end]) &&
      !/^ /.test(lines[end].slice(hanging.length))
    )
      end += 1
    const paragraph = lines.slice(at, end)
    if (
      paragraph.some((each) => indent.length + each.length > WIDTH) &&
      !paragraph.some((each) => / {2}/.test(each.trim()))
    )
      out.push(...filled(wordsOf(paragraph.join(' ').slice(item.length)), indent + item, indent + hanging))
    else out.push(...paragraph.map((each) => indent + each))
    at = end
  }
  return out
}

/** A document. Two spaces or a backslash at a line's end are a break, so such a paragraph stays. */
const document = (text) => wrapped(text.split('\n'), '').join('\n')

/**
 * Whether a text behind this line of code lies in a template, by its backticks. One in a string turns it round: then
 * later comments stay as they are.
 */
const inTemplate = (was, line) => ((line.match(/(?<!\\)`/g)?.length ?? 0) % 2 === 1 ? !was : was)

/** The comment that begins on this line of its own: its words, and what stands around them; null: there is none. */
const commentFrom = (lines, at) => {
  const [, indent, opening] = /^( *)(\/\/|\/\*\*?)(?= |$)/.exec(lines[at]) ?? []
  if (opening === undefined) return null
  let end = at + 1
  if (opening === '//') {
    while (end < lines.length && new RegExp(`^${indent}//( |$)`).test(lines[end])) end += 1
    const body = lines.slice(at, end).map((line) => line.slice(indent.length + 3))
    return { end, body, before: null, prefix: `${indent}// `, after: null }
  }
  while (end <= lines.length && !lines[end - 1].includes('*/')) end += 1
  if (end > lines.length || !lines[end - 1].endsWith('*/')) return null
  const body = lines
    .slice(at, end)
    .map((line, n) =>
      n === 0 ? line.slice(indent.length + opening.length).replace(/^ /, '') : line.replace(/^\s*\* ?(?!\/)/, ''),
    )
  body[body.length - 1] = body.at(-1).replace(/\s*\*\/$/, '')
  if (body[0] === '') body.shift()
  if (body.at(-1)?.trim() === '') body.pop()
  return { end, body, before: indent + opening, prefix: `${indent} * `, after: `${indent} */` }
}

/** A source in TypeScript or JavaScript: its comments on lines of their own. */
const source = (text) => {
  const lines = text.split('\n')
  const out = []
  let template = false
  for (let at = 0; at < lines.length; ) {
    const comment = template ? null : commentFrom(lines, at)
    if (comment === null) {
      template = inTemplate(template, lines[at])
      out.push(lines[at])
      at += 1
      continue
    }
    const { end, body, before, prefix, after } = comment
    const was = lines.slice(at, end)
    const isLong = was.some((line) => line.length > WIDTH) && !body.some((line) => /biome-ignore|@ts-/.test(line))
    const better = [before, ...wrapped(body, prefix).map((line) => line.trimEnd()), after]
    out.push(...(isLong ? better.filter((line) => line !== null) : was))
    at = end
  }
  return out.join('\n')
}

/** Written by tools/reference.ts. */
const GENERATED = ['docs/commands.md', 'docs/events.md']

const { stdout } = spawnSync('git', ['ls-files', '*.ts', '*.js', '*.mjs', '*.md'], { cwd: root, encoding: 'utf8' })
const files = stdout
  .trim()
  .split('\n')
  .filter((file) => !GENERATED.includes(file))
const long = files.filter((file) => {
  const path = join(root, file)
  const text = readFileSync(path, 'utf8')
  const better = file.endsWith('.md') ? document(text) : source(text)
  if (better === text) return false
  if (process.argv.includes('--write')) writeFileSync(path, better)
  return true
})
if (long.length > 0 && !process.argv.includes('--write')) {
  console.error(
    `Prose that is longer than ${WIDTH} columns: npm run format wraps it in ${long.slice(0, 5).join(', ')}${long.length > 5 ? ` and ${long.length - 5} more` : ''}.`,
  )
  process.exit(1)
}
