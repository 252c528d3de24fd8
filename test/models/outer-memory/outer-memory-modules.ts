/**
 * The learned modules of an external memory in double precision, and random ones
 * (docs/infinite-context.md#learned-modules).
 */
import { random, type Tensor, type Tensors } from '../../engine/safetensors.ts'
import { attended, dot, geluTanh, plus, readerOf, silu, type Vector } from '../float64.ts'

export interface ModuleSizes {
  readonly block_size: number
  readonly trimmer: { readonly width: number } | null
  readonly qformer: {
    readonly layers: number
    readonly heads: number
    readonly width: number
    readonly queries: number
  } | null
  readonly projector: { readonly width: number } | null
  readonly graph: { readonly walker_width: number } | null
}

export const unit = (x: Vector): number[] => {
  const length = Math.sqrt(dot(x, x) + 1e-12)
  return x.map((value) => value / length)
}
const times = (x: Vector, factor: number): number[] => x.map((value) => value * factor)
export const mean = (rows: readonly Vector[]): number[] => times(rows.reduce(plus), 1 / rows.length)

/** D channels of the model, L layers, C channels of a key in all heads. */
export const randomModules = (
  seed: number,
  { block_size: B, trimmer, qformer, projector, graph }: ModuleSizes,
  { D, L, C }: { readonly D: number; readonly L: number; readonly C: number },
): Map<string, Tensor> => {
  const next = random(seed)
  const out = new Map<string, Tensor>()
  const put = (name: string, shape: readonly number[], low: number, high = -low): void => {
    const length = shape.reduce((product, extent) => product * extent, 1)
    out.set(name, { shape, data: Float32Array.from({ length }, () => low + (high - low) * next()) })
  }
  const linear = (name: string, outputs: number, inputs: number, biased = false): void => {
    put(`${name}.weight`, [outputs, inputs], -1.5 / Math.sqrt(inputs))
    if (biased) put(`${name}.bias`, [outputs], -0.5)
  }
  const norm = (name: string, width: number): void => {
    put(`${name}.weight`, [width], 0.5, 1.5)
    put(`${name}.bias`, [width], -0.3)
  }
  if (trimmer !== null) {
    norm('trimmer.norm', D)
    linear('trimmer.in', trimmer.width, D, true)
    linear('trimmer.out', 1, trimmer.width, true)
  }
  if (qformer !== null) {
    const { layers, width: F, queries } = qformer
    norm('qformer.in_norm', D)
    linear('qformer.in_proj', F, D, true)
    put('qformer.positions', [B, F], -0.5)
    put('qformer.queries', [queries, F], -1)
    for (let i = 0; i < layers; i += 1) {
      const at = `qformer.layers.${i}`
      for (const each of ['self', 'cross']) {
        norm(`${at}.${each}_norm`, F)
        for (const which of ['q', 'k', 'v', 'o']) linear(`${at}.${each}_attn.${which}_proj`, F, F)
      }
      norm(`${at}.mlp_norm`, F)
      linear(`${at}.mlp.up`, 2 * F, F, true)
      linear(`${at}.mlp.down`, F, 2 * F, true)
    }
    norm('qformer.out_norm', F)
    for (const which of ['k', 'v']) put(`tombstone.${which}_proj.weight`, [L, C, F], -0.3)
    linear('projector.gate_proj', projector!.width, D)
    linear('projector.up_proj', projector!.width, D)
    linear('projector.down_proj', F, projector!.width)
  }
  if (graph !== null) {
    linear('walker.in', graph.walker_width, 9, true)
    linear('walker.out', 1, graph.walker_width, true)
  }
  return out
}

export const modulesReference = (tensors: Tensors, { qformer }: ModuleSizes) => {
  const { of, linear } = readerOf(tensors)
  const norm = (x: Vector, name: string): number[] => {
    const [w, b] = [of(`${name}.weight`), of(`${name}.bias`)]
    const middle = x.reduce((a, c) => a + c, 0) / x.length
    const spread = x.reduce((a, c) => a + (c - middle) ** 2, 0) / x.length
    return x.map((value, i) => ((value - middle) / Math.sqrt(spread + 1e-5)) * w[i]! + b[i]!)
  }
  const rows = (name: string, width: number): Vector[] => {
    const all = [...of(name)]
    return Array.from({ length: all.length / width }, (_, i) => all.slice(i * width, (i + 1) * width))
  }
  const attention = (name: string, asking: readonly Vector[], asked: readonly Vector[]): Vector[] => {
    const { width: F, heads } = qformer!
    const d = F / heads
    const project = (which: string, x: readonly Vector[]) => x.map((row) => linear(`${name}.${which}_proj`, row))
    const [q, k, v] = [project('q', asking), project('k', asked), project('v', asked)]
    return q.map((row) => {
      const all = Array.from({ length: heads }, (_, h) => {
        const cut = (x: Vector): Vector => x.slice(h * d, (h + 1) * d)
        return attended(cut(row), k.map(cut), v.map(cut), 1 / Math.sqrt(d))
      })
      return linear(`${name}.o_proj`, all.flat())
    })
  }
  const added = (x: readonly Vector[], y: readonly Vector[]): Vector[] => x.map((row, i) => plus(row, y[i]!))
  return {
    trimScore: (hidden: Vector): number =>
      linear('trimmer.out', linear('trimmer.in', norm(hidden, 'trimmer.norm')).map(silu))[0]!,
    /** Of the hidden vectors of a block's tokens: N vectors. */
    sumUp: (hidden: readonly Vector[]): Vector[] => {
      const { layers, width: F } = qformer!
      const positions = rows('qformer.positions', F)
      const y = hidden.map((row, p) => plus(linear('qformer.in_proj', norm(row, 'qformer.in_norm')), positions[p]!))
      let x = rows('qformer.queries', F)
      for (let i = 0; i < layers; i += 1) {
        const at = `qformer.layers.${i}`
        const normed = (name: string): Vector[] => x.map((row) => norm(row, `${at}.${name}`))
        const own = normed('self_norm')
        x = added(x, attention(`${at}.self_attn`, own, own))
        x = added(x, attention(`${at}.cross_attn`, normed('cross_norm'), y))
        x = added(
          x,
          normed('mlp_norm').map((row) => linear(`${at}.mlp.down`, linear(`${at}.mlp.up`, row).map(geluTanh))),
        )
      }
      return x.map((row) => unit(norm(row, 'qformer.out_norm')))
    },
    /** What the heads add to a tombstone's key or value, [L][C]. */
    tombstone: (which: 'k' | 'v', row: readonly Vector[]): Vector[] => {
      const z = mean(row)
      const { shape } = tensors.get(`tombstone.${which}_proj.weight`)!
      const w = rows(`tombstone.${which}_proj.weight`, z.length)
      return Array.from({ length: shape[0]! }, (_, l) =>
        w.slice(l * shape[1]!, (l + 1) * shape[1]!).map((each) => dot(each, z)),
      )
    },
    question: (hidden: Vector): number[] => {
      const up = linear('projector.up_proj', hidden)
      const inner = linear('projector.gate_proj', hidden).map((value, i) => silu(value) * up[i]!)
      return unit(linear('projector.down_proj', inner))
    },
    walkScore: (features: Vector): number => linear('walker.out', linear('walker.in', features).map(silu))[0]!,
  }
}
