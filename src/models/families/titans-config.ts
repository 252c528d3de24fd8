/** config.json of a Titans package, read and checked; docs/titans.md explains every key. */
import { z } from 'zod'
import type { MemoryForm } from '../../engine/memory-ops.ts'
import { readBySchema, refuseConfig, size } from '../config.ts'

const compositions = z.enum(['mac', 'mag', 'mal'])
/** One number for all levels, or one for each. */
const perLevel = z.union([z.number(), z.array(z.number()).nonempty()])

const schema = z.object({
  model_type: z.literal('titans'),
  vocab_size: size,
  hidden_size: size,
  num_hidden_layers: size.max(1024),
  num_attention_heads: size,
  num_key_value_heads: size,
  head_dim: size,
  sliding_window: size,
  num_persistent_tokens: z.int().nonnegative(),
  rope_theta: z.number().positive(),
  rope_increments: z.array(z.int().nonnegative().max(0xffff_ffff)),
  intermediate_size: size,
  rms_norm_eps: z.number().positive(),
  tie_word_embeddings: z.boolean(),
  composition: z.union([compositions, z.array(compositions)]),
  segment_size: size.nullish(),
  memory: z.object({
    rule: z.enum(['titans', 'delta', 'hebbian']),
    heads: size,
    head_dim: size.max(256),
    conv_width: size.max(64),
    levels: z.array(size).nonempty(),
    retention: z.enum(['l2', 'kl', 'sphere', 'elastic', 'none']),
    init: z.enum(['learned', 'zero']),
    alpha_min: perLevel.default(0),
    alpha_max: perLevel.default(1),
    eta_max: perLevel.nullish(),
    theta_max: perLevel.default(1),
    norm_max: z.number().positive().nullish(),
    elastic_l1: z.number().nonnegative().default(0),
    elastic_l2: z.number().nonnegative().default(1),
    sphere_radius: z.number().positive().nullish(),
    kl_floor: z.number().positive().default(1e-12),
    qk_norm_eps: z.number().positive().default(1e-6),
  }),
})

type Read = z.infer<typeof schema>
type Levels = readonly number[]
/** As the file says it, with one entry for each layer and level. */
export type TitansConfig = Omit<Read, 'composition' | 'memory'> & {
  readonly composition: readonly z.infer<typeof compositions>[]
  readonly memory: Omit<Read['memory'], 'alpha_min' | 'alpha_max' | 'eta_max' | 'theta_max'> & {
    readonly alpha_min: Levels
    readonly alpha_max: Levels
    readonly eta_max: Levels
    readonly theta_max: Levels
  }
}

const refuse = (key: string, what: string): never => refuseConfig(`is not a Titans configuration: ${key} ${what}`)

/** round(2³²/(2π) · theta^(−2i/d)), the turn of pair i at one pulse in 2³²nds. */
export const ropeIncrement = (theta: number, i: number, d: number): number =>
  Math.floor((2 ** 32 / (2 * Math.PI)) * theta ** ((-2 * i) / d) + 0.5)

const checkRope = ({ head_dim: d, rope_theta, rope_increments }: Read): void => {
  if (d % 2 !== 0) refuse('head_dim', `is ${d}, expected an even number: channels turn in pairs`)
  if (rope_increments.length !== d / 2) {
    refuse('rope_increments', `has ${rope_increments.length} numbers, expected ${d / 2}, half of head_dim`)
  }
  for (const [i, told] of rope_increments.entries()) {
    const expected = ropeIncrement(rope_theta, i, d)
    if (Math.abs(told - expected) > 1) {
      refuse(`rope_increments[${i}]`, `is ${told}, expected ${expected} (within 1) by rope_theta ${rope_theta}`)
    }
  }
}

/** Throws INVALID, naming the key, for a configuration that is incomplete or contradicts itself. */
export const readTitansConfig = (parsed: unknown): TitansConfig => {
  const config = readBySchema(schema, parsed, 'a Titans')
  const { num_hidden_layers: L, num_attention_heads: H, num_key_value_heads: Hkv, memory } = config
  checkRope(config)
  if (H % Hkv !== 0) refuse('num_attention_heads', `is ${H}, expected a multiple of num_key_value_heads, ${Hkv}`)
  const { composition: told } = config
  if (typeof told !== 'string' && told.length !== L) {
    refuse('composition', `has ${told.length} entries, expected ${L}, one for each layer`)
  }
  const composition = typeof told === 'string' ? Array<typeof told>(L).fill(told) : told
  if (composition.includes('mac') && config.segment_size == null) refuse('segment_size', 'is missing; "mac" needs it')
  const K = memory.levels.length
  const each = (key: 'alpha_min' | 'alpha_max' | 'eta_max' | 'theta_max', least: number, most: number): Levels => {
    const value = memory[key] ?? 0
    const all = typeof value === 'number' ? Array<number>(K).fill(value) : value
    if (all.length !== K) refuse(`memory.${key}`, `has ${all.length} numbers, expected ${K}, one for each level`)
    const odd = all.find((number) => !(number >= least && number <= most))
    if (odd !== undefined) refuse(`memory.${key}`, `is ${odd}, expected ${least} to ${most}`)
    return all
  }
  if (memory.rule === 'titans' && memory.eta_max == null)
    refuse('memory.eta_max', 'is missing; the rule "titans" needs it')
  const alpha_min = each('alpha_min', 0, 1)
  const alpha_max = each('alpha_max', 0, 1)
  const eta_max = each('eta_max', 0, 1)
  const theta_max = each('theta_max', 0, 1e6)
  if (alpha_min.some((least, i) => least > alpha_max[i]!)) refuse('memory.alpha_min', 'is above memory.alpha_max')
  // As the engine has them: in f32.
  if (eta_max.map(Math.fround).includes(1))
    refuse('memory.eta_max', 'is 1 in f32, expected less: what momentum has seen would never fade')
  if (theta_max.map(Math.fround).includes(0))
    refuse('memory.theta_max', 'is 0 in f32, expected more: the memory would never learn')
  if (memory.init === 'zero' && memory.retention === 'sphere') {
    refuse('memory.init', 'is "zero", which has no direction for the retention "sphere" to keep; use "learned"')
  }
  if (memory.norm_max != null && (memory.retention === 'kl' || memory.retention === 'sphere')) {
    refuse(
      'memory.norm_max',
      `is ${memory.norm_max}, but the retention "${memory.retention}" bounds the norm itself; leave it out`,
    )
  }
  return { ...config, composition, memory: { ...memory, alpha_min, alpha_max, eta_max, theta_max } }
}

/** The form of the memory's operations. */
export const memoryFormOf = ({ memory }: TitansConfig): MemoryForm => {
  const { rule, retention, levels: periods, norm_max, elastic_l1, elastic_l2, sphere_radius, kl_floor } = memory
  return {
    rule,
    retention,
    periods,
    ...(norm_max == null ? {} : { norm_max }),
    ...(retention === 'elastic' ? { elastic_l1, elastic_l2 } : {}),
    ...(retention === 'sphere' ? { radius: sphere_radius ?? Math.sqrt(memory.head_dim) } : {}),
    ...(retention === 'kl' ? { floor: kl_floor } : {}),
  }
}
