/**
 * A table of bounded size in which what was used longest ago gives way: sets of sixteen entries each, the one used last
 * in front. It begins small and doubles when a set is full, so a session that has read little has little. What it holds
 * follows from the calls alone.
 */
import { type ByteReader, type ByteWriter, Unreadable } from './bytes.ts'

const WAYS = 16
const LEAST_SETS = 4

export interface Table {
  /**
   * The entry of a key, which is now the first of its set; a new one where there was none: words behind the key are 0.
   * Returns the index of its first word. Valid until the next call.
   */
  take(low: number, high: number): number
  /** The same of an entry that stays where it is; −1 where there is none. */
  find(low: number, high: number): number
  /** Whether the last call of `take` found none. */
  readonly isNew: boolean
  /** The index of the first word of each entry. */
  entries(): Iterable<number>
  /** Of all entries; as numbers of 32 and 64 bits. */
  readonly u32: Uint32Array
  readonly f32: Float32Array
  readonly f64: Float64Array
  write(to: ByteWriter): void
}

export interface TableShape {
  /** 32-bit words of an entry, its key among them; even where `f64` is used. */
  readonly words: number
  /** 32-bit words of a key: 1 or 2. */
  readonly key: 1 | 2
  /** Entries at most: sixteen times a power of two. */
  readonly most: number
}

/** `from`: what `write` wrote. Throws `Unreadable`. */
export const createTable = ({ words, key, most }: TableShape, from?: ByteReader): Table => {
  const mostSets = most / WAYS
  let sets = LEAST_SETS
  let u32: Uint32Array
  let f32: Float32Array
  let f64: Float64Array
  let used: Uint8Array
  let isNew = false

  const setsOf = (wanted: number): void => {
    sets = wanted
    const buffer = new ArrayBuffer(8 * Math.ceil((sets * WAYS * words) / 2))
    u32 = new Uint32Array(buffer)
    f32 = new Float32Array(buffer)
    f64 = new Float64Array(buffer)
    used = new Uint8Array(sets)
  }

  const grow = (): void => {
    const [old, oldUsed, oldSets] = [u32, used, sets]
    setsOf(2 * sets)
    for (let set = 0; set < oldSets; set += 1) {
      for (let way = 0; way < oldUsed[set]!; way += 1) {
        const at = (set * WAYS + way) * words
        const to = old[at]! & (sets - 1)
        u32.set(old.subarray(at, at + words), (to * WAYS + used[to]!) * words)
        used[to]! += 1
      }
    }
  }

  const read = ({ count: counted, u8, u32: word }: ByteReader): void => {
    const power = counted(Math.log2(mostSets))
    setsOf(2 ** power)
    for (let set = 0; set < sets; set += 1) used[set] = u8()
    for (let set = 0; set < sets; set += 1) {
      if (used[set]! > WAYS) throw new Unreadable(`has ${used[set]} entries in a set of ${WAYS}`)
      for (let at = set * WAYS * words; at < (set * WAYS + used[set]!) * words; at += 1) u32[at] = word()
      for (let way = 0; way < used[set]!; way += 1) {
        if ((u32[(set * WAYS + way) * words]! & (sets - 1)) !== set)
          throw new Unreadable('has an entry in a set of others')
      }
    }
  }

  setsOf(Math.min(LEAST_SETS, mostSets))
  if (from !== undefined) read(from)

  const find = (low: number, high: number): number => {
    const set = low & (sets - 1)
    const first = set * WAYS * words
    const end = first + used[set]! * words
    let at = first
    while (at < end && (u32[at] !== low >>> 0 || (key === 2 && u32[at + 1] !== high >>> 0))) at += words
    return at === end ? -1 : at
  }

  return {
    find,
    take(low, high) {
      let set = low & (sets - 1)
      let first = set * WAYS * words
      const at = find(low, high)
      isNew = at === -1
      if (!isNew) {
        if (at > first) {
          const own = u32.slice(at, at + words)
          u32.copyWithin(first + words, first, at)
          u32.set(own, first)
        }
        return first
      }
      while (used[set] === WAYS && sets < mostSets) {
        grow()
        set = low & (sets - 1)
        first = set * WAYS * words
      }
      if (used[set]! < WAYS) used[set]! += 1
      u32.copyWithin(first + words, first, first + (used[set]! - 1) * words)
      u32.fill(0, first, first + words)
      u32[first] = low
      if (key === 2) u32[first + 1] = high
      return first
    },
    *entries() {
      for (let set = 0; set < sets; set += 1)
        for (let way = 0; way < used[set]!; way += 1) yield (set * WAYS + way) * words
    },
    get isNew() {
      return isNew
    },
    get u32() {
      return u32
    },
    get f32() {
      return f32
    },
    get f64() {
      return f64
    },
    write(to) {
      to.u32(Math.log2(sets))
      to.bytes(used)
      for (let set = 0; set < sets; set += 1)
        for (let at = set * WAYS * words; at < (set * WAYS + used[set]!) * words; at += 1) to.u32(u32[at]!)
    },
  }
}
