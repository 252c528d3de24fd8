/** `text % values` and `text.format(…)`. */
import { truncated, written } from './numbers.ts'
import { Fault, type Price } from './price.ts'
import { charactersOf, lengthOf } from './text.ts'
import {
  type Arguments,
  Dict,
  failed,
  isList,
  numberOf,
  Range,
  Tuple,
  typeOf,
  Undefined,
  type Value,
} from './values.ts'
import { repr, softText, str, Writer } from './write.ts'

interface Field {
  readonly fill: string
  /** `=`: between sign and digits. */
  readonly align: '<' | '>' | '=' | '^'
  readonly width: number
}

/** Puts a text, of which `sign` stands before what fills it, into a field. */
const placed = (out: Writer, sign: string, text: string, { fill, align, width }: Field): void => {
  const missing = Math.max(0, width - lengthOf(sign) - lengthOf(text))
  out.price.text(missing * fill.length)
  const left = align === '<' ? 0 : align === '^' ? Math.floor(missing / 2) : missing
  const [before, after] = [fill.repeat(left), fill.repeat(missing - left)]
  out.put(align === '=' ? sign + before + text : before + sign + text + after)
}

const cut = (text: string, length: number | null, price: Price): string =>
  length === null || length >= text.length
    ? text
    : typeof text === 'string' && lengthOf(text) === text.length
      ? text.slice(0, length)
      : Array.from(charactersOf(text, price)).slice(0, length).join('')

const signOf = (negative: boolean, flag: string): string => (negative ? '-' : flag === '-' ? '' : flag)
const isNegative = (value: number | bigint): boolean => value < 0 || Object.is(value, -0)
const BASES: Readonly<Record<string, readonly [number, string]>> = {
  ...{ d: [10, ''], i: [10, ''], u: [10, ''] },
  ...{ x: [16, '0x'], X: [16, '0X'], o: [8, '0o'], b: [2, '0b'] },
}

/** The digits of a number by its letter, without a sign. */
const digitsOf = (value: number | bigint, kind: string, precision: number | null, plain: boolean): string => {
  const base = BASES[kind]
  const text =
    base !== undefined
      ? ((value < 0 ? -value : value) as bigint).toString(base[0]).padStart(precision ?? 0, '0')
      : written(Math.abs(Number(value)), kind.toLowerCase(), precision ?? 6, !plain)
  return /[A-Z]/.test(kind) ? text.toUpperCase() : text
}

const whole = (text: string | undefined, what: string): number | null => {
  if (text === undefined || text === '') return null
  const found = Number(text)
  if (found <= 1e9) return found
  throw new Fault(`it asks for ${what} of ${text}`)
}

/** A character by its number, or one that is there. */
const character = (value: Value): string => {
  if (typeof value === 'string' && lengthOf(value) === 1) return value
  const code = numberOf(value)
  if (typeof code === 'bigint' && code >= 0n && code < 0x110000n && !(code >= 0xd800n && code < 0xe000n))
    return String.fromCodePoint(Number(code))
  throw failed(value, 'what %c writes is no character')
}

const PERCENT = /(?:\(|([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+)?)?[hlL]?(.))/suy

/** The name in parentheses, which may have others in it, and where it ends. */
const nameAt = (text: string, from: number): readonly [string, number] => {
  let open = 1
  let at = from
  for (; open > 0; at += 1) {
    if (at >= text.length) throw new Fault('a name in a format has no end')
    open += text[at] === '(' ? 1 : text[at] === ')' ? -1 : 0
  }
  return [text.slice(from, at - 1), at]
}

/** `text % values`. */
export const percent = (text: string, values: Value, price: Price): string => {
  const out = new Writer(price)
  const list = values instanceof Tuple ? values.items : [values]
  const mapped = values instanceof Dict || isList(values) || values instanceof Range || values instanceof Undefined
  let used = 0
  const next = (): Value => {
    if (used >= list.length) throw new Fault('a format asks for more values than it gets')
    used += 1
    return list[used - 1]!
  }
  const star = (): bigint => {
    const found = next()
    if (typeof found === 'bigint') return found
    throw new Fault('* in a format takes an int')
  }
  let from = 0
  for (let at = text.indexOf('%'); at >= 0; at = text.indexOf('%', from)) {
    out.put(text.slice(from, at))
    price.pay(1)
    let named: Value | undefined
    let start = at + 1
    if (text[start] === '(') {
      const [name, end] = nameAt(text, start + 1)
      if (!(values instanceof Dict)) throw failed(values, 'a format with names takes a dict')
      named = values.get(name)
      if (named === undefined) throw new Fault(`a format names ${name}, which the dict does not have`)
      start = end
    }
    PERCENT.lastIndex = start
    const found = PERCENT.exec(text)
    if (found === null || found[4] === undefined) throw new Fault('a format is not complete')
    from = PERCENT.lastIndex
    const [, flags = '', wide, exact, kind = ''] = found
    const width = wide === '*' ? Number(star()) : (whole(wide, 'a width') ?? 0)
    const precision =
      exact === '*'
        ? Math.max(0, Number(star()))
        : found[0].includes('.') && kind !== '.'
          ? (whole(exact, 'digits') ?? 0)
          : null
    if (kind === '%') {
      out.put('%')
      continue
    }
    const value = named === undefined ? next() : named
    const left = flags.includes('-') || width < 0
    const field = (zeros: boolean): Field => ({
      width: Math.abs(width),
      align: left ? '<' : zeros && flags.includes('0') ? '=' : '>',
      fill: !left && zeros && flags.includes('0') ? '0' : ' ',
    })
    if (kind === 's' || kind === 'r') {
      placed(out, '', cut(kind === 's' ? softText(value, price) : repr(value, price), precision, price), field(false))
      continue
    }
    if (kind === 'c') {
      placed(out, '', character(value), field(false))
      continue
    }
    if (!/[diuoxXeEfFgG]/.test(kind)) throw new Fault(`%${kind} is not supported in a format`)
    let number = numberOf(value)
    if (number === null) throw failed(value, `%${kind} of a format takes a number, not a ${typeOf(value)}`)
    if (/[diu]/.test(kind) && typeof number === 'number') number = truncated(number)
    if (/[oxX]/.test(kind) && typeof number === 'number') throw new Fault(`%${kind} of a format takes an int`)
    if (flags.includes('#') && /[eEfF]/.test(kind)) throw new Fault(`%#${kind} is not supported in a format`)
    price.text(precision ?? 0)
    const sign = signOf(isNegative(number), flags.includes('+') ? '+' : flags.includes(' ') ? ' ' : '')
    const prefix = flags.includes('#') ? (BASES[kind]?.[1] ?? '') : ''
    placed(out, sign + prefix, digitsOf(number, kind, precision, !flags.includes('#')), field(true))
  }
  if (used < list.length && !mapped) throw new Fault('a format gets more values than it asks for')
  out.put(text.slice(from))
  return out.text
}

const SPEC = /^(?:(.)?([<>=^]))?([-+ ])?(#)?(0)?(\d+)?([,_])?(?:\.(\d+))?([a-zA-Z%])?$/su

const grouped = (digits: string, mark: string, size: number): string => {
  const [, head = '', tail = ''] = /^([0-9a-fA-F]*)(.*)$/s.exec(digits)!
  return head.replace(new RegExp(`(?<=.)(?=(?:.{${size}})+$)`, 'g'), mark) + tail
}

/** format(value, spec). */
const formatted = (out: Writer, value: Value, spec: string): void => {
  const { price } = out
  price.text(spec.length)
  if (spec === '') {
    out.put(softText(value, price))
    return
  }
  const found = SPEC.exec(spec)
  const unknown = (): Fault =>
    failed(value, `a ${typeOf(value)} is formatted by ${JSON.stringify(spec)}, which is not supported`)
  if (found === null) throw unknown()
  const [, ownFill, align, sign, alternate, zero, wide, group, exact, kind] = found
  const [width, precision] = [whole(wide, 'a width') ?? 0, whole(exact, 'digits')]
  const fill = ownFill ?? (zero === undefined ? ' ' : '0')
  if (typeof value === 'string') {
    if (sign ?? alternate ?? group) throw unknown()
    if (align === '=' || (kind ?? 's') !== 's') throw unknown()
    placed(out, '', cut(value, precision, price), { fill, align: (align ?? '<') as '<', width })
    return
  }
  const number = numberOf(value)
  const own = kind ?? (typeof number === 'bigint' ? 'd' : '')
  const base = Object.hasOwn(BASES, own) && own !== 'i' && own !== 'u' ? BASES[own]! : undefined
  if (number === null || !(base !== undefined || own === '' || /^[eEfFgG%]$/.test(own))) throw unknown()
  if (base !== undefined && (typeof number === 'number' || precision !== null)) throw unknown()
  if ((own === '' && precision !== null) || (alternate !== undefined && base === undefined)) throw unknown()
  if (group !== undefined && (fill === '0' || (group === ',' && base !== undefined && base[0] !== 10))) throw unknown()
  price.text(precision ?? 0)
  const size = typeof number === 'number' ? Math.abs(number) : number
  let digits = own === '' ? str(size, price) : digitsOf(size, own, precision, true)
  if (group !== undefined) digits = grouped(digits, group, base === undefined || base[0] === 10 ? 3 : 4)
  const prefix = alternate === undefined ? '' : base![1]
  placed(out, signOf(isNegative(number), sign ?? '') + prefix, digits, {
    fill,
    align: (align ?? (zero === undefined ? '>' : '=')) as '>',
    width,
  })
}

/** How a format finds what a field names: `{0.a[b]}`. */
export interface Members {
  attribute(value: Value, name: string): Value
  item(value: Value, key: Value): Value
}

/** The end of a field that begins behind `{`. */
const fieldEnd = (text: string, from: number): number => {
  let open = 1
  for (let at = from; at < text.length; at += 1) {
    if (text[at] === '[') {
      const close = text.indexOf(']', at)
      if (close < 0) break
      at = close
    } else if (text[at] === '{') open += 1
    else if (text[at] === '}') open -= 1
    if (open === 0) return at
  }
  throw new Fault('a field of format() has no end')
}

/** `text.format(…)`. */
export const formatMethod = (text: string, args: Arguments, members: Members, price: Price): string => {
  let count = 0
  let numbered: boolean | null = null
  const first = (name: string, alone: boolean): Value => {
    const automatic = name === '' && alone
    if (automatic || /^\d+$/.test(name)) {
      if (alone && numbered !== null && numbered === automatic)
        throw new Fault('the fields of format() are numbered half')
      if (alone) numbered = !automatic
      const found = args.list[automatic ? count++ : Number(name)]
      if (found === undefined) throw new Fault('format() has more fields than it gets values')
      return found
    }
    const found = args.named.get(name)
    if (found === undefined) throw new Fault(`format() gets nothing named ${name}`)
    return found
  }
  const fieldOf = (name: string): Value => {
    const [, head = '', rest = ''] = /^([^.[]*)(.*)$/s.exec(name)!
    let value = first(head, rest === '')
    if (!/^(?:\.[^.[]+|\[[^\]]+\])*$/s.test(rest)) throw new Fault(`a field of format() is named ${name}`)
    for (const [, attribute, key = ''] of rest.matchAll(/\.([^.[]+)|\[([^\]]+)\]/gs)) {
      price.pay(1)
      value =
        attribute !== undefined
          ? members.attribute(value, attribute)
          : members.item(value, /^\d+$/.test(key) ? BigInt(key) : key)
    }
    return value
  }
  const render = (out: Writer, source: string, depth: number): void => {
    price.text(source.length)
    for (let at = 0; at < source.length; ) {
      const next = source.slice(at).search(/[{}]/)
      if (next < 0) {
        out.put(source.slice(at))
        return
      }
      out.put(source.slice(at, at + next))
      at += next
      price.text(source.length - at)
      if (source[at + 1] === source[at]) {
        out.put(source[at]!)
        at += 2
        continue
      }
      if (source[at] === '}') throw new Fault('a } of format() stands alone')
      if (depth > 1) throw new Fault('the fields of format() are nested too deep')
      const end = fieldEnd(source, at + 1)
      const inside = source.slice(at + 1, end)
      const [, name = '', conversion, spec = ''] =
        /^((?:\[[^\]]*\]|[^!:[])*)(?:!(.))?(?::(.*))?$/s.exec(inside) ??
        (() => {
          throw new Fault(`a field of format() is ${JSON.stringify(inside)}`)
        })()
      const value = fieldOf(name)
      const inner = new Writer(price)
      render(inner, spec, depth + 1)
      if (conversion !== undefined && conversion !== 's' && conversion !== 'r')
        throw new Fault(`!${conversion} is not supported in format()`)
      const shown = conversion === undefined ? value : conversion === 'r' ? repr(value, price) : softText(value, price)
      formatted(out, shown, inner.text)
      at = end + 1
    }
  }
  const out = new Writer(price)
  render(out, text, 0)
  return out.text
}
