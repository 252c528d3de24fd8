// Wraps prose at 120 columns: comments of the TypeScript and JavaScript sources, and paragraphs and lists of the documents. A paragraph without a line that
// is too long stays as it is, and so do code, tables, figures and headings. With --write, writes; else names the files that it would change, and fails.
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'

const WIDTH = 120
const root = join(import.meta.dirname, '..')

/** Words in lines of at most `WIDTH`, the first behind `first`, the others behind `rest`; a word that is longer has a line of its own. */
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

/** Words between spaces; a `span` of code or a [link](with spaces) is one word in documents, for no renderer joins its halves as they were. */
const wordsOf = (text) => text.trim().split(/ +/)

/**
 * Lines of prose with each paragraph filled that has a line too long. `indent` stands before each line. A line that begins with two spaces or more, a
 * table's, a list's or a fence's ends a paragraph, and none of these but an item of a list is filled.
 */
const wrapped = (lines, indent) => {
  const out = []
  let isCode = false
  for (let at = 0; at < lines.length; ) {
    const line = lines[at]
    if (/^\s*```/.test(line)) isCode = !isCode
    const item =
      /^( *(?:[-*]|\d+\.) +)\S/.exec(line)?.[1] ?? (/^ {2,}|^[|#<>@]|^\s*$|^\s*```|[│─┌└├▶]/.test(line) ? null : '')
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
      !/^\s*$|^ *(?:[-*]|\d+\.) +\S|^ *[|#<>@]|^ *```|[│─┌└├▶]/.test(lines[end]) &&
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

/** The comments of a source that stand on lines of their own: from, to. */
const commentsOf = (text, path) => {
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true)
  const found = new Map()
  const visit = (node) => {
    if (node.kind < ts.SyntaxKind.FirstNode || node.kind === ts.SyntaxKind.EndOfFileToken)
      for (const { pos, end } of [
        ...(ts.getLeadingCommentRanges(text, node.getFullStart()) ?? []),
        ...(ts.getTrailingCommentRanges(text, node.getEnd()) ?? []),
      ])
        found.set(pos, end)
    for (const child of node.getChildren(source)) if (child.kind !== ts.SyntaxKind.JSDoc) visit(child)
  }
  visit(source)
  return [...found].sort(([a], [b]) => a - b)
}

const source = (text, path) => {
  let out = ''
  let copied = 0
  const comments = commentsOf(text, path)
  for (let at = 0; at < comments.length; at += 1) {
    const [from, first] = comments[at]
    const begin = text.lastIndexOf('\n', from - 1) + 1
    const indent = text.slice(begin, from)
    if (indent.trim() !== '') continue
    let to = first
    let lines
    if (text.startsWith('//', from)) {
      while (
        at + 1 < comments.length &&
        text.slice(to, comments[at + 1][0]) === `\n${indent}` &&
        text.startsWith('//', comments[at + 1][0])
      )
        to = comments[++at][1]
      const parts = text
        .slice(from, to)
        .split('\n')
        .map((line) => line.trim())
      if (parts.some((line) => /^\/\/(?! |$)|biome-ignore|@ts-/.test(line))) continue
      lines = wrapped(
        parts.map((line) => line.slice(3)),
        `${indent}// `,
      ).map((line) => line.trimEnd())
    } else {
      const closes = text.indexOf('\n', to)
      const after = text.slice(to, closes < 0 ? text.length : closes)
      const whole = text.slice(from, to)
      const opening = /^\/\*\*?/.exec(whole)[0]
      if (
        after.trim() !== '' ||
        !whole.split('\n').some((line, n) => (n === 0 ? indent.length : 0) + line.length > WIDTH)
      )
        continue
      const body = whole
        .slice(opening.length, -2)
        .split('\n')
        .map((line, n) => (n === 0 ? line.replace(/^ /, '') : line.replace(/^\s*\* ?/, '')).trimEnd())
      while (body.length > 0 && body[0] === '') body.shift()
      while (body.length > 0 && body.at(-1) === '') body.pop()
      lines = [`${indent}${opening}`, ...wrapped(body, `${indent} * `).map((line) => line.trimEnd()), `${indent} */`]
    }
    out += text.slice(copied, begin) + lines.join('\n')
    copied = to
  }
  return out + text.slice(copied)
}

const files = spawnSync('git', ['ls-files', '*.ts', '*.js', '*.mjs', '*.md'], { cwd: root, encoding: 'utf8' })
  .stdout.trim()
  .split('\n')
const long = files.filter((file) => {
  const path = join(root, file)
  const text = readFileSync(path, 'utf8')
  const better = file.endsWith('.md') ? document(text) : source(text, file)
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
