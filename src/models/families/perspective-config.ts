/** config.json of a `perspective` package, read and checked; docs/perspective.md explains every key. */
import { z } from 'zod'
import { readBySchema, refuseConfig, refuseLayerTypes, size } from '../config.ts'
import { ropeIncrement } from './titans-config.ts'

const PERSPECTIVES = ['base', 'jitter', 'temperature', 'dropout', 'second', 'antipode', 'random'] as const
const TARGETS = [
  ...['pdr.p_proj', 'pdr.k_proj', 'pdr.q_proj', 'pdr.v_proj', 'pdr.o_proj'],
  ...['attn.q_proj', 'attn.k_proj', 'attn.v_proj', 'attn.o_proj'],
] as const

const seed = z.int().nonnegative()
const share = z.number().min(0).max(1)

const schema = z.object({
  model_type: z.literal('perspective'),
  vocab_size: size,
  hidden_size: size,
  num_hidden_layers: size.max(1024),
  layer_types: z.array(z.enum(['pdr', 'gqa'])),
  ffn_types: z.array(z.enum(['experts', 'dense'])),
  intermediate_size: size,
  rms_norm_eps: z.number().positive(),
  tie_word_embeddings: z.boolean(),
  num_attention_heads: size,
  num_key_value_heads: size,
  head_dim: size,
  sliding_window: size,
  rope_theta: z.number().positive(),
  rope_increments: z.array(z.int().nonnegative().max(0xffff_ffff)),
  pdr: z.object({
    width: size,
    rank: size.max(1024),
    gamma_min: z.number().min(0).max(1).default(0),
    gamma_max: z.number().min(0).max(1).default(1),
    write: z.enum(['convex', 'plain']),
  }),
  experts: z.object({
    count: size.max(65536),
    torus: z.tuple([size, size]),
    intermediate_size: size,
    top_k: size.max(64),
    temperature: z.number().positive(),
    format: z.literal('ternary3'),
    group_size: z.union([z.literal(32), z.literal(64)]),
    digest: z.string().regex(/^[0-9a-f]{64}$/, 'expected 64 hexadecimal digits'),
  }),
  recent: z.int().nonnegative().max(65536),
  spp: z.object({ half_spaces: size.max(4096), iterations: size.max(4096), inflation: z.number() }).nullable(),
  mpd: z
    .object({
      layers: size,
      perspectives: z.array(z.enum(PERSPECTIVES)).min(2).max(8),
      max_p: share,
      entropy: z.number().nonnegative(),
      jsd: z.number().nonnegative(),
      jitter_std: z.number().nonnegative().default(0),
      temperature: z.number().positive().default(1),
      dropout: z.number().min(0).lt(1).default(0),
    })
    .nullable(),
  hdm: z
    .object({
      bits: size.max(65536),
      banks: size.max(4096),
      seed,
      hit_max: z.int().nonnegative(),
      blend: share,
      write_nats: z.number(),
    })
    .nullable(),
  fmea: z
    .object({
      targets: z.array(z.enum(TARGETS)),
      rank: size.max(1024),
      seed,
      directions: size.max(64),
      learning_rate: z.number().positive(),
      anchor: z.number().nonnegative(),
      population: size.max(2048),
      sigma: z.number().positive(),
      router_rate: z.number().nonnegative(),
      router_anchor: z.number().nonnegative(),
    })
    .nullable(),
})

/** Memory of an adaptation's derivatives, and of the vectors of the hyperdimensional memory, at most: bytes. */
const MOST_WORKING_BYTES = 2 ** 30

export type PerspectiveConfig = z.infer<typeof schema>

const refuse = (key: string, what: string): never => refuseConfig(`is not a perspective configuration: ${key} ${what}`)

const powerOfTwo = (n: number): boolean => Number.isInteger(Math.log2(n))

/** Throws INVALID, naming the key, for a configuration that is incomplete or contradicts itself. */
export const readPerspectiveConfig = (parsed: unknown): PerspectiveConfig => {
  const config = readBySchema(schema, parsed, 'a perspective')
  const { num_hidden_layers: L, head_dim: d, layer_types, ffn_types, pdr, experts, mpd, hdm, fmea, recent } = config
  refuseLayerTypes(layer_types, L)
  if (ffn_types.length !== L) refuse('ffn_types', `has ${ffn_types.length} entries, expected ${L}, one for each layer`)
  if (!layer_types.includes('pdr')) refuse('layer_types', 'has no "pdr", expected at least one')
  if (!ffn_types.includes('experts')) refuse('ffn_types', 'has no "experts", expected at least one')
  if (config.num_attention_heads % config.num_key_value_heads !== 0)
    refuse(
      'num_attention_heads',
      `is ${config.num_attention_heads}, expected a multiple of num_key_value_heads, ${config.num_key_value_heads}`,
    )
  if (d % 2 !== 0) refuse('head_dim', `is ${d}, expected an even number: channels turn in pairs`)
  if (config.rope_increments.length !== d / 2)
    refuse('rope_increments', `has ${config.rope_increments.length} numbers, expected ${d / 2}, half of head_dim`)
  for (const [i, told] of config.rope_increments.entries()) {
    const expected = ropeIncrement(config.rope_theta, i, d)
    if (Math.abs(told - expected) > 1)
      refuse(`rope_increments[${i}]`, `is ${told}, expected ${expected} (within 1) by rope_theta ${config.rope_theta}`)
  }
  if (pdr.gamma_min >= pdr.gamma_max)
    refuse('pdr.gamma_min', `is ${pdr.gamma_min}, expected less than gamma_max, ${pdr.gamma_max}`)
  if (pdr.write === 'plain' && Math.fround(pdr.gamma_max) >= 1)
    refuse('pdr.gamma_max', 'is 1, expected less where write is "plain": the state would grow without bound')
  const [a, b] = experts.torus
  if (a * b !== experts.count)
    refuse('experts.torus', `has ${a} · ${b} places, expected ${experts.count}, experts.count`)
  if (experts.top_k > experts.count) refuse('experts.top_k', `is ${experts.top_k} of ${experts.count} experts`)
  if (recent < 2 && (hdm !== null || fmea !== null))
    refuse('recent', `is ${recent}, expected at least 2 with hdm or fmea`)
  if (mpd !== null) {
    if (mpd.layers > L) refuse('mpd.layers', `is ${mpd.layers}, expected at most ${L}`)
    if (mpd.perspectives[0] !== 'base')
      refuse('mpd.perspectives', `begins with "${mpd.perspectives[0]}", expected "base"`)
    if (mpd.perspectives.slice(1).includes('base')) refuse('mpd.perspectives', 'has "base" twice')
    if (mpd.perspectives.includes('second') && experts.top_k >= experts.count)
      refuse('mpd.perspectives', 'has "second", which needs more experts than experts.top_k')
  }
  if (hdm !== null) {
    if (mpd === null) refuse('hdm', 'is there and mpd is null: what it recalls is used where several perspectives draw')
    if (hdm.bits % 128 !== 0) refuse('hdm.bits', `is ${hdm.bits}, expected a multiple of 128`)
    if (!powerOfTwo(hdm.banks) || Math.log2(hdm.banks) > hdm.bits)
      refuse('hdm.banks', `is ${hdm.banks}, expected a power of 2`)
    if (hdm.hit_max >= hdm.bits / 2)
      refuse('hdm.hit_max', `is ${hdm.hit_max}, expected less than half of ${hdm.bits} bits`)
  }
  if (fmea !== null) {
    if (fmea.population % 2 !== 0) refuse('fmea.population', `is ${fmea.population}, expected an even number`)
    if (new Set(fmea.targets).size !== fmea.targets.length) refuse('fmea.targets', 'names a target twice')
    if (!layer_types.includes('gqa') && fmea.targets.some((target) => target.startsWith('attn.')))
      refuse('fmea.targets', 'names a map of attention, and no layer has attention')
  }
  // What stays of a token for the derivatives: the values of its nodes, of which these are the wide ones.
  const { width: E } = pdr
  const D = config.hidden_size
  const kept =
    4 * (L * (8 * D + 8 * E + 4 * config.num_attention_heads * d + 3 * config.intermediate_size) + config.vocab_size)
  if (fmea !== null && recent * kept > MOST_WORKING_BYTES)
    refuse(
      'recent',
      `is ${recent}: an adaptation would keep about ${recent * kept} bytes for its derivatives, expected at most ${MOST_WORKING_BYTES}, so at most ${Math.floor(MOST_WORKING_BYTES / kept)} tokens`,
    )
  if (hdm !== null && (config.vocab_size * hdm.bits) / 8 > MOST_WORKING_BYTES)
    refuse(
      'hdm.bits',
      `is ${hdm.bits}: the vectors of ${config.vocab_size} tokens would take ${(config.vocab_size * hdm.bits) / 8} bytes, expected at most ${MOST_WORKING_BYTES}`,
    )
  return config
}
