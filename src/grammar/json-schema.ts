/**
 * JSON Schema (2020-12), as far as a grammar can promise it: every answer that ends is valid. It may be narrower than
 * the schema: members stand in the schema's order, and other members are written only where `additionalProperties` asks
 * for them or there are no `properties`. A keyword that is not known here is refused, since an answer that breaks it
 * would be none.
 */
import { ANY, among, charsOf, without } from './chars.ts'
import { areDisjoint, isObject, type Json } from './disjoint.ts'
import {
  chars,
  EMPTY,
  type Expression,
  either,
  NOTHING,
  type Rule,
  repeat,
  ruleOf,
  sequence,
  use,
  word,
  words,
} from './expression.ts'
import {
  anyArray,
  anyInteger,
  anyNumber,
  anyObject,
  anyString,
  anyValue,
  COLON,
  COMMA,
  escaped,
  SPACE,
  stringChar,
  stringOf,
} from './json.ts'
import { FORMATS } from './json-formats.ts'
import { numbersBetween } from './json-numbers.ts'
import { MOST_BYTES, MOST_LEVELS, refuse } from './limits.ts'
import { regexOf } from './regex.ts'

const ANNOTATIONS = new Set(
  ['title', 'description', 'default', 'examples', '$comment', 'deprecated', 'readOnly', 'writeOnly', '$schema'].concat([
    '$defs',
    'definitions',
  ]),
)
const OF_TYPE = {
  object: ['properties', 'required', 'additionalProperties', 'propertyNames'],
  array: ['items', 'prefixItems', 'minItems', 'maxItems'],
  string: ['minLength', 'maxLength', 'pattern', 'format'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  integer: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  boolean: [],
  null: [],
} as const satisfies Readonly<Record<string, readonly string[]>>
type Type = keyof typeof OF_TYPE
const TYPES = Object.keys(OF_TYPE) as Type[]
/** Types of a schema that names none; an integer is a number. */
const DISJOINT = TYPES.filter((type) => type !== 'integer')
const COMBINING = ['$ref', 'anyOf', 'oneOf', 'allOf', 'enum', 'const'] as const
/** Schemas of one "oneOf": each is compared with each other. */
const MOST_ALTERNATIVES = 256
const KNOWN: ReadonlySet<string> = new Set(['type', ...COMBINING, ...Object.values(OF_TYPE).flat()])

const isOf = (value: unknown, type: Type): boolean => {
  switch (type) {
    case 'object':
      return isObject(value)
    case 'array':
      return Array.isArray(value)
    case 'integer':
      return Number.isInteger(value)
    case 'null':
      return value === null
    default:
      return typeof value === type
  }
}

/** Throws INVALID for what is too large or nested too deeply. */
export const checkSize = (schema: unknown): void => {
  let level: readonly unknown[] = [schema]
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > MOST_LEVELS)
      refuse(`The schema is nested deeper than ${MOST_LEVELS} levels of JSON. Name parts in "$defs".`)
    level = level.flatMap((value) => (typeof value === 'object' && value !== null ? Object.values(value) : []))
  }
  const bytes = Buffer.byteLength(JSON.stringify(schema))
  if (bytes > MOST_BYTES) refuse(`The schema has ${bytes} bytes of JSON, expected at most ${MOST_BYTES}.`)
}

const pointerText = (name: string): string => name.replaceAll('~', '~0').replaceAll('/', '~1')

const PLAIN_NAME = without(without(ANY, among('"\\')), charsOf([[0, 0x1f]]))

/** Strings of plain characters that are none of these. */
const otherNames = (names: readonly string[]): Expression => {
  interface Branch {
    readonly rule: Rule
    readonly next: Map<number, Branch>
    taken: boolean
  }
  const branch = (): Branch => ({ rule: ruleOf('the name of another member'), next: new Map(), taken: false })
  const root = branch()
  const all = [root]
  for (const name of names) {
    let at = root
    for (const char of name) {
      const code = char.codePointAt(0)!
      let next = at.next.get(code)
      if (next === undefined) {
        next = branch()
        at.next.set(code, next)
        all.push(next)
      }
      at = next
    }
    at.taken = true
  }
  for (const { rule, next, taken } of all) {
    const taking = charsOf([...next.keys()].map((code): [number, number] => [code, code]))
    rule.body = either(
      ...(taken ? [] : [EMPTY]),
      sequence(chars(without(PLAIN_NAME, taking)), repeat(chars(PLAIN_NAME), 0)),
      ...[...next].map(([code, { rule: then }]) =>
        sequence(chars(without(charsOf([[code, code]]), without(ANY, PLAIN_NAME))), use(then)),
      ),
    )
  }
  return stringOf(use(root.rule))
}

/**
 * The rule of its values, of a schema that `checkSize` has seen. Throws INVALID with what of it cannot be had, and
 * where.
 */
export const schemaRule = (schema: unknown): Rule => {
  const rules = new Map<object, Rule>()
  const waiting: { readonly schema: Json; readonly path: string; readonly rule: Rule }[] = []
  const fail = (path: string, why: string): never => refuse(`The schema cannot be used: ${why}, at ${path}.`)

  const schemaOf = (found: unknown, path: string): Expression => {
    if (found === true) return anyValue
    if (found === false) return NOTHING
    if (!isObject(found)) return fail(path, 'expected a schema, an object or a boolean')
    let rule = rules.get(found)
    if (rule === undefined) {
      rule = ruleOf(`the schema at ${path}`)
      rules.set(found, rule)
      waiting.push({ schema: found, path, rule })
    }
    return use(rule)
  }
  const listOf = (found: unknown, path: string): readonly unknown[] =>
    Array.isArray(found) && found.length > 0 ? found : fail(path, 'expected a list that is not empty')
  const countOf = (found: unknown, path: string, fallback: number): number =>
    found === undefined
      ? fallback
      : Number.isSafeInteger(found) && (found as number) >= 0
        ? (found as number)
        : fail(path, 'expected a whole number that is not negative')
  const realOf = (found: unknown, path: string, fallback: number): number =>
    found === undefined ? fallback : typeof found === 'number' ? found : fail(path, 'expected a number')

  /** What a "$ref" leads to. */
  const targetOf = (ref: unknown, path: string): unknown => {
    if (typeof ref !== 'string' || !/^#(\/|$)/.test(ref))
      return fail(`${path}/$ref`, 'a "$ref" leads to a place in this schema, as "#/$defs/name" does')
    let at: unknown = schema
    let names: string[]
    try {
      names = decodeURIComponent(ref).slice(2).split('/')
    } catch {
      return fail(`${path}/$ref`, 'its escapes are none')
    }
    for (const name of ref === '#' ? [] : names) {
      const key = name.replaceAll('~1', '/').replaceAll('~0', '~')
      if (typeof at !== 'object' || at === null || !Object.hasOwn(at, key))
        return fail(`${path}/$ref`, `there is nothing at ${JSON.stringify(ref.slice(0, 200))}`)
      at = (at as Json)[key]
    }
    return at
  }
  const referred = (ref: unknown, path: string): Expression => schemaOf(targetOf(ref, path), String(ref))

  const oneOf = (found: unknown, path: string): Expression => {
    const all = listOf(found, path)
    if (all.length > MOST_ALTERNATIVES)
      return fail(path, `${all.length} schemas, expected at most ${MOST_ALTERNATIVES} of one "oneOf"`)
    /** Of references to references only the first counts: the second may lead back. */
    const follow = (each: unknown): unknown => (isObject(each) && '$ref' in each ? targetOf(each.$ref, path) : each)
    for (const [at, one] of all.entries())
      for (const [behind, other] of all.slice(at + 1).entries())
        if (!areDisjoint(one, other, follow))
          return fail(
            path,
            `a value may fit both ${at} and ${at + 1 + behind} of "oneOf", which forbids that; let them differ in their type, or in the "const" or "enum" of a member that both require, or say "anyOf"`,
          )
    return either(...all.map((each, at) => schemaOf(each, `${path}/${at}`)))
  }

  const objectOf = (found: Json, path: string): Expression => {
    const { properties = {}, required = [], additionalProperties, propertyNames = true } = found
    // Names are strings whatever a schema says; zod writes so of its records.
    if (propertyNames !== true && JSON.stringify(propertyNames) !== '{"type":"string"}')
      return fail(`${path}/propertyNames`, 'expected {"type":"string"}, as all names are')
    if (!isObject(properties)) return fail(`${path}/properties`, 'expected an object')
    if (!Array.isArray(required) || required.some((name) => typeof name !== 'string'))
      return fail(`${path}/required`, 'expected a list of names')
    const names = Object.keys(properties)
    const needed = new Set<string>(required)
    const others = additionalProperties === undefined ? found.properties === undefined : additionalProperties
    const other = schemaOf(others, `${path}/additionalProperties`)
    const unnamed = [...needed].filter((name) => !Object.hasOwn(properties, name))
    if (unnamed.length > 0 && additionalProperties === false)
      return fail(`${path}/required`, `${JSON.stringify(unnamed[0])} is required and no member may have that name`)
    if (names.length + unnamed.length === 0 && others === true) return anyObject
    const members = [
      ...names.map((name) => ({ name, value: schemaOf(properties[name], `${path}/properties/${pointerText(name)}`) })),
      ...unnamed.map((name) => ({ name, value: additionalProperties === undefined ? anyValue : other })),
    ]
    const place = `a member of the schema at ${path}`
    /** Before a member, and behind one: the next of those that are declared. */
    const before = [...members, null].map(() => ruleOf(place))
    const behind = [...members, null].map(() => ruleOf(place))
    let closes = true
    for (let next = members.length; next >= 0; next -= 1) {
      const member = members[next]
      const also: Expression[] = []
      if (member === undefined) {
        if (others !== false)
          also.push(sequence(otherNames(members.map(({ name }) => name)), COLON, other, use(behind[next]!)))
      } else {
        also.push(sequence(word(JSON.stringify(member.name)), COLON, member.value, use(behind[next + 1]!)))
        if (!needed.has(member.name)) also.push(use(before[next + 1]!))
        closes &&= !needed.has(member.name)
      }
      before[next]!.body = either(...also)
      behind[next]!.body = either(...(closes ? [sequence(SPACE, word('}'))] : []), sequence(COMMA, use(before[next]!)))
    }
    return sequence(word('{'), SPACE, either(use(before[0]!), ...(closes ? [word('}')] : [])))
  }

  const arrayOf = (found: Json, path: string): Expression => {
    const { items = true, prefixItems = [] } = found
    const min = countOf(found.minItems, `${path}/minItems`, 0)
    const max = countOf(found.maxItems, `${path}/maxItems`, Number.POSITIVE_INFINITY)
    if (!Array.isArray(prefixItems)) return fail(`${path}/prefixItems`, 'expected a list of schemas')
    const first = prefixItems.map((each, at) => schemaOf(each, `${path}/prefixItems/${at}`))
    if (items === true && first.length === 0 && min === 0 && max === Number.POSITIVE_INFINITY) return anyArray
    const rest = schemaOf(items, `${path}/items`)
    const end = sequence(SPACE, word(']'))
    // Once all of `first` are there, so many more follow, each behind a comma.
    const more = (written: number): Expression =>
      sequence(repeat(sequence(COMMA, rest), Math.max(0, min - written), Math.max(0, max - written)), end)
    let behind = first.length > 0 ? more(first.length) : sequence()
    for (let written = first.length - 1; written > 0; written -= 1) {
      const going = written < max ? [sequence(COMMA, first[written]!, behind)] : []
      behind = use(ruleOf(`an element of the schema at ${path}`, either(...(written >= min ? [end] : []), ...going)))
    }
    const begun = first.length > 0 ? sequence(first[0]!, behind) : sequence(rest, more(1))
    return sequence(
      word('['),
      SPACE,
      either(...(max > 0 && min <= max ? [begun] : []), ...(min === 0 ? [word(']')] : [])),
    )
  }

  const stringsOf = (found: Json, path: string): Expression => {
    const { pattern, format } = found
    const bounded = found.minLength !== undefined || found.maxLength !== undefined
    if (bounded && (pattern !== undefined || format !== undefined))
      return fail(
        path,
        'bounds of the length stand beside a "pattern" or "format", and both together are not supported',
      )
    // JSON Schema Validation 2020-12, 7.2.1: a format is an annotation. Who writes both says with the pattern what the
    // format means (zod does).
    if (pattern !== undefined) {
      if (typeof pattern !== 'string') return fail(`${path}/pattern`, 'expected a regular expression')
      return stringOf(escaped(regexOf(pattern, `The pattern at ${path}`, false)))
    }
    if (format !== undefined) {
      const source = typeof format === 'string' && Object.hasOwn(FORMATS, format) ? FORMATS[format]! : null
      if (source === null)
        return fail(`${path}/format`, `expected one of the formats ${Object.keys(FORMATS).join(', ')}`)
      return stringOf(regexOf(source, `The format at ${path}`, true))
    }
    if (!bounded) return anyString
    const min = countOf(found.minLength, `${path}/minLength`, 0)
    const max = countOf(found.maxLength, `${path}/maxLength`, Number.POSITIVE_INFINITY)
    return min > max ? NOTHING : stringOf(repeat(stringChar, min, max))
  }

  const numbersOf = (found: Json, path: string, whole: boolean): Expression => {
    const of = (name: string, fallback: number): number => realOf(found[name], `${path}/${name}`, fallback)
    const [minimum, above] = [of('minimum', -Infinity), of('exclusiveMinimum', -Infinity)]
    const [maximum, below] = [of('maximum', Infinity), of('exclusiveMaximum', Infinity)]
    if (Math.max(minimum, above) === -Infinity && Math.min(maximum, below) === Infinity)
      return whole ? anyInteger : anyNumber
    const bounds = {
      least: Math.max(minimum, above),
      leastStrict: above >= minimum && above > -Infinity,
      most: Math.min(maximum, below),
      mostStrict: below <= maximum && below < Infinity,
    }
    return numbersBetween(bounds, whole) ?? fail(path, 'a bound has more than 15 digits')
  }

  const typed = (found: Json, type: Type, path: string): Expression => {
    switch (type) {
      case 'object':
        return objectOf(found, path)
      case 'array':
        return arrayOf(found, path)
      case 'string':
        return stringsOf(found, path)
      case 'number':
      case 'integer':
        return numbersOf(found, path, type === 'integer')
      case 'boolean':
        return words(['true', 'false'])
      case 'null':
        return word('null')
    }
  }

  const typesOf = (found: Json, path: string): readonly Type[] | null => {
    const { type } = found
    if (type === undefined) return null
    const all: readonly unknown[] = Array.isArray(type) ? listOf(type, `${path}/type`) : [type]
    if (!all.every((each): each is Type => TYPES.includes(each as Type)))
      return fail(`${path}/type`, `expected one of the types ${TYPES.join(', ')}, or a list of them`)
    // An integer is a number: both together would say the same twice.
    return [...new Set(all)].filter((each) => each !== 'integer' || !all.includes('number'))
  }

  const bodyOf = (found: Json, path: string): Expression => {
    const keys = Object.keys(found).filter((key) => !ANNOTATIONS.has(key) && !(key === '$id' && path === '#'))
    const unknown = keys.find((key) => !KNOWN.has(key))
    if (unknown !== undefined)
      return fail(
        path,
        `the keyword ${JSON.stringify(unknown.slice(0, 64))} is not among those that a grammar can keep`,
      )
    const types = typesOf(found, path)
    const combining = COMBINING.find((key) => keys.includes(key))
    if (combining === undefined) {
      const implied = DISJOINT.filter((type) => OF_TYPE[type].some((key) => keys.includes(key)))
      const wanted = types ?? (implied.length > 0 ? implied : DISJOINT)
      return either(...wanted.map((type) => typed(found, type, path)))
    }
    const chosen = combining === 'enum' || combining === 'const'
    const beside = keys.find((key) => key !== combining && !(chosen && key === 'type'))
    if (beside !== undefined)
      return fail(path, `${JSON.stringify(beside)} stands beside "${combining}", and both together are not supported`)
    switch (combining) {
      case '$ref':
        return referred(found.$ref, path)
      case 'oneOf':
        return oneOf(found.oneOf, `${path}/oneOf`)
      case 'anyOf':
        return either(...listOf(found.anyOf, `${path}/anyOf`).map((each, at) => schemaOf(each, `${path}/anyOf/${at}`)))
      case 'allOf': {
        const all = listOf(found.allOf, `${path}/allOf`)
        return all.length === 1
          ? schemaOf(all[0], `${path}/allOf/0`)
          : fail(path, 'of "allOf" only a list of one schema can be had')
      }
      default: {
        const values = combining === 'enum' ? listOf(found.enum, `${path}/enum`) : [found.const]
        const fitting = values.filter((value) => types === null || types.some((type) => isOf(value, type)))
        return words(fitting.map((value) => JSON.stringify(value)))
      }
    }
  }

  const root = ruleOf('the schema at #', schemaOf(schema, '#'))
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop())
    next.rule.body = bodyOf(next.schema, next.path)
  return root
}
