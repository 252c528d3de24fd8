/**
 * Rotary positions of a decoder: what config.json says of them, and by which part of a turn each pair of channels moves
 * on with a position (op `rope`, docs/graph.md).
 *
 * The numbers are computed with 192 binary digits behind the point: the C library's `pow` may differ by its last digit
 * from one machine to the next, and no weight of a model, and no bit of its results, may depend on that.
 */
import { z } from 'zod'
import { ContinuoError } from '../errors.ts'

const positive = z.number().positive()
/** What a configuration says of one way to turn. */
export const ropeParameters = z.looseObject({
  rope_type: z.string().nullish(),
  /** The same under its older name. */
  type: z.string().nullish(),
  rope_theta: z.number().nullish(),
  factor: z.number().nullish(),
  low_freq_factor: positive.nullish(),
  high_freq_factor: positive.nullish(),
  original_max_position_embeddings: positive.nullish(),
  /** Of type "factors", which GGUF files have as a tensor: what the angle of each pair is divided by. */
  factors: z.array(positive).nullish(),
})

/** Members of config.json that say how positions turn; `rope_parameters`, where it is there, counts alone. */
const whole = z.literal(1, 'must be 1: all channels of a head turn in this family').nullish()
export const ropeMembers = {
  rope_theta: z.number().nullish(),
  rope_scaling: ropeParameters.nullish(),
  rope_parameters: ropeParameters.extend({ partial_rotary_factor: whole }).nullish(),
  partial_rotary_factor: whole,
}
export interface RopeConfig {
  readonly rope_theta?: number | null | undefined
  readonly rope_scaling?: z.infer<typeof ropeParameters> | null | undefined
  readonly rope_parameters?: z.infer<typeof ropeParameters> | null | undefined
}

/**
 * How fast the pairs of a head turn: pair i of n channels by base^(−2i/n) a position, divided by what `scaling` says.
 */
export interface Rope {
  readonly base: number
  readonly scaling:
    | { readonly kind: 'default' }
    | { readonly kind: 'linear'; readonly factor: number }
    | { readonly kind: 'factors'; readonly factors: readonly number[] }
    | {
        readonly kind: 'llama3'
        readonly factor: number
        readonly low: number
        readonly high: number
        readonly positions: number
      }
}

const refuse = (what: string): never => {
  throw new ContinuoError('INVALID', `config.json: ${what}`)
}

/**
 * The turning that a configuration asks for; `base` where it names none. Throws INVALID for a kind that is not known.
 */
export const ropeOf = (config: RopeConfig, base = 10_000): Rope => {
  const { rope_parameters: newer, rope_scaling: older } = config
  const where = newer == null ? 'rope_scaling' : 'rope_parameters'
  const told = newer ?? older ?? {}
  const theta = (newer == null ? config.rope_theta : (newer.rope_theta ?? config.rope_theta)) ?? base
  if (!(theta >= 1)) refuse(`rope_theta is ${theta}, expected at least 1.`)
  const kind = told.rope_type ?? told.type ?? 'default'
  if (kind === 'default') return { base: theta, scaling: { kind } }
  if (kind === 'factors' && told.factors != null) return { base: theta, scaling: { kind, factors: told.factors } }
  if (kind !== 'linear' && kind !== 'llama3') {
    refuse(`${where} has the type ${JSON.stringify(kind)}, expected "default", "linear" or "llama3".`)
  }
  const need = (key: 'factor' | 'low_freq_factor' | 'high_freq_factor' | 'original_max_position_embeddings'): number =>
    told[key] ?? refuse(`${where} of type "${kind}" lacks ${key}.`)
  const factor = need('factor')
  if (!(factor >= 1)) refuse(`${where}.factor is ${factor}, expected at least 1.`)
  if (kind === 'linear') return { base: theta, scaling: { kind, factor } }
  const [low, high] = [need('low_freq_factor'), need('high_freq_factor')]
  if (low >= high)
    refuse(`${where} has low_freq_factor ${low} and high_freq_factor ${high}, expected a lower and a higher one.`)
  return {
    base: theta,
    scaling: { kind: 'llama3', factor, low, high, positions: need('original_max_position_embeddings') },
  }
}

/** Of a head. config.json may say any number, and no tensor was compared with it yet. */
const MOST_CHANNELS = 4096

const DIGITS = 192n
const ONE = 1n << DIGITS

const times = (a: bigint, b: bigint): bigint => (a * b) >> DIGITS
const over = (a: bigint, b: bigint): bigint => (a << DIGITS) / b

/** A number exactly, but for what lies behind the last digit. */
const fixed = (x: number): bigint => {
  let [whole, places] = [x, 0n]
  for (; !Number.isInteger(whole); places += 1n) whole *= 2
  return (BigInt(whole) << DIGITS) >> places
}

/** artanh z = z + z³/3 + z⁵/5 + …, |z| ≤ 1/3; with `sign` −1 the arc tangent. */
const series = (z: bigint, sign: 1n | -1n): bigint => {
  let [sum, power] = [0n, z]
  for (let n = 1n; power !== 0n; n += 2n) {
    sum += power / n
    power = sign * times(power, times(z, z))
  }
  return sum
}

const LN2 = 2n * series(ONE / 3n, 1n)
/** Machin: π/4 = 4 arctan 1/5 − arctan 1/239. */
const PI = 16n * series(ONE / 5n, -1n) - 4n * series(ONE / 239n, -1n)

/** ln x for x ≥ 1. */
const log = (x: bigint): bigint => {
  let [rest, doublings] = [x, 0n]
  for (; rest >= 2n * ONE; doublings += 1n) rest >>= 1n
  return doublings * LN2 + 2n * series(over(rest - ONE, rest + ONE), 1n)
}

/** e^−x for x ≥ 0. */
const falling = (x: bigint): bigint => {
  const halvings = x / LN2
  const rest = x - halvings * LN2
  let [sum, term] = [0n, ONE]
  for (let n = 1n; term !== 0n; n += 1n) {
    sum += term
    term = times(term, -rest) / n
  }
  return sum >> halvings
}

/**
 * The turn of each pair of n channels at one position, in 2³²nds of a full turn: ⌊2³²/(2π) · f_i + ½⌋ with f_i =
 * base^(−2i/n) and
 *
 *   linear   f_i / factor
 *   factors  f_i / factors_i
 *   llama3   c = positions · f_i / 2π, the turns within the original context; c < low: f_i / factor; c > high: f_i; between,
 *            with γ = (c − low) / (high − low): (1 − γ) f_i / factor + γ f_i
 *
 * Su, Lu, Pan, Murtadha, Wen, Liu, "RoFormer" (2021); `linear`: Chen, Wong, Chen, Tian, "Extending Context Window of
 * Large Language Models via Positional Interpolation" (2023); `llama3`: "The Llama 3 Herd of Models" (2024) as its
 * published code has it.
 */
export const ropeIncrements = ({ base, scaling }: Rope, channels: number): readonly number[] => {
  if (channels > MOST_CHANNELS) refuse(`a head turns ${channels} channels, expected at most ${MOST_CHANNELS}.`)
  if (scaling.kind === 'factors' && scaling.factors.length !== channels / 2)
    refuse(`the rope has ${scaling.factors.length} factors, expected ${channels / 2}, one for each pair of channels.`)
  const rate = log(fixed(base))
  return Array.from({ length: channels / 2 }, (_, i) => {
    const f = falling((rate * BigInt(2 * i)) / BigInt(channels))
    const scaled = (): bigint => {
      if (scaling.kind === 'default') return f
      if (scaling.kind === 'factors') return over(f, fixed(scaling.factors[i]!))
      const slow = over(f, fixed(scaling.factor))
      if (scaling.kind === 'linear') return slow
      const [low, high] = [fixed(scaling.low), fixed(scaling.high)]
      const turns = over(times(fixed(scaling.positions), f), 2n * PI)
      if (turns < low) return slow
      if (turns > high) return f
      const share = over(turns - low, high - low)
      return times(ONE - share, slow) + times(share, f)
    }
    return Number((over(scaled() << 32n, 2n * PI) + ONE / 2n) >> DIGITS)
  })
}
