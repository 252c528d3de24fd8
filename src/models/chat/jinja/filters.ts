/** What stands behind `|`. */
import { type Bound, type Builtins, bind, type Run } from './calls.ts'
import { percent } from './format.ts'
import { attribute } from './methods.ts'
import { calculate, fixed, floatText, parseFloatText, parseIntText, rounded, truncated } from './numbers.ts'
import { binary } from './operators.ts'
import { Fault, type Price } from './price.ts'
import {
  batched,
  best,
  chosen,
  columns,
  dictSorted,
  first,
  getter,
  grouped,
  last,
  mapped,
  reversed,
  sort,
  unique,
} from './sequences.ts'
import { center, joined, lines, replace } from './strings.ts'
import { capitalize, charactersOf, lengthOf, SPACE, strip } from './text.ts'
import {
  type Arguments,
  Dict,
  each,
  failed,
  intOf,
  iterate,
  Lazy,
  lengthIn,
  listOf,
  Markup,
  numberOf,
  sizeOf,
  Tuple,
  textOf,
  truth,
  typeOf,
  Undefined,
  type Value,
  View,
} from './values.ts'
import { json, softText, str } from './write.ts'

const indented = (text: string, [width = 4n, first = false, blank = false]: Bound, price: Price): string => {
  price.text(typeof width === 'string' ? 0 : Math.max(0, sizeOf(width, 'indent')))
  const indent = typeof width === 'string' ? width : ' '.repeat(Math.max(0, sizeOf(width, 'indent')))
  const rows = lines(`${text}\n`, false, price)
  price.text(text.length + rows.length * (indent.length + 1))
  const put = rows.map((row, at) => (at === 0 || (row === '' && !truth(blank)) ? row : indent + row)).join('\n')
  return truth(first) ? indent + put : put
}

const truncate = (value: Value, [length = 255n, kill = false, end = '...', leeway]: Bound, price: Price): Value => {
  const [most, tail] = [sizeOf(length, 'truncate'), textOf(end, 'truncate')]
  const slack = leeway === undefined || leeway === null ? 5 : sizeOf(leeway, 'truncate')
  if (most < lengthOf(tail) || slack < 0) throw new Fault('truncate gets a length that is too small')
  if ((lengthIn(value, price) ?? Number.POSITIVE_INFINITY) <= most + slack) return value
  const characters = charactersOf(textOf(value, 'truncate'), price)
  const head = Array.from(characters.slice(0, most - lengthOf(tail))).join('')
  const space = head.lastIndexOf(' ')
  return (truth(kill) || space < 0 ? head : head.slice(0, space)) + tail
}

const TITLE = new RegExp(`([-${SPACE}({[<]+)`)

const titled = (text: string): string =>
  text
    .split(TITLE)
    .map((word) => {
      const first = word === '' ? '' : String.fromCodePoint(word.codePointAt(0)!)
      return first.toUpperCase() + word.slice(first.length).toLowerCase()
    })
    .join('')

const toFloat = (value: Value): number | null => {
  const number = numberOf(value)
  if (number !== null) return Number(number)
  if (value instanceof Undefined) throw new Fault(value.why)
  return typeof value === 'string' ? parseFloatText(strip(value, null, true, true)) : null
}

const toInt = (value: Value, [usual = 0n, base = 10n]: Bound): Value => {
  if (value instanceof Undefined) throw new Fault(value.why)
  const number = numberOf(value)
  if (typeof number === 'bigint') return number
  if (typeof number === 'number') return Number.isNaN(number) ? usual : truncated(number)
  const exact = typeof value === 'string' ? parseIntText(strip(value, null, true, true), sizeOf(base, 'int')) : null
  if (exact !== null) return exact
  const float = toFloat(value)
  return float === null || !Number.isFinite(float) ? usual : truncated(float)
}

const round = (value: Value, [precision = 0n, method = 'common']: Bound): Value => {
  const number = numberOf(value)
  if (number === null) throw failed(value, `round takes a number, not a ${typeOf(value)}`)
  if (method === 'common') return rounded(number, sizeOf(precision, 'round'))
  if (method !== 'ceil' && method !== 'floor') throw new Fault('round knows common, ceil and floor')
  const scale = calculate('**', 10n, intOf(precision, 'round'))
  const scaled = calculate('*', number, scale)
  const whole = typeof scaled === 'bigint' ? scaled : truncated(Math[method](scaled))
  return calculate('/', whole, scale)
}

const SIZES = ['k', 'M', 'G', 'T', 'P', 'E', 'Z', 'Y']

const fileSize = (value: Value, [binarily = false]: Bound): string => {
  const bytes = toFloat(value)
  if (bytes === null) throw new Fault('filesizeformat takes a number')
  const base = truth(binarily) ? 1024 : 1000
  if (bytes === 1) return '1 Byte'
  if (bytes < base) return `${truncated(bytes)} Bytes`
  const at = Math.min(SIZES.length - 1, SIZES.findIndex((_, power) => bytes < base ** (power + 2)) >>> 0)
  const shown = Number.isFinite(bytes) ? fixed((base * bytes) / base ** (at + 2), 1) : floatText(bytes)
  return `${shown} ${truth(binarily) ? `${SIZES[at]!.toUpperCase()}i` : SIZES[at]}B`
}

const quoted = (value: Value, query: boolean, price: Price): string => {
  const text = softText(value, price)
  price.text(3 * text.length)
  const found = encodeURIComponent(text).replace(
    /[!'()*]/g,
    (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`,
  )
  return query ? found.replaceAll('%20', '+') : found.replaceAll('%2F', '/')
}

const urlEncoded = (value: Value, price: Price): string => {
  if (typeof value === 'string' || value instanceof Markup || iterate(value, price) === null)
    return quoted(value, false, price)
  const pairs = value instanceof Dict ? new View(value, 'items') : value
  return joined('&', each(pairs, price), price, (pair) => {
    const [name, own, ...more] = listOf(pair, price)
    if (own === undefined || more.length > 0) throw new Fault('urlencode takes pairs')
    return `${quoted(name!, true, price)}=${quoted(own, true, price)}`
  })
}

const ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&#34;', "'": '&#39;' }

const escaped = (value: Value, again: boolean, price: Price): Value => {
  if (value instanceof Markup && !again) return value
  const text = str(value, price)
  price.text(5 * text.length)
  return new Markup(text.replace(/[&<>"']/g, (one) => ESCAPES[one]!))
}

function* pairs(value: Value, price: Price): Generator<Value> {
  if (value instanceof Undefined) return
  if (!(value instanceof Dict)) throw new Fault(`items takes a dict, not a ${typeOf(value)}`)
  yield* each(new View(value, 'items'), price)
}

const soft =
  (change: (text: string) => string) =>
  (value: Value, _: Bound, { price }: Run): Value => {
    const text = softText(value, price)
    price.letters(text)
    return change(text)
  }

const length = (value: Value, _: Bound, { price }: Run): Value => {
  const found = lengthIn(value, price)
  if (found === null) throw new Fault(`a ${typeOf(value)} has no length`)
  return BigInt(found)
}

const usualValue = (value: Value, [usual = '', falsy = false]: Bound): Value =>
  value instanceof Undefined || (truth(falsy) && !truth(value)) ? usual : value

const absolute = (value: Value): Value => {
  const number = numberOf(value)
  if (number === null) throw failed(value, `abs takes a number, not a ${typeOf(value)}`)
  return number < 0 || Object.is(number, -0) ? -number : number
}

const FILTERS: Builtins<Value> = {
  abs: ['/', absolute],
  attr: ['name', (value, [name], run) => attributeOnly(value, textOf(name, 'attr'), run)],
  batch: ['linecount fill_with?', (value, args, { price }) => new Lazy(batched(value, args, price))],
  capitalize: ['', soft(capitalize)],
  center: ['width?', (value, [width = 80n], { price }) => center(softText(value, price), [width], price)],
  default: ['default_value? boolean?', usualValue],
  d: ['default_value? boolean?', usualValue],
  dictsort: ['case_sensitive? by? reverse?', dictSorted],
  escape: ['/', (value, _, { price }) => escaped(value, false, price)],
  e: ['/', (value, _, { price }) => escaped(value, false, price)],
  forceescape: ['', (value, _, { price }) => escaped(value, true, price)],
  filesizeformat: ['binary?', fileSize],
  first: ['', (value, _, { price }) => first(value, price)],
  float: ['default?', (value, [usual = 0]) => toFloat(value) ?? usual],
  groupby: ['attribute default? case_sensitive?', grouped],
  indent: ['width? first? blank?', (value, args, { price }) => indented(textOf(value, 'indent'), args, price)],
  int: ['default? base?', toInt],
  items: ['', (value, _, { price }) => new Lazy(pairs(value, price))],
  join: [
    'd? attribute?',
    (value, [separator = '', name], run) => {
      const key = getter(name, run)
      return joined(str(separator, run.price), each(value, run.price), run.price, (one) => str(key(one), run.price))
    },
  ],
  last: ['', (value, _, { price }) => last(value, price)],
  length: ['/', length],
  count: ['/', length],
  list: ['', (value, _, { price }) => listOf(value, price)],
  lower: ['', soft((text) => text.toLowerCase())],
  max: ['case_sensitive? attribute?', (value, args, run) => best(value, args, 1, run)],
  min: ['case_sensitive? attribute?', (value, args, run) => best(value, args, -1, run)],
  replace: [
    'old new count?',
    (value, [from, to, count = null], { price }) => {
      const [text, sought, put] = [value, from!, to!].map((one) => str(one, price)) as [string, string, string]
      price.text(text.length)
      return replace(text, sought, put, count === null ? -1 : sizeOf(count, 'replace'), price)
    },
  ],
  reverse: ['', (value, _, { price }) => reversed(value, price)],
  round: ['precision? method?', round],
  safe: ['', (value, _, { price }) => new Markup(str(value, price))],
  slice: ['slices fill_with?', (value, args, { price }) => new Lazy(columns(value, args, price))],
  sort: ['reverse? case_sensitive? attribute?', sort],
  string: ['/', (value, _, { price }) => (value instanceof Markup ? value : str(value, price))],
  sum: [
    'attribute? start?',
    (value, [name, start = 0n], run) => {
      const key = getter(name, run)
      if (typeof start === 'string') throw new Fault('sum takes no text to begin with')
      let found: Value = start
      for (const one of each(value, run.price)) found = binary('+', found, key(one), run.price)
      return found
    },
  ],
  title: ['', soft(titled)],
  tojson: ['ensure_ascii? indent? separators? sort_keys?', (value, args, { price }) => json(value, args, price)],
  trim: [
    'chars?',
    (value, [chars = null], { price }) => {
      const text = softText(value, price)
      price.text(text.length)
      return strip(text, chars === null ? null : textOf(chars, 'trim'), true, true)
    },
  ],
  truncate: ['length? killwords? end? leeway?', (value, args, { price }) => truncate(value, args, price)],
  unique: ['case_sensitive? attribute?', (value, args, run) => new Lazy(unique(value, args, run))],
  upper: ['', soft((text) => text.toUpperCase())],
  urlencode: ['', (value, _, { price }) => urlEncoded(value, price)],
  wordcount: [
    '',
    (value, _, { price }) => {
      let count = 0n
      for (const _word of softText(value, price).matchAll(/[\p{L}\p{N}_]+/gu)) {
        price.pay(1)
        count += 1n
      }
      return count
    },
  ],
}

const attributeOnly = (value: Value, name: string, run: Run): Value => {
  const found = attribute(value, name, run)
  return found === undefined ? new Undefined(`a ${typeOf(value)} has no ${name}`) : found
}

/** Those that take values as they come. */
const FREE: Readonly<Record<string, (value: Value, args: Arguments, run: Run) => Value>> = {
  map: (value, args, run) => new Lazy(mapped(value, args, run)),
  select: (value, args, run) => new Lazy(chosen(value, args, false, true, run)),
  reject: (value, args, run) => new Lazy(chosen(value, args, false, false, run)),
  selectattr: (value, args, run) => new Lazy(chosen(value, args, true, true, run)),
  rejectattr: (value, args, run) => new Lazy(chosen(value, args, true, false, run)),
  format: (value, { list, named }, { price }) => {
    if (list.length > 0 && named.size > 0) throw new Fault('format gets values by place and by name')
    const dict = new Dict()
    for (const [name, own] of named) dict.set(name, own)
    const text = softText(value, price)
    price.text(text.length)
    return percent(text, named.size > 0 ? dict : new Tuple(list), price)
  },
}

/** Whether there is a filter of this name. */
export const isFilter = (name: string): boolean => Object.hasOwn(FILTERS, name) || Object.hasOwn(FREE, name)

/** `value|name(args)`. */
export const applyFilter = (name: Value, value: Value, args: Arguments, run: Run): Value => {
  if (typeof name === 'string' && Object.hasOwn(FREE, name)) return FREE[name]!(value, args, run)
  if (typeof name !== 'string' || !isFilter(name))
    throw new Fault(`the filter ${str(name, run.price)} is not supported`)
  const [signature, filter] = FILTERS[name]!
  return filter(value, bind(name, signature, args), run)
}
