/** The read-only half of a `perspective` model: config.json, model.safetensors and experts.safetensors. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { kindOf, type PerspectiveConfig, TARGETS, type Target } from './config.ts'
import type { Linear } from './rows.ts'
import { dot } from './rows.ts'
import { numbersOf, readStored, type Stored, type StoredTensors, type Ternary, ternaryOf } from './tensors.ts'

export interface Expert {
  readonly gate: Ternary
  readonly up: Ternary
  readonly down: Ternary
}
export interface Layer {
  readonly kind: 'pdr' | 'gqa'
  /** Its place among the layers of its kind. */
  readonly place: number
  readonly inputNorm: Float64Array
  readonly postNorm: Float64Array
  /** The maps of the mixer by their names in `fmea.targets`. */
  readonly maps: Readonly<Record<Target, Linear>>
  /** [E], of pdr */
  readonly outNorm: Float64Array
  readonly dense: { readonly gate: Linear; readonly up: Linear; readonly down: Linear } | null
  /** D → 2, and the experts of the layer; null of a dense one. */
  readonly router: Linear | null
  readonly experts: readonly Expert[]
}
export interface Model {
  readonly config: PerspectiveConfig
  /** False: ternary products take x as it is, which makes the loss smooth for central differences. */
  readonly rounding: boolean
  /** [V, D] */
  readonly embed: Float64Array
  readonly head: Linear
  readonly norm: Float64Array
  readonly layers: readonly Layer[]
  /** [N, 2] */
  readonly positions: Float64Array
  /** Half-spaces n_j · y ≤ limit_j; inverse_j = 1/Σ n_j². */
  readonly spp: readonly { readonly normal: Float64Array; readonly limit: number; readonly inverse: number }[]
}

const storedIn = (tensors: StoredTensors, name: string): Stored => {
  const stored = tensors.get(name)
  if (stored === undefined) throw new Error(`the reference lacks ${name}`)
  return stored
}

const linearIn = (tensors: StoredTensors, name: string): Linear => {
  const weight = storedIn(tensors, `${name}.weight`)
  const bias = tensors.get(`${name}.bias`)
  const [outputs = 0, inputs = 0] = weight.shape
  return { outputs, inputs, w: numbersOf(weight), bias: bias === undefined ? null : numbersOf(bias) }
}

const expertIn = (tensors: StoredTensors, at: string, config: PerspectiveConfig): Expert => {
  const matrix = (name: string, inputs: number): Ternary => {
    const whole = `${at}.${name}.weight`
    const codes = storedIn(tensors, whole)
    return ternaryOf(codes, storedIn(tensors, `${whole}.scales`), inputs, config.experts.group_size)
  }
  const { hidden_size: D } = config
  const I = config.experts.intermediate_size
  return { gate: matrix('gate_proj', D), up: matrix('up_proj', D), down: matrix('down_proj', I) }
}

export const readModel = (dir: string, rounding: boolean): Model => {
  const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8')) as PerspectiveConfig
  const tensors = readStored(join(dir, 'model.safetensors'))
  const experts = readStored(join(dir, 'experts.safetensors'))
  const of = (name: string): Float64Array => numbersOf(storedIn(tensors, name))
  const layers = config.layer_types.map((kind, l): Layer => {
    const at = `model.layers.${l}.`
    const own = TARGETS.filter((target) => kindOf(target) === kind)
    const mlp = (name: string): Linear => linearIn(tensors, `${at}mlp.${name}_proj`)
    const dense = config.ffn_types[l] === 'dense'
    return {
      kind,
      place: config.layer_types.slice(0, l).filter((each) => each === kind).length,
      inputNorm: of(`${at}input_layernorm.weight`),
      postNorm: of(`${at}post_attention_layernorm.weight`),
      maps: Object.fromEntries(own.map((target) => [target, linearIn(tensors, at + target)])) as Layer['maps'],
      outNorm: kind === 'pdr' ? of(`${at}pdr.out_norm.weight`) : new Float64Array(0),
      dense: dense ? { gate: mlp('gate'), up: mlp('up'), down: mlp('down') } : null,
      router: dense ? null : linearIn(tensors, `${at}router`),
      experts: dense
        ? []
        : Array.from({ length: config.experts.count }, (_, e) => expertIn(experts, `${at}experts.${e}`, config)),
    }
  })
  const embed = of('model.embed_tokens.weight')
  const { vocab_size: V, hidden_size: D, spp } = config
  const offsets = spp === null ? new Float64Array(0) : of('model.spp.offsets')
  return {
    config,
    rounding,
    embed,
    head: config.tie_word_embeddings ? { outputs: V, inputs: D, w: embed, bias: null } : linearIn(tensors, 'lm_head'),
    norm: of('model.norm.weight'),
    layers,
    positions: of('model.experts.positions'),
    spp: Array.from(offsets, (offset, j) => {
      const normal = of('model.spp.normals').slice(j * D, (j + 1) * D)
      return { normal, limit: offset + spp!.inflation, inverse: 1 / dot(normal, normal) }
    }),
  }
}
