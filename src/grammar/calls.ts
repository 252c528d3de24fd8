/**
 * The grammar of an answer that may call tools: a text in which no call begins, then calls, each with arguments that its tool's schema describes.
 */
import type { Grammar } from '../../topics/chunks.ts'
import { ANY, among, without } from './chars.ts'
import {
  chars,
  EMPTY,
  type Expression,
  either,
  type Rule,
  repeat,
  ruleOf,
  sequence,
  use,
  word,
  words,
} from './expression.ts'
import { checkSize, schemaRule } from './json-schema.ts'
import { refusalOf, refuse } from './limits.ts'

type Calls = Extract<Grammar, { type: 'calls' }>

/** The text that all of these begin with. */
const commonBeginning = (texts: readonly string[]): string => {
  let common = texts[0] ?? ''
  for (const text of texts) while (!text.startsWith(common)) common = common.slice(0, -1)
  return common.isWellFormed() ? common : common.slice(0, -1)
}

/** The text that begins every call, up to the name of the tool: a text has it whatever name follows. */
const triggerOf = ({ open, tools }: Pick<Calls, 'open' | 'tools'>): string =>
  commonBeginning(
    tools.map(({ before, name }) => `${open}${before.includes(name) ? before.slice(0, before.indexOf(name)) : before}`),
  )

/** Texts in which `sought` does not stand. Its first character stands nowhere else in it. */
const withoutText = (sought: string): Expression => {
  const all = [...sought]
  const [first] = all
  const beginnings = all.slice(1).map((next, at) => ({ text: all.slice(0, at + 1).join(''), next }))
  // What has begun ends at a character that does not go on with it; one that begins it anew is read as that.
  const begun = repeat(words(beginnings.map(({ text }) => text)), 0)
  const ends = beginnings.map(({ text, next }) => sequence(word(text), chars(without(ANY, among(`${first}${next}`)))))
  const others = chars(without(ANY, among(first!)))
  const piece = either(others, sequence(begun, either(...ends)))
  return sequence(repeat(piece, 0), begun)
}

export const callsRule = ({ open, close, between, tools, text, most }: Calls): Rule => {
  for (const { name, schema } of tools) {
    const fault = refusalOf(() => checkSize(schema))
    if (fault !== null) refuse(`The tool "${name}": ${fault}`)
  }
  checkSize(tools.map(({ schema }) => schema))
  const each = tools.map(({ name, before, schema, after }) => {
    let rule: Rule | null = null
    const fault = refusalOf(() => {
      rule = schemaRule(schema)
    })
    if (rule === null) return refuse(`The tool "${name}": ${fault}`)
    return sequence(word(before), use(rule), word(after))
  })
  const one = use(ruleOf('a call', either(...each)))
  const calls =
    most === 0 ? null : sequence(word(open), one, repeat(sequence(word(between), one), 0, most - 1), word(close))
  if (!text) return ruleOf('calls', calls ?? EMPTY)
  const trigger = triggerOf({ open, tools })
  const [first, ...rest] = [...trigger]
  if (first === undefined || rest.length === 0 || rest.includes(first))
    return refuse(
      `Calls begin with ${JSON.stringify(trigger)}, expected two characters at least, the first of which stands nowhere else there.`,
    )
  const free = use(ruleOf('a text', withoutText(trigger)))
  return ruleOf('a text or calls', calls === null ? free : sequence(free, either(EMPTY, calls)))
}
