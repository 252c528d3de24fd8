/**
 * Damage: to bytes, to JSON, and to safetensors files. All of it follows from a random source, so a case is a kind, a
 * seed and a number.
 */
import { random as generator } from '../engine/packages.ts'

export interface Random {
  /** In [0, 1). */
  next(): number
  /** A whole number below `n`. */
  below(n: number): number
  pick<T>(items: readonly T[]): T
}

export const randomOf = (seed: number, at: number): Random => {
  const next = generator(Math.imul(seed + 1, 0x9e3779b1) ^ Math.imul(at + 1, 0x85ebca6b))
  const below = (n: number): number => Math.floor(next() * n)
  return { next, below, pick: (items) => items[below(items.length)]! }
}

/** Values that a reader of a number, a text or a list may not have thought of. */
const ODD: readonly unknown[] = [
  ...[
    0,
    -1,
    1,
    2,
    3,
    7,
    63,
    65,
    255,
    257,
    65535,
    65537,
    1e6,
    2 ** 31 - 1,
    2 ** 31,
    2 ** 32 - 1,
    2 ** 32,
    2 ** 53,
    1e18,
  ],
  ...[
    1e308,
    3e38,
    0.5,
    -0.5,
    1e-320,
    null,
    true,
    false,
    '',
    'x',
    '0',
    'F32',
    '\u0000',
    '\ud800',
    '__proto__',
    '(',
    'a*',
    '[^',
  ],
  ...[[], {}, [1], [[]], 'A'.repeat(5000), { type: 'Sequence' }],
]
const NAMES = ['extra', '', 'toString', 'constructor', '__proto__', 'length', 'type']
const DEPTHS = [40, 70, 3000, 100_000]
const NEST = '\u0001nest'
/** Places of one case at most that are nested so deeply: a list may repeat one of them thousands of times. */
const MOST_NESTS = 8

type Key = string | number
type Holder = Record<Key, unknown>

/** Few of the members of long lists, or a vocabulary would take all the damage. */
const pathsOf = (value: unknown, at: readonly Key[] = []): (readonly Key[])[] => {
  if (typeof value !== 'object' || value === null) return [at]
  const keys: Key[] = Array.isArray(value) ? [...value.keys()] : Object.keys(value)
  const some = keys.length > 24 ? [...keys.slice(0, 12), ...keys.slice(-12)] : keys
  return [at, ...some.flatMap((key) => pathsOf((value as Holder)[key], [...at, key]))]
}

const at = (value: unknown, path: readonly Key[]): unknown =>
  path.reduce<unknown>((holder, key) => (holder as Holder | undefined)?.[key], value)

const put = (holder: Holder, key: Key, value: unknown): void => {
  Object.defineProperty(holder, key, { value, enumerable: true, configurable: true, writable: true })
}

const changed = (value: unknown, random: Random): unknown => {
  // A copy: the next change may go into it.
  if (typeof value !== 'number' || random.next() < 0.3) return structuredClone(random.pick(ODD))
  return random.pick([value * 2, value + 1, value - 1, -value, value * 1e6, value / 2, value / 3])
}

/** JSON text with one to three members changed, removed, doubled, exchanged or nested thousands deep. */
export const damagedJson = (value: unknown, random: Random): string => {
  const out = structuredClone(value)
  const times = 1 + random.below(3)
  for (let time = 0; time < times; time += 1) {
    const paths = pathsOf(out).filter((path) => path.length > 0)
    if (paths.length === 0) break
    const path = random.pick(paths)
    const key = path.at(-1)!
    const holder = at(out, path.slice(0, -1)) as Holder
    const kind = random.next()
    if (kind < 0.15) {
      if (Array.isArray(holder)) holder.splice(Number(key), 1)
      else delete holder[key]
    } else if (kind < 0.25) put(holder, key, structuredClone(at(out, random.pick(paths))))
    else if (kind < 0.3) put(holder, key, NEST)
    else if (kind < 0.35 && Array.isArray(holder)) holder.push(...Array(random.below(2000)).fill(holder[Number(key)]))
    else if (kind < 0.4) put(holder, Array.isArray(holder) ? key : random.pick(NAMES), holder[key])
    else put(holder, key, changed(holder[key], random))
  }
  const depth = random.pick(DEPTHS)
  // In the text: JSON.stringify could not write what is nested so deeply.
  const deep = `${'['.repeat(depth)}${']'.repeat(depth)}`
  let nests = 0
  return JSON.stringify(out).replaceAll(JSON.stringify(NEST), () => {
    nests += 1
    return nests <= MOST_NESTS ? deep : '[]'
  })
}

/** One to eight places below `end` flipped, overwritten or copied from elsewhere; or the end cut off. */
export const damagedBytes = (bytes: Uint8Array, random: Random, end = bytes.length): Uint8Array => {
  if (random.next() < 0.1) return bytes.slice(0, random.below(end + 1))
  const out = Buffer.from(bytes)
  const times = 1 + random.below(8)
  for (let time = 0; time < times && end > 0; time += 1) {
    const place = random.below(end)
    const kind = random.next()
    if (kind < 0.5) out[place]! ^= 1 << random.below(8)
    else if (kind < 0.8) out[place] = random.below(256)
    else out.copyWithin(place, random.below(end), Math.min(end, place + 16))
  }
  return out
}

/** Text that was JSON: its bytes damaged, or what it says. */
export const damagedText = (text: string, random: Random): Uint8Array =>
  random.next() < 0.2 ? damagedBytes(Buffer.from(text), random) : Buffer.from(damagedJson(JSON.parse(text), random))

const lengthOf = (file: Uint8Array): number => Number(Buffer.from(file).readBigUInt64LE(0))

/** The header of a safetensors file as text, and the bytes behind it. */
export const partsOf = (file: Uint8Array): { readonly header: string; readonly data: Uint8Array } => {
  const end = 8 + lengthOf(file)
  return { header: Buffer.from(file.subarray(8, end)).toString(), data: file.subarray(end) }
}

export const joined = (header: string, data: Uint8Array): Uint8Array => {
  const text = Buffer.from(header)
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(text.length))
  return Buffer.concat([length, text, data])
}

/** Numbers that arithmetic does not expect: NaN, infinities, the smallest and the largest there are. */
const WORDS = [0x7fc00000, 0x7f800000, 0xff800000, 1, 0x7f7fffff, 0xff7fffff, 0x80000000, 0xffffffff]

const damagedNumbers = (file: Uint8Array, random: Random): Uint8Array => {
  const out = Buffer.from(file)
  const from = 8 + lengthOf(file)
  const runs = 1 + random.below(40)
  for (let run = 0; run < runs; run += 1) {
    const first = from + 4 * random.below(Math.floor((out.length - from) / 4) - 8)
    const many = 1 + random.below(6)
    for (let i = 0; i < many; i += 1) out.writeUInt32LE(random.pick(WORDS), first + 4 * i)
  }
  return out
}

/** A safetensors file with its length, header, bytes or numbers damaged. */
export const damagedSafetensors = (file: Uint8Array, random: Random): Uint8Array => {
  const length = lengthOf(file)
  const kind = random.next()
  if (kind < 0.1) {
    const out = Buffer.from(file)
    const lengths = [
      0,
      1,
      2,
      length - 1,
      length + 1,
      length + 8,
      file.length,
      file.length - 8,
      file.length - 7,
      1e8,
      2 ** 32,
    ]
    out.writeBigUInt64LE(random.pick([...lengths.map(BigInt), 1n << 63n, (1n << 64n) - 1n, (1n << 64n) - 8n]), 0)
    return out
  }
  if (kind < 0.2) return file.slice(0, random.below(random.next() < 0.5 ? length + 16 : file.length))
  if (kind < 0.35) return damagedBytes(file, random, 8 + length)
  if (kind < 0.55) return damagedNumbers(file, random)
  const { header, data } = partsOf(file)
  return joined(damagedJson(JSON.parse(header), random), data)
}
