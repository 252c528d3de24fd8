/** How values are written: str(), repr() and json.dumps() of Python. */
import { floatText } from './numbers.ts'
import { Fault, MOST_TEXT, type Price } from './price.ts'
import {
  compare,
  Dict,
  each,
  failed,
  isList,
  itemsOf,
  Markup,
  Namespace,
  numberOf,
  Range,
  Tuple,
  truth,
  typeOf,
  Undefined,
  type Value,
  View,
} from './values.ts'

/** A text that grows; what it gets is paid for before it is kept. */
export class Writer {
  readonly #parts: string[] = []
  #length = 0
  readonly price: Price
  constructor(price: Price) {
    this.price = price
  }
  put(text: string): void {
    this.#length += text.length
    if (this.#length > MOST_TEXT) this.price.text(this.#length)
    this.price.text(text.length)
    this.#parts.push(text)
  }
  get text(): string {
    return this.#parts.join('')
  }
}

const UNPRINTED = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu
const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

const escaped = (character: string): string => {
  const code = character.codePointAt(0)!
  const [letter, width] = code < 0x100 ? ['x', 2] : code < 0x10000 ? ['u', 4] : ['U', 8]
  return SHORT[character] ?? `\\${letter}${code.toString(16).padStart(width, '0')}`
}

const quoted = (text: string): string => {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'"
  const inside = text.replaceAll('\\', '\\\\').replace(UNPRINTED, escaped)
  return quote + (quote === "'" ? inside.replaceAll("'", "\\'") : inside) + quote
}

const putAll = (out: Writer, [open, close]: string, values: Iterable<Value>, depth: number): void => {
  out.put(open!)
  let first = true
  for (const value of values) {
    if (!first) out.put(', ')
    first = false
    putRepr(out, value, depth + 1)
  }
  out.put(close!)
}

const putDict = (out: Writer, dict: Iterable<readonly [Value, Value]>, depth: number): void => {
  out.put('{')
  let first = true
  for (const [key, value] of dict) {
    if (!first) out.put(', ')
    first = false
    putRepr(out, key, depth + 1)
    out.put(': ')
    putRepr(out, value, depth + 1)
  }
  out.put('}')
}

const putRepr = (out: Writer, value: Value, depth: number): void => {
  out.price.pay(1)
  out.price.depth(depth)
  if (value === null) out.put('None')
  else if (typeof value === 'boolean') out.put(value ? 'True' : 'False')
  else if (typeof value === 'bigint') out.put(String(value))
  else if (typeof value === 'number') out.put(floatText(value))
  else if (typeof value === 'string') {
    out.price.text(4 * value.length)
    out.put(quoted(value))
  } else if (isList(value)) putAll(out, '[]', value, depth)
  else if (value instanceof Tuple && value.items.length === 1) {
    out.put('(')
    putRepr(out, value.items[0]!, depth + 1)
    out.put(',)')
  } else if (value instanceof Tuple) putAll(out, '()', value.items, depth)
  else if (value instanceof Dict) putDict(out, value.entries(), depth)
  else if (value instanceof Undefined) out.put('Undefined')
  else if (value instanceof Markup) out.put(`Markup(${quoted(value.text)})`)
  else if (value instanceof Range)
    out.put(`range(${value.start}, ${value.stop}${value.step === 1n ? '' : `, ${value.step}`})`)
  else if (value instanceof Namespace) {
    out.put('<Namespace ')
    putDict(out, value.members, depth + 1)
    out.put('>')
  } else if (value instanceof View) {
    out.put(`${value.type}(`)
    putAll(out, '[]', value, depth + 1)
    out.put(')')
  } else {
    const own = value.attribute('__repr__')
    if (typeof own !== 'string') throw new Fault(`it writes a ${value.type}, of which no text is known`)
    out.put(own)
  }
}

/** Writes str(value) of Python. */
export const putText = (out: Writer, value: Value): void => {
  if (typeof value === 'string') out.put(value)
  else if (value instanceof Markup) out.put(value.text)
  else if (!(value instanceof Undefined)) putRepr(out, value, 1)
}

/** str(value). */
export const str = (value: Value, price: Price): string => {
  if (typeof value === 'string') return value
  const out = new Writer(price)
  putText(out, value)
  return out.text
}

/** repr(value). */
export const repr = (value: Value, price: Price): string => {
  const out = new Writer(price)
  putRepr(out, value, 1)
  return out.text
}

/** The text of a value for what takes any, but not markup, which would escape what it meets. */
export const softText = (value: Value, price: Price): string => {
  if (value instanceof Markup)
    throw new Fault('it uses what safe or escape gave in a way that escapes other texts, which is not supported')
  return str(value, price)
}

interface Style {
  readonly ascii: boolean
  readonly indent: string | null
  readonly between: string
  readonly colon: string
  readonly sorted: boolean
}

const jsonText = (out: Writer, text: string, { ascii }: Style): void => {
  out.price.text(text.length)
  const found = JSON.stringify(text)
  const unit = (one: string): string => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`
  out.put(ascii ? found.replace(/[\u007f-\uffff]/g, unit) : found)
}

const jsonNumber = (value: number): string =>
  Number.isNaN(value) ? 'NaN' : Number.isFinite(value) ? floatText(value) : value < 0 ? '-Infinity' : 'Infinity'

const jsonKey = (key: Value): string => {
  if (typeof key === 'string') return key
  if (key instanceof Markup) return key.text
  if (key === null || typeof key === 'boolean') return String(key)
  if (typeof key === 'bigint') return String(key)
  if (typeof key === 'number') return jsonNumber(key)
  throw new Fault(`it writes a dict as JSON that has a ${typeOf(key)} as a key`)
}

const putJson = (out: Writer, value: Value, style: Style, depth: number): void => {
  out.price.pay(1)
  out.price.depth(depth)
  const items = itemsOf(value)
  if (value === null || typeof value === 'boolean' || typeof value === 'bigint') out.put(String(value))
  else if (typeof value === 'number') out.put(jsonNumber(value))
  else if (typeof value === 'string' || value instanceof Markup) jsonText(out, str(value, out.price), style)
  else if (items === null && !(value instanceof Dict))
    throw failed(value, `it writes a ${typeOf(value)} as JSON, which has no form for it`)
  else {
    const entries: readonly (readonly [Value | undefined, Value])[] =
      value instanceof Dict ? [...value.entries()] : items!.map((item) => [undefined, item])
    const [open, close] = value instanceof Dict ? '{}' : '[]'
    if (style.sorted && value instanceof Dict)
      (entries as [Value, Value][]).sort((a, b) => compare(new Tuple(a), new Tuple(b), out.price))
    const line = (deep: number): void => {
      if (style.indent === null) return
      out.price.text(style.indent.length * deep)
      out.put(`\n${style.indent.repeat(deep)}`)
    }
    out.put(open!)
    entries.forEach(([key, item], at) => {
      if (at > 0) out.put(style.between)
      line(depth)
      if (key !== undefined) {
        jsonText(out, jsonKey(key), style)
        out.put(style.colon)
      }
      putJson(out, item, style, depth + 1)
    })
    if (entries.length > 0) line(depth - 1)
    out.put(close!)
  }
}

/** json.dumps(value, ensure_ascii, indent, separators, sort_keys), with the defaults of transformers. */
export const json = (
  value: Value,
  [ascii = false, indent = null, separators = null, sorted = false]: readonly (Value | undefined)[],
  price: Price,
): string => {
  const width = numberOf(indent)
  if (indent !== null && typeof indent !== 'string' && typeof width !== 'bigint')
    throw failed(indent, `the indent of tojson is a ${typeOf(indent)}`)
  if (typeof width === 'bigint') price.text(Math.max(0, Number(width)))
  const [between = '', colon = '', ...more] =
    separators === null ? [indent === null ? ', ' : ',', ': '] : [...each(separators, price)]
  if (typeof between !== 'string' || typeof colon !== 'string' || more.length > 0)
    throw new Fault('the separators of tojson are not two texts')
  const out = new Writer(price)
  const style = {
    ascii: truth(ascii),
    indent: typeof width === 'bigint' ? ' '.repeat(Math.max(0, Number(width))) : (indent as string | null),
    between,
    colon,
    sorted: truth(sorted),
  }
  putJson(out, value, style, 1)
  return out.text
}
