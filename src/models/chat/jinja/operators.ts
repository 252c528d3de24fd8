/** Operators, items and slices, as Python has them. */
import { percent } from './format.ts'
import { calculate } from './numbers.ts'
import { Fault, type Price } from './price.ts'
import { charactersOf } from './text.ts'
import {
  compare,
  Dict,
  each,
  equal,
  failed,
  intOf,
  isList,
  itemsOf,
  Markup,
  numberOf,
  payKey,
  Range,
  Tuple,
  typeOf,
  Undefined,
  type Value,
  View,
} from './values.ts'

const repeated = (value: Value, count: bigint, price: Price): Value | null => {
  const times = Number(count > 0n ? count : 0n)
  if (typeof value === 'string') {
    price.text(value.length * times)
    return value.repeat(times)
  }
  const items = itemsOf(value)
  if (items === null) return null
  price.pay(items.length * times)
  const all = Array.from({ length: items.length * times }, (_, at) => items[at % items.length]!)
  return isList(value) ? all : new Tuple(all)
}

/** `left op right`. */
export const binary = (op: string, left: Value, right: Value, price: Price): Value => {
  const [x, y] = [numberOf(left), numberOf(right)]
  if (x !== null && y !== null) return calculate(op, x, y)
  if (left instanceof Markup || right instanceof Markup)
    throw new Fault(`it uses ${op} on what safe or escape gave, which is not supported`)
  if (op === '%' && typeof left === 'string') {
    price.text(left.length)
    return percent(left, right, price)
  }
  if (op === '+' && typeof left === 'string' && typeof right === 'string') {
    price.text(left.length + right.length)
    return left + right
  }
  const [a, b] = [itemsOf(left), itemsOf(right)]
  if (op === '+' && a !== null && b !== null && isList(left) === isList(right)) {
    price.pay(a.length + b.length)
    return isList(left) ? [...a, ...b] : new Tuple([...a, ...b])
  }
  if (op === '*') {
    const found =
      typeof y === 'bigint' ? repeated(left, y, price) : typeof x === 'bigint' ? repeated(right, x, price) : null
    if (found !== null) return found
  }
  throw failed(left instanceof Undefined ? left : right, `it uses ${op} on a ${typeOf(left)} and a ${typeOf(right)}`)
}

/** `-value` and `+value`. */
export const signed = (op: string, value: Value): Value => {
  const number = numberOf(value)
  if (number === null) throw failed(value, `it uses ${op} on a ${typeOf(value)}`)
  return op === '-' ? -number : number
}

/** `item in container`. */
export const contains = (container: Value, item: Value, price: Price): boolean => {
  if (container instanceof Markup) return contains(container.text, item, price)
  if (typeof container === 'string') {
    const sought = item instanceof Markup ? item.text : item
    if (typeof sought !== 'string') throw failed(item, `it looks for a ${typeOf(item)} in a str`)
    price.search(container, sought)
    return container.includes(sought)
  }
  if (container instanceof Dict || container instanceof View) payKey(item, price)
  if (container instanceof Dict) return container.get(item) !== undefined
  if (container instanceof View && container.what === 'keys') return container.of.get(item) !== undefined
  if (container instanceof Range) {
    const number = numberOf(item)
    if (number === null || (typeof number === 'number' && !Number.isInteger(number))) return false
    const from = BigInt(number) - container.start
    return from % container.step === 0n && from / container.step >= 0n && from / container.step < container.length
  }
  for (const found of each(container, price)) if (found === item || equal(found, item, price)) return true
  return false
}

/** `left op right` of comparisons. */
export const compared = (op: string, left: Value, right: Value, price: Price): boolean => {
  if (op === '==') return equal(left, right, price)
  if (op === '!=') return !equal(left, right, price)
  if (op === 'in') return contains(right, left, price)
  if (op === 'not in') return !contains(right, left, price)
  const order = compare(left, right, price)
  return op === '<' ? order < 0 : op === '<=' ? order <= 0 : op === '>' ? order > 0 : order >= 0
}

/** `value[key]`; undefined where Python raises a LookupError or a TypeError. */
export const itemOf = (value: Value, key: Value, price: Price): Value | undefined => {
  if (value instanceof Undefined) throw new Fault(value.why)
  if (value instanceof Dict) {
    if (isList(key) || key instanceof Dict || key instanceof View) return undefined
    payKey(key, price)
    return value.get(key)
  }
  const number = typeof key === 'boolean' || typeof key === 'bigint' ? Number(key) : null
  if (number === null) return undefined
  const length = (count: number): number => (number < 0 ? number + count : number)
  if (typeof value === 'string') {
    const characters = charactersOf(value, price)
    return characters[length(characters.length)]
  }
  if (value instanceof Range) {
    const at = length(value.length)
    return at >= 0 && at < value.length ? value.at(at) : undefined
  }
  return itemsOf(value)?.[length(itemsOf(value)!.length)]
}

/** Where a slice of `length` elements begins, ends, and how it goes. */
const span = (length: number, bounds: readonly (Value | undefined)[]): readonly [number, number, number] => {
  const [start, stop, step = 1] = bounds.map((bound) =>
    bound === null || bound === undefined ? undefined : Number(intOf(bound, 'a slice')),
  )
  if (step === 0) throw new Fault('a slice has a step of zero')
  const [least, most] = step < 0 ? [-1, length - 1] : [0, length]
  const at = (bound: number | undefined, usual: number): number =>
    bound === undefined ? usual : Math.min(most, Math.max(least, bound < 0 ? bound + length : bound))
  return [at(start, step < 0 ? most : least), at(stop, step < 0 ? least : most), step]
}

/** `value[start:stop:step]`. */
export const sliced = (value: Value, bounds: readonly Value[], price: Price): Value => {
  const plain = value instanceof Markup ? null : value
  if (value instanceof Range) {
    const [from, to, step] = span(value.length, bounds)
    return new Range(value.at(from), value.at(to), value.step * BigInt(step))
  }
  const items = typeof plain === 'string' ? charactersOf(plain, price) : itemsOf(value)
  if (items === null) throw failed(value, `it takes a slice of a ${typeOf(value)}`)
  const [from, to, step] = span(items.length, bounds)
  if (step === 1) {
    price.pay(typeof items === 'string' ? 0 : Math.max(0, to - from))
    const found = items.slice(from, Math.max(from, to))
    if (typeof found === 'string') return found
    return typeof plain === 'string' ? (found as readonly string[]).join('') : isList(value) ? found : new Tuple(found)
  }
  const count = Math.max(0, Math.ceil((to - from) / step))
  price.pay(typeof plain === 'string' ? count / 4 : count)
  const found = Array.from({ length: count }, (_, at) => items[from + at * step]!)
  return typeof plain === 'string' ? found.join('') : isList(value) ? found : new Tuple(found)
}
