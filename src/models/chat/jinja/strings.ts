/** The methods of texts. */
import type { Bound, Builtins } from './calls.ts'
import { Fault, type Price } from './price.ts'
import { capitalize, charactersOf, LINE, lengthOf, SPACE, strip, title } from './text.ts'
import { each, intOf, sizeOf, Tuple, textOf, truth, type Value } from './values.ts'

/** The places of a text in another, one behind the other, each paid for; `most` of them at most. */
function* places(text: string, sought: string, most: number, price: Price): Generator<number> {
  price.search(text, sought)
  let count = 0
  for (let at = text.indexOf(sought); at >= 0 && count < most; at = text.indexOf(sought, at + sought.length)) {
    price.pay(1)
    count += 1
    yield at
  }
}

const orAll = (count: number): number => (count < 0 ? Number.POSITIVE_INFINITY : count)

/** text.replace(old, new, count). */
export const replace = (text: string, from: string, to: string, count: number, price: Price): string => {
  const most = orAll(count)
  if (from === '') {
    const characters = Array.from(charactersOf(text, price))
    const all = Math.min(most, characters.length + 1)
    price.pay(characters.length)
    price.text(text.length + all * to.length)
    return characters.map((one, at) => (at < all ? to + one : one)).join('') + (all > characters.length ? to : '')
  }
  let found = 0
  for (const _ of places(text, from, most, price)) found += 1
  price.text(text.length + found * Math.max(0, to.length - from.length))
  if (most === Number.POSITIVE_INFINITY) return text.replaceAll(from, () => to)
  let [result, at] = ['', 0]
  for (let left = found; left > 0; left -= 1) {
    const next = text.indexOf(from, at)
    result += text.slice(at, next) + to
    at = next + from.length
  }
  return result + text.slice(at)
}

const BLANKS = new RegExp(`[${SPACE}]+`, 'g')

/** split and rsplit. */
const split = (text: string, [separator = null, count]: Bound, right: boolean, price: Price): readonly Value[] => {
  const most = orAll(sizeOf(count, 'split', -1))
  const parts: string[] = []
  const cuts: [number, number][] = []
  const words = separator === null ? strip(text, null, true, true) : text
  if (separator === null) {
    if (words === '') return []
    for (const { 0: blanks, index } of words.matchAll(BLANKS)) {
      price.pay(1)
      cuts.push([index, index + blanks.length])
    }
  } else {
    const sought = textOf(separator, 'split')
    if (sought === '') throw new Fault('split gets an empty separator')
    if (right) {
      price.search(text, sought)
      for (
        let at = text.lastIndexOf(sought);
        at >= 0;
        at = at < sought.length ? -1 : text.lastIndexOf(sought, at - sought.length)
      ) {
        price.pay(1)
        cuts.unshift([at, at + sought.length])
        if (cuts.length >= most) break
      }
    } else for (const at of places(text, sought, most, price)) cuts.push([at, at + sought.length])
  }
  const kept = cuts.length <= most ? cuts : right ? cuts.slice(cuts.length - most) : cuts.slice(0, most)
  // Without a separator, what is left over keeps the blanks at its other end.
  const whole = separator !== null || kept.length < most ? words : strip(text, null, !right, right)
  const shift = separator !== null || !right || whole === words ? 0 : whole.length - words.length
  let from = 0
  for (const [start, end] of kept) {
    parts.push(whole.slice(from, start + shift))
    from = end + shift
  }
  parts.push(whole.slice(from))
  return parts
}

const LINES = new RegExp(LINE, 'g')

/** text.splitlines(keepends). */
export const lines = (text: string, keep: boolean, price: Price): readonly string[] => {
  const found: string[] = []
  let from = 0
  for (const { 0: end, index } of text.matchAll(LINES)) {
    price.pay(1)
    found.push(text.slice(from, keep ? index + end.length : index))
    from = index + end.length
  }
  if (from < text.length) found.push(text.slice(from))
  return found
}

/**
 * Part of a text by its code points, as `find` and others take it; the number of those before it; null: it begins
 * behind the end.
 */
const part = (
  text: string,
  start: Value | undefined,
  stop: Value | undefined,
  price: Price,
): readonly [string, number] | null => {
  if ((start ?? null) === null && (stop ?? null) === null) return [text, 0]
  const characters = charactersOf(text, price)
  const at = (bound: Value | undefined, usual: number): number => {
    const own = (bound ?? null) === null ? usual : Number(intOf(bound!, 'a place in a text'))
    return own < 0 ? Math.max(0, own + characters.length) : own
  }
  const from = at(start, 0)
  const to = Math.min(at(stop, characters.length), characters.length)
  if (from > to) return null
  const found = characters.slice(from, to)
  return [typeof found === 'string' ? found : found.join(''), from]
}

const find = (text: string, [sought, start, stop]: Bound, last: boolean, price: Price): number => {
  const own = textOf(sought, 'find')
  const inside = part(text, start, stop, price)
  if (inside === null) return -1
  price.search(inside[0], own)
  const at = last ? inside[0].lastIndexOf(own) : inside[0].indexOf(own)
  return at < 0 ? -1 : inside[1] + lengthOf(inside[0].slice(0, at))
}

/** An index that must be there. */
export const found = (place: number): Value => {
  if (place >= 0) return BigInt(place)
  throw new Fault('index finds nothing')
}

const edge = (text: string, [sought, start, stop]: Bound, end: boolean, price: Price): boolean => {
  const inside = part(text, start, stop, price)
  const all = sought instanceof Tuple ? sought.items : [sought]
  price.pay(all.length)
  const own = all.map((one) => textOf(one, end ? 'endswith' : 'startswith'))
  return own.some((one) => inside !== null && (end ? inside[0].endsWith(one) : inside[0].startsWith(one)))
}

/** A text in the middle or at one side of a field. */
const padded = (
  text: string,
  [width, fill = ' ']: Bound,
  left: (missing: number, width: number) => number,
  price: Price,
): string => {
  const size = sizeOf(width, 'a width')
  const own = textOf(fill, 'a fill')
  if (lengthOf(own) !== 1) throw new Fault('what fills a field is not one character')
  const missing = Math.max(0, size - lengthOf(text))
  price.text(text.length + missing * own.length)
  const before = left(missing, size)
  return own.repeat(before) + text + own.repeat(missing - before)
}

/** text.center(width, fill). */
export const center = (text: string, args: Bound, price: Price): string =>
  padded(text, args, (missing, width) => Math.floor(missing / 2) + (missing & width & 1), price)

/** separator.join(values), where `text` gives what is written of a value. */
export const joined = (
  separator: string,
  values: Iterable<Value>,
  price: Price,
  text: (value: Value) => string,
): string => {
  const parts: string[] = []
  let length = 0
  for (const value of values) {
    const own = text(value)
    length += own.length + (parts.length === 0 ? 0 : separator.length)
    price.text(length)
    price.text(own.length + separator.length)
    parts.push(own)
  }
  return parts.join(separator)
}

const parted = (text: string, [separator]: Bound, last: boolean, price: Price): Value => {
  const own = textOf(separator, 'partition')
  if (own === '') throw new Fault('partition gets an empty separator')
  price.search(text, own)
  const at = last ? text.lastIndexOf(own) : text.indexOf(own)
  if (at < 0) return new Tuple(last ? ['', '', text] : [text, '', ''])
  return new Tuple([text.slice(0, at), own, text.slice(at + own.length)])
}

const trimmed = (name: string, text: string, [set = null]: Bound, left: boolean, right: boolean): string =>
  strip(text, set === null ? null : textOf(set, name), left, right)

const swapped = (text: string): string =>
  text.replace(/\p{Lowercase}+|\p{Uppercase}+/gu, (run) =>
    /^\p{Lowercase}/u.test(run) ? run.toUpperCase() : run.toLowerCase(),
  )

const lettered = (text: string, change: (text: string) => string, price: Price): string => {
  price.letters(text)
  return change(text)
}

/** The methods of a str, without those that are in `isClass`. */
export const STR: Builtins<string> = {
  strip: ['/ chars?', (text, args) => trimmed('strip', text, args, true, true)],
  lstrip: ['/ chars?', (text, args) => trimmed('lstrip', text, args, true, false)],
  rstrip: ['/ chars?', (text, args) => trimmed('rstrip', text, args, false, true)],
  split: ['sep? maxsplit?', (text, args, { price }) => split(text, args, false, price)],
  rsplit: ['sep? maxsplit?', (text, args, { price }) => split(text, args, true, price)],
  splitlines: ['keepends?', (text, [keep = false], { price }) => lines(text, truth(keep), price)],
  startswith: ['/ prefix start? end?', (text, args, { price }) => edge(text, args, false, price)],
  endswith: ['/ suffix start? end?', (text, args, { price }) => edge(text, args, true, price)],
  replace: [
    '/ old new count?',
    (text, [from, to, count], { price }) =>
      replace(text, textOf(from, 'replace'), textOf(to, 'replace'), sizeOf(count, 'replace', -1), price),
  ],
  find: ['/ sub start? end?', (text, args, { price }) => BigInt(find(text, args, false, price))],
  rfind: ['/ sub start? end?', (text, args, { price }) => BigInt(find(text, args, true, price))],
  index: ['/ sub start? end?', (text, args, { price }) => found(find(text, args, false, price))],
  rindex: ['/ sub start? end?', (text, args, { price }) => found(find(text, args, true, price))],
  count: [
    '/ sub start? end?',
    (text, [sub, start, stop], { price }) => {
      const [own, inside] = [textOf(sub, 'count'), part(text, start, stop, price)]
      if (inside === null) return 0n
      if (own === '') return BigInt(lengthOf(inside[0]) + 1)
      let count = 0n
      for (const _ of places(inside[0], own, Number.POSITIVE_INFINITY, price)) count += 1n
      return count
    },
  ],
  upper: ['', (text) => text.toUpperCase()],
  lower: ['', (text) => text.toLowerCase()],
  title: ['', (text, _, { price }) => lettered(text, title, price)],
  capitalize: ['', (text) => capitalize(text)],
  swapcase: ['', (text, _, { price }) => lettered(text, swapped, price)],
  join: [
    '/ iterable',
    (text, [values], { price }) => joined(text, each(values!, price), price, (value) => textOf(value, 'join')),
  ],
  zfill: [
    '/ width',
    (text, args, { price }) => {
      const sign = /^[+-]/.exec(text)?.[0] ?? ''
      const width = BigInt(sizeOf(args[0], 'zfill') - sign.length)
      return sign + padded(text.slice(sign.length), [width, '0'], (missing) => missing, price)
    },
  ],
  center: ['/ width fillchar?', (text, args, { price }) => center(text, args, price)],
  ljust: ['/ width fillchar?', (text, args, { price }) => padded(text, args, () => 0, price)],
  rjust: ['/ width fillchar?', (text, args, { price }) => padded(text, args, (missing) => missing, price)],
  removeprefix: [
    '/ prefix',
    (text, [own]) => (text.startsWith(textOf(own, 'removeprefix')) ? text.slice((own as string).length) : text),
  ],
  removesuffix: [
    '/ suffix',
    (text, [own]) =>
      own !== '' && text.endsWith(textOf(own, 'removesuffix')) ? text.slice(0, -(own as string).length) : text,
  ],
  partition: ['/ sep', (text, args, { price }) => parted(text, args, false, price)],
  rpartition: ['/ sep', (text, args, { price }) => parted(text, args, true, price)],
}
