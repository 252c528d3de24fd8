/** What filters do with the elements of a value. */
import { type Bound, bind, type Run } from './calls.ts'
import { Fault, type Price } from './price.ts'
import { charactersOf } from './text.ts'
import {
  type Arguments,
  compare,
  Dict,
  each,
  failed,
  Group,
  isList,
  itemsOf,
  iterate,
  Lazy,
  listOf,
  Markup,
  numberOf,
  payKey,
  sizeOf,
  truth,
  typeOf,
  Undefined,
  type Value,
  View,
} from './values.ts'

type Key = (value: Value) => Value

/** `a.b.0` as the items that it goes through. */
const pathOf = (name: Value): readonly Value[] => {
  if (name === null) return []
  if (typeof name !== 'string') return [name]
  return name.split('.').map((part) => (/^\d+$/.test(part) ? BigInt(part) : part))
}

/** What gives the attribute `a.b` of a value, `usual` where there is none. */
export const getter = (name: Value | undefined, run: Run, usual: Value = null): Key => {
  if (typeof name === 'string') run.price.pay(name.length)
  const path = pathOf(name ?? null)
  return (value) =>
    path.reduce<Value>((found, part) => {
      const next = run.item(found, part)
      return next instanceof Undefined && usual !== null ? usual : next
    }, value)
}

const folded =
  (key: Key, exact: Value | undefined, price: Price): Key =>
  (value) => {
    const found = key(value)
    if (truth(exact ?? false) || !(typeof found === 'string' || found instanceof Markup)) return found
    const text = found instanceof Markup ? found.text : found
    price.text(text.length)
    return text.toLowerCase()
  }

/** sorted(values, key, reverse). */
const sorted = (values: readonly Value[], key: Key, reverse: boolean, price: Price): readonly Value[] => {
  price.pay(values.length)
  const keyed = values.map((value) => [key(value), value] as const)
  const sign = reverse ? -1 : 1
  return keyed.sort(([a], [b]) => sign * compare(a, b, price)).map(([, value]) => value)
}

/** The greatest element, the least where `sign` is -1. */
export const best = (value: Value, [exact, name]: Bound, sign: number, run: Run): Value => {
  const key = folded(getter(name, run), exact, run.price)
  let found: readonly [Value, Value] | undefined
  for (const one of each(value, run.price)) {
    const own = key(one)
    if (found === undefined || sign * compare(own, found[0], run.price) > 0) found = [own, one]
  }
  return found === undefined ? new Undefined('an empty list has no least and no greatest') : found[1]
}

/** groupby. */
export const grouped = (value: Value, [name, usual = null, exact]: Bound, run: Run): Value => {
  const { price } = run
  const plain = getter(name, run, usual)
  const key = folded(plain, exact, price)
  const groups: { readonly own: Value; readonly items: Value[] }[] = []
  for (const one of sorted(listOf(value, price), key, false, price)) {
    const own = key(one)
    const last = groups.at(-1)
    if (last !== undefined && binaryEqual(last.own, own, price)) last.items.push(one)
    else groups.push({ own, items: [one] })
  }
  return groups.map(({ own, items }) => new Group([truth(exact ?? false) ? own : plain(items[0]!), items]))
}

const binaryEqual = (a: Value, b: Value, price: Price): boolean => {
  payKey(a, price)
  payKey(b, price)
  const found = new Dict()
  if (isList(a) || a instanceof Dict) return compare([a], [b], price) === 0
  return found.set(a, true).get(b) !== undefined
}

/** Each element once. */
export function* unique(value: Value, [exact, name]: Bound, run: Run): Generator<Value> {
  const key = folded(getter(name, run), exact, run.price)
  const seen = new Dict()
  for (const one of each(value, run.price)) {
    const own = key(one)
    payKey(own, run.price)
    if (seen.get(own) !== undefined) continue
    seen.set(own, true)
    yield one
  }
}

/** select, reject, selectattr and rejectattr. */
export function* chosen(
  value: Value,
  { list, named }: Arguments,
  member: boolean,
  keeps: boolean,
  run: Run,
): Generator<Value> {
  if (!truth(value)) return
  const [name, ...rest] = member ? list.slice(1) : list
  if (member && list.length === 0) throw new Fault('it gets no name of an attribute')
  const key = member ? getter(list[0], run) : (one: Value) => one
  const args = { list: rest, named }
  for (const one of each(value, run.price)) {
    const own = key(one)
    if (truth(name === undefined ? own : run.test(name, own, args)) === keeps) yield one
  }
}

/** map. */
export function* mapped(value: Value, { list, named }: Arguments, run: Run): Generator<Value> {
  if (!truth(value)) return
  if (list.length === 0 && named.has('attribute')) {
    const [name, usual] = bind('map', 'attribute default?', { list: [], named })
    const key = getter(name, run, usual)
    for (const one of each(value, run.price)) yield key(one)
    return
  }
  const [name, ...rest] = list
  if (name === undefined) throw new Fault('map gets no filter')
  for (const one of each(value, run.price)) yield run.filter(name, one, { list: rest, named })
}

/** Rows of `count` elements. */
export function* batched(value: Value, [count, fill = null]: Bound, price: Price): Generator<Value> {
  let row: Value[] = []
  for (const one of each(value, price)) {
    if (row.length === Number(numberOf(count!) ?? -1)) {
      yield row
      row = []
    }
    row.push(one)
  }
  if (row.length === 0) return
  const missing = fill === null ? 0 : Math.max(0, sizeOf(count, 'batch') - row.length)
  price.pay(missing)
  yield [...row, ...Array.from({ length: missing }, () => fill)]
}

/** `count` lists of about the same length. */
export function* columns(value: Value, [count, fill = null]: Bound, price: Price): Generator<Value> {
  const items = listOf(value, price)
  const slices = sizeOf(count, 'slice')
  price.pay(Math.max(0, slices))
  if (slices === 0) throw new Fault('it divides by zero')
  const [size, more] = [Math.floor(items.length / slices), items.length - Math.floor(items.length / slices) * slices]
  for (let at = 0, from = 0; at < slices; at += 1) {
    const to = from + size + (at < more ? 1 : 0)
    price.pay(1 + to - from)
    yield fill !== null && at >= more ? [...items.slice(from, to), fill] : items.slice(from, to)
    from = to
  }
}

/** The other way round. */
export const reversed = (value: Value, price: Price): Value => {
  if (typeof value === 'string') {
    const characters = Array.from(charactersOf(value, price))
    price.pay(value.length / 4)
    return characters.reverse().join('')
  }
  const list = listOf(value, price)
  price.pay(list.length)
  const back = list.toReversed()
  return value instanceof Lazy ? back : new Lazy(back[Symbol.iterator]())
}

/** The last element. */
export const last = (value: Value, price: Price): Value => {
  if (value instanceof Lazy) throw new Fault('last takes no generator')
  const items = itemsOf(value) ?? (typeof value === 'string' ? charactersOf(value, price) : listOf(value, price))
  const found = items.at(-1)
  return found === undefined ? new Undefined('an empty list has no last element') : found
}

/** The first element. */
export const first = (value: Value, price: Price): Value => {
  const iterator = iterate(value, price)
  if (iterator === null) throw new Fault(`first takes no ${typeOf(value)}`)
  const next = iterator.next()
  return next.done === true ? new Undefined('an empty list has no first element') : next.value
}

/** dictsort. */
export const dictSorted = (value: Value, [exact, by = 'key', reverse = false]: Bound, { price }: Run): Value => {
  if (!(value instanceof Dict)) throw failed(value, `dictsort takes a dict, not a ${typeOf(value)}`)
  if (by !== 'key' && by !== 'value') throw new Fault('dictsort sorts by key or value')
  const key = (pair: Value): Value => itemsOf(pair)![by === 'key' ? 0 : 1]!
  return sorted([...new View(value, 'items')], folded(key, exact, price), truth(reverse), price)
}

/** sort, by several attributes with commas between them. */
export const sort = (value: Value, [reverse = false, exact, name]: Bound, run: Run): Value => {
  if (typeof name === 'string') run.price.pay(name.length)
  const keys = (typeof name === 'string' ? name.split(',') : [name]).map((one) =>
    folded(getter(one, run), exact, run.price),
  )
  run.price.pay(keys.length)
  return sorted(listOf(value, run.price), (one) => keys.map((key) => key(one)), truth(reverse), run.price)
}
