/**
 * The grammar of an answer that may call tools: a text in which no call begins, then calls, each with arguments that
 * its tool's schema describes.
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

/** Arguments are an object, whatever else a schema would let through. Throws INVALID for one that describes none. */
const ofObject = (schema: unknown): unknown => {
  if (typeof schema === 'boolean') return schema ? { type: 'object' } : schema
  const { type } = schema as { readonly type?: unknown }
  if (type !== undefined && type !== 'object' && !(Array.isArray(type) && type.includes('object')))
    refuse(`Its schema describes values of the type ${JSON.stringify(type)}, expected "object": arguments have names.`)
  return { ...(schema as object), type: 'object' }
}

export const callsRule = ({ open, close, between, before, middle, after, tools, text, most }: Calls): Rule => {
  for (const { name, schema } of tools) {
    const fault = refusalOf(() => checkSize(schema))
    if (fault !== null) refuse(`The tool "${name}": ${fault}`)
  }
  checkSize(tools.map(({ schema }) => schema))
  const each = tools.map(({ name, schema }) => {
    let rule: Rule | null = null
    const fault = refusalOf(() => {
      rule = schemaRule(ofObject(schema))
    })
    if (rule === null) return refuse(`The tool "${name}": ${fault}`)
    return sequence(word(`${before}${name}${middle}`), use(rule), word(after))
  })
  const one = use(ruleOf('a call', either(...each)))
  const calls =
    most === 0 ? null : sequence(word(open), one, repeat(sequence(word(between), one), 0, most - 1), word(close))
  if (!text) return ruleOf('calls', calls ?? EMPTY)
  const trigger = `${open}${before}`
  const [first, ...rest] = [...trigger]
  if (first === undefined || rest.length === 0 || rest.includes(first))
    return refuse(
      `Calls begin with ${JSON.stringify(trigger)}, expected two characters at least, the first of which stands nowhere else there.`,
    )
  const free = use(ruleOf('a text', withoutText(trigger)))
  return ruleOf('a text or calls', calls === null ? free : sequence(free, either(EMPTY, calls)))
}
