/**
 * Values as Python has them: null is None, bigint an int, number a float, string a str, an array a list. Nothing
 * changes a list.
 */
import { isRaw } from '../exact.ts'
import { Fault, type Price } from './price.ts'
import { charactersOf, comparePoints, lengthOf } from './text.ts'

export type Value = null | boolean | bigint | number | string | readonly Value[] | Thing

/** Every other value. */
export abstract class Thing {
  abstract readonly type: string
  /** Own attributes; undefined: there is none of this name. */
  attribute(_name: string): Value | undefined {
    return undefined
  }
}

export class Tuple extends Thing {
  readonly type: string = 'tuple'
  readonly items: readonly Value[]
  constructor(items: readonly Value[]) {
    super()
    this.items = items
  }
}

/** What `groupby` gives. */
export class Group extends Tuple {
  override attribute(name: string): Value | undefined {
    return { grouper: this.items[0], list: this.items[1] }[name]
  }
}

/** What `safe` and `escape` give. */
export class Markup extends Thing {
  readonly type = 'Markup'
  readonly text: string
  constructor(text: string) {
    super()
    this.text = text
  }
}

export class Undefined extends Thing {
  readonly type = 'Undefined'
  readonly why: string
  constructor(why: string) {
    super()
    this.why = why
  }
}

export class Namespace extends Thing {
  readonly type = 'Namespace'
  readonly members = new Map<string, Value>()
  override attribute(name: string): Value | undefined {
    return this.members.get(name)
  }
}

/** An iterator: it gives each element once. */
export class Lazy extends Thing {
  readonly type = 'generator'
  readonly iterator: Iterator<Value>
  constructor(iterator: Iterator<Value>) {
    super()
    this.iterator = iterator
  }
}

export class Range extends Thing {
  readonly type = 'range'
  readonly start: bigint
  readonly stop: bigint
  readonly step: bigint
  readonly length: number
  constructor(start: bigint, stop: bigint, step: bigint) {
    super()
    if (step === 0n) throw new Fault('range() is asked for a step of zero')
    const length = (stop - start + step + (step > 0n ? -1n : 1n)) / step
    this.start = start
    this.stop = stop
    this.step = step
    this.length = length > 0n ? Number(length) : 0
  }
  at(index: number): bigint {
    return this.start + BigInt(index) * this.step
  }
  override attribute(name: string): Value | undefined {
    return { start: this.start, stop: this.stop, step: this.step }[name]
  }
}

export interface Arguments {
  readonly list: readonly Value[]
  readonly named: ReadonlyMap<string, Value>
}

/** Anything that can be called. */
export class Callable extends Thing {
  readonly type: string = 'function'
  readonly name: string
  readonly call: (args: Arguments) => Value
  constructor(name: string, call: (args: Arguments) => Value) {
    super()
    this.name = name
    this.call = call
  }
}

const UNDEFINED = Symbol('undefined')

/** Parts of a tuple that is a key, and characters of it: they are gone through at each use. */
const MOST_KEY = 1024

/** A key that is a tuple as a text; a lone surrogate begins no text that is a key. */
const tupleKey = (value: Tuple, left: { count: number }): string =>
  `\ud800${value.items
    .map((item) => {
      const key = item instanceof Tuple ? tupleKey(item, left) : keyOf(item)
      const text = `${typeof key} ${JSON.stringify(String(key).slice(0, MOST_KEY + 1))}`
      left.count -= text.length
      if (left.count < 0) throw new Fault('it has a tuple of that size as a key, which is not supported')
      return text
    })
    .join()}`

/** What stands for a key in a Map: equal for values that Python holds equal. */
const keyOf = (value: Value): unknown => {
  if (typeof value === 'boolean') return Number(value)
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : value
  if (typeof value === 'number') return !Number.isInteger(value) || Number.isSafeInteger(value) ? value : BigInt(value)
  if (value instanceof Markup) return value.text
  if (value instanceof Undefined) return UNDEFINED
  if (value instanceof Tuple) return tupleKey(value, { count: MOST_KEY })
  if (Array.isArray(value) || value instanceof Dict || value instanceof View)
    throw new Fault(`a ${typeOf(value)} cannot be a key`)
  return value
}

/** Pays for a key that is looked up or set: a text is read for that. */
export const payKey = (key: Value, price: Price): void => {
  if (typeof key === 'string') price.text(key.length)
  else if (key instanceof Markup) price.text(key.text.length)
  else if (key instanceof Tuple) price.pay(MOST_KEY / 128)
}

export class Dict extends Thing {
  readonly type = 'dict'
  readonly #members = new Map<unknown, readonly [Value, Value]>()
  get size(): number {
    return this.#members.size
  }
  get(key: Value): Value | undefined {
    return this.#members.get(keyOf(key))?.[1]
  }
  set(key: Value, value: Value): this {
    const own = keyOf(key)
    const before = this.#members.get(own)
    this.#members.set(own, [before === undefined ? key : before[0], value])
    return this
  }
  entries(): IterableIterator<readonly [Value, Value]> {
    return this.#members.values()
  }
}

/** What `items`, `keys` and `values` of a dict give. */
export class View extends Thing {
  readonly type: string
  readonly of: Dict
  readonly what: 'items' | 'keys' | 'values'
  constructor(of: Dict, what: 'items' | 'keys' | 'values') {
    super()
    this.of = of
    this.what = what
    this.type = `dict_${what}`
  }
  *[Symbol.iterator](): Generator<Value> {
    for (const [key, value] of this.of.entries())
      yield this.what === 'items' ? new Tuple([key, value]) : this.what === 'keys' ? key : value
  }
}

/** The name of a value's type in Python. */
export const typeOf = (value: Value): string => {
  if (value === null) return 'NoneType'
  if (typeof value === 'object') return value instanceof Thing ? value.type : 'list'
  return { boolean: 'bool', bigint: 'int', number: 'float', string: 'str' }[
    typeof value as 'boolean' | 'bigint' | 'number' | 'string'
  ]
}

/** Whether a value is a list. */
export const isList = (value: Value | undefined): value is readonly Value[] => Array.isArray(value)

/** The elements of a list or tuple. */
export const itemsOf = (value: Value): readonly Value[] | null =>
  isList(value) ? value : value instanceof Tuple ? value.items : null

/** A number, where a bool counts as one. */
export const numberOf = (value: Value): bigint | number | null =>
  typeof value === 'boolean' ? BigInt(value) : typeof value === 'bigint' || typeof value === 'number' ? value : null

/** An int for a built-in that takes no other number. */
export const intOf = (value: Value, what: string): bigint => {
  const number = numberOf(value)
  if (typeof number === 'bigint') return number
  throw failed(value, `${what} takes an int, not a ${typeOf(value)}`)
}

/** `intOf` for sizes: ints that C has. */
export const sizeOf = (value: Value | undefined, what: string, usual = 0): number => {
  const size = value === undefined ? usual : Number(intOf(value, what))
  if (Math.abs(size) < 2 ** 63) return size
  throw new Fault(`${what} takes no int as large as ${size}`)
}

/** A str, for what takes no other value; `what` says what does. */
export const textOf = (value: Value | undefined, what: string): string => {
  if (typeof value === 'string') return value
  throw failed(value ?? null, `${what} takes a str, not a ${typeOf(value ?? null)}`)
}

/** The error of an operation that a value does not have: that of the undefined says what is undefined. */
export const failed = (value: Value, why: string): Fault => new Fault(value instanceof Undefined ? value.why : why)

/** bool(value). */
export const truth = (value: Value): boolean => {
  if (value === null || typeof value !== 'object') return Boolean(value)
  if (isList(value)) return value.length > 0
  if (value instanceof Tuple) return value.items.length > 0
  if (value instanceof Dict) return value.size > 0
  if (value instanceof View) return value.of.size > 0
  if (value instanceof Range) return value.length > 0
  if (value instanceof Markup) return value.text !== ''
  return !(value instanceof Undefined)
}

/** The number of elements; null: the value has none. */
export const lengthIn = (value: Value, price: Price): number | null => {
  if (typeof value === 'string') {
    price.text(value.length)
    return lengthOf(value)
  }
  if (value instanceof Markup) return lengthOf(value.text)
  if (value instanceof Dict) return value.size
  if (value instanceof View) return value.of.size
  if (value instanceof Range) return value.length
  if (value instanceof Undefined) return 0
  const own = value instanceof Thing ? value.attribute('__len__') : undefined
  return own === undefined ? (itemsOf(value)?.length ?? null) : Number(own)
}

function* paid(values: Iterable<Value>, price: Price): Generator<Value> {
  for (const value of values) {
    price.pay(1)
    yield value
  }
}

function* numbers(range: Range, price: Price): Generator<Value> {
  for (let at = 0; at < range.length; at += 1) {
    price.pay(1)
    yield range.at(at)
  }
}

/** Goes over the elements, each of which is paid for; null: the value has none. */
export const iterate = (value: Value, price: Price): Iterator<Value> | null => {
  if (typeof value === 'string') return paid(charactersOf(value, price), price)
  if (value instanceof Lazy) return value.iterator
  if (value instanceof Dict) return paid(new View(value, 'keys'), price)
  if (value instanceof View) return paid(value, price)
  if (value instanceof Range) return numbers(value, price)
  if (value instanceof Undefined) return paid([], price)
  const items = itemsOf(value)
  return items === null ? null : paid(items, price)
}

/** `iterate`, for what must have elements. */
export function* each(value: Value, price: Price): Generator<Value> {
  const iterator = iterate(value, price)
  if (iterator === null) throw new Fault(`a ${typeOf(value)} has no elements to go over`)
  for (let next = iterator.next(); next.done !== true; next = iterator.next()) {
    if (value instanceof Lazy) price.pay(1)
    yield next.value
  }
}

/** The elements as a list. */
export const listOf = (value: Value, price: Price): readonly Value[] =>
  isList(value) ? value : [...each(value, price)]

const sameNumber = (a: bigint | number, b: bigint | number): boolean =>
  // biome-ignore lint/suspicious/noDoubleEquals: a bigint and a number are compared by what they are worth.
  a == b

/** a == b. */
export const equal = (a: Value, b: Value, price: Price, depth = 1): boolean => {
  price.pay(1)
  price.depth(depth)
  if (typeof a === 'string' && typeof b === 'string') {
    price.pay(a.length === b.length ? a.length / 128 : 0)
    return a === b
  }
  const [x, y] = [numberOf(a), numberOf(b)]
  if (x !== null && y !== null) return sameNumber(x, y)
  if (a instanceof Markup || b instanceof Markup)
    return equal(a instanceof Markup ? a.text : a, b instanceof Markup ? b.text : b, price, depth)
  if (a instanceof Undefined) return b instanceof Undefined
  const [left, right] = [itemsOf(a), itemsOf(b)]
  if (left !== null && right !== null)
    return (
      isList(a) === isList(b) &&
      left.length === right.length &&
      left.every((item, at) => item === right[at] || equal(item, right[at]!, price, depth + 1))
    )
  if (a instanceof Dict && b instanceof Dict) {
    if (a.size !== b.size) return false
    for (const [key, value] of a.entries()) {
      payKey(key, price)
      const other = b.get(key)
      if (other === undefined || !equal(value, other, price, depth + 1)) return false
    }
    return true
  }
  if (a instanceof Range && b instanceof Range)
    return equal([...numbers(a, price)], [...numbers(b, price)], price, depth + 1)
  if (a instanceof View && b instanceof View) throw new Fault(`it compares a ${a.type}, which is not supported`)
  return a === b
}

/** Less than 0 where a comes before b, 0 where neither does. Throws for values that Python does not order. */
export const compare = (a: Value, b: Value, price: Price, depth = 1): number => {
  price.pay(1)
  price.depth(depth)
  if (typeof a === 'string' && typeof b === 'string') {
    price.text(Math.min(a.length, b.length))
    return comparePoints(a, b)
  }
  const [x, y] = [numberOf(a), numberOf(b)]
  if (x !== null && y !== null) return x < y ? -1 : x > y ? 1 : sameNumber(x, y) ? 0 : Number.NaN
  const [left, right] = [itemsOf(a), itemsOf(b)]
  if (left === null || right === null || isList(a) !== isList(b))
    throw failed(a instanceof Undefined ? a : b, `a ${typeOf(a)} and a ${typeOf(b)} have no order`)
  for (let at = 0; at < Math.min(left.length, right.length); at += 1)
    if (!equal(left[at]!, right[at]!, price, depth + 1)) return compare(left[at]!, right[at]!, price, depth + 1)
  return left.length - right.length
}

/** JSON, or what is like it, as values. */
export const fromJson = (json: unknown): Value => {
  if (json === null || json === undefined) return null
  if (isRaw(json)) return /^-?\d+$/.test(json.rawJSON) ? BigInt(json.rawJSON) : Number(json.rawJSON)
  if (typeof json === 'number') return Number.isSafeInteger(json) ? BigInt(json) : json
  if (typeof json === 'string' || typeof json === 'boolean' || json instanceof Thing) return json
  if (Array.isArray(json)) return json.map(fromJson)
  const dict = new Dict()
  for (const [key, value] of Object.entries(json as object)) dict.set(key, fromJson(value))
  return dict
}
