/** The hyperdimensional memory (§9): bits and small integers. */
import type { PerspectiveConfig } from './config.ts'
import { rounded } from './experts.ts'
import type { Margins } from './margins.ts'
import { bitOf, draws, type Purpose } from './philox.ts'

export interface Recalled {
  readonly token: number
  readonly distance: number
  /** The bank that answered, and that of the key. */
  readonly bank: number
  readonly own: number
  readonly hit: boolean
}
export interface Memory {
  readonly keyOf: (q: Int8Array) => Uint8Array
  readonly bankOf: (key: Uint8Array) => number
  /** Returns the bank that was written. */
  readonly bind: (banks: Int8Array, key: Uint8Array, token: number) => number
  readonly recall: (banks: Int8Array, key: Uint8Array) => Recalled | null
}

/** int8 [D]: all of h as one group. */
export const whole = (h: Float64Array, margins: Margins): Int8Array => Int8Array.from(rounded(h, margins).q)

export const memoryOf = (config: PerspectiveConfig): Memory | null => {
  const { hdm, vocab_size: V } = config
  if (hdm === null) return null
  const { bits: B, banks: K, seed } = hdm
  const vectors = (purpose: Purpose): ((a: number) => Uint8Array) => {
    const known = new Map<number, Uint8Array>()
    return (a) => {
      const words = draws(seed, purpose, a)
      const own = known.get(a)
      if (own !== undefined) return own
      const all = Array.from({ length: B / 128 }, (_, index) => words(index))
      const made = Uint8Array.from({ length: B }, (_, b) => bitOf(all[b >> 7]!, b & 127))
      known.set(a, made)
      return made
    }
  }
  const [item, basis] = [vectors('ITEM'), vectors('BASIS')]
  const keyOf = (q: Int8Array): Uint8Array =>
    Uint8Array.from({ length: B }, (_, b) => {
      const s = q.reduce((total, value, i) => total + (basis(i)[b] === 1 ? value : -value), 0)
      return s === 0 ? basis(0)[b]! : s > 0 ? 1 : 0
    })
  const bankOf = (key: Uint8Array): number => {
    let bank = 0
    for (let bit = 0; 2 ** bit < K; bit += 1) bank += key[bit]! * 2 ** bit
    return bank
  }
  const bind = (banks: Int8Array, key: Uint8Array, token: number): number => {
    const bank = bankOf(key)
    for (const [b, bit] of item(token).entries()) {
      const at = bank * B + b
      banks[at] = Math.max(-127, Math.min(127, banks[at]! + (key[b] !== bit ? 1 : -1)))
    }
    return bank
  }
  const recall = (banks: Int8Array, key: Uint8Array): Recalled | null => {
    const own = bankOf(key)
    const probes = [own]
    for (let bit = 1; bit < K; bit *= 2) probes.push(own ^ bit)
    let best: Recalled | null = null
    for (const bank of probes) {
      const counters = banks.subarray(bank * B, (bank + 1) * B)
      if (counters.every((counter) => counter === 0)) continue
      const u = key.map((bit, b) => (counters[b]! > 0 ? 1 : 0) ^ bit)
      for (let token = 0; token < V; token += 1) {
        const vector = item(token)
        const distance = u.reduce((count, bit, b) => count + (bit === vector[b] ? 0 : 1), 0)
        const better = best === null || distance < best.distance || (distance === best.distance && token < best.token)
        if (better) best = { token, distance, bank, own, hit: distance <= hdm.hit_max }
      }
    }
    return best
  }
  return { keyOf, bankOf, bind, recall }
}
