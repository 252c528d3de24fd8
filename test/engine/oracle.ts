/**
 * RWKV-7 in double precision, slowly: written from the formulas, line by line, sharing nothing with the engine. State
 * is row = value channel, column = key channel, as in the paper (the engine keeps the transpose).
 */
import type { Tensors } from './packages.ts'

type Vector = readonly number[]

const sigmoid = (z: number): number => 1 / (1 + Math.exp(-z))

export const rwkv7Oracle = (tensors: Tensors) => {
  const flat = (name: string): Vector => {
    const tensor = tensors.get(name)
    if (!tensor) throw new Error(`the oracle lacks ${name}`)
    return Array.from(tensor.data)
  }
  const shape = (name: string): readonly number[] => tensors.get(name)!.shape
  const layers =
    1 + Math.max(...[...tensors.keys()].flatMap((name) => /^blocks\.(\d+)\./.exec(name)?.[1] ?? []).map(Number))
  const [vocabulary = 0, C = 0] = shape('emb.weight')
  const [H = 0, N = 0] = shape('blocks.0.att.r_k')

  /** W·x with W [out, in]. */
  const dot = (name: string, x: Vector): number[] => {
    const w = flat(name)
    return Array.from({ length: w.length / x.length }, (_, o) =>
      x.reduce((sum, value, i) => sum + w[o * x.length + i]! * value, 0),
    )
  }
  /** x·M with M [in, out]. */
  const right = (x: Vector, name: string): number[] => {
    const m = flat(name)
    const out = m.length / x.length
    return Array.from({ length: out }, (_, j) => x.reduce((sum, value, i) => sum + value * m[i * out + j]!, 0))
  }
  const standard = (x: Vector, eps: number): number[] => {
    const mean = x.reduce((a, b) => a + b, 0) / x.length
    const variance = x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length
    return x.map((value) => (value - mean) / Math.sqrt(variance + eps))
  }
  const layerNorm = (x: Vector, name: string): number[] => {
    const weight = flat(`${name}.weight`)
    const bias = flat(`${name}.bias`)
    return standard(x, 1e-5).map((value, i) => value * weight[i]! + bias[i]!)
  }

  const state = Array.from({ length: layers }, () => ({
    p: new Array<number>(C).fill(0),
    q: new Array<number>(C).fill(0),
    S: Array.from({ length: H }, () => Array.from({ length: N }, () => new Array<number>(N).fill(0))),
  }))

  /** Feeds a token; returns the logits that follow it. */
  const feed = (token: number): number[] => {
    let x: number[] = layerNorm(flat('emb.weight').slice(token * C, token * C + C), 'blocks.0.ln0')
    let first: number[] = []
    for (let l = 0; l < layers; l++) {
      const at = `blocks.${l}`
      const own = state[l]!
      const u = layerNorm(x, `${at}.ln1`)
      const before = own.p
      own.p = u
      const shifted = (c: string): number[] => {
        const mix = flat(`${at}.att.x_${c}`)
        return u.map((value, i) => value + (before[i]! - value) * mix[i]!)
      }
      const r = dot(`${at}.att.receptance.weight`, shifted('r'))
      const k0 = dot(`${at}.att.key.weight`, shifted('k'))
      let v = dot(`${at}.att.value.weight`, shifted('v'))
      const w0 = flat(`${at}.att.w0`)
      const w = right(right(shifted('w'), `${at}.att.w1`).map(Math.tanh), `${at}.att.w2`).map((z, i) =>
        Math.exp(-Math.exp(-0.5) * sigmoid(w0[i]! + z)),
      )
      if (l === 0) first = v
      else {
        const v0 = flat(`${at}.att.v0`)
        const share = right(right(shifted('v'), `${at}.att.v1`), `${at}.att.v2`).map((z, i) => sigmoid(v0[i]! + z))
        v = v.map((value, i) => value + (first[i]! - value) * share[i]!)
      }
      const a0 = flat(`${at}.att.a0`)
      const a = right(right(shifted('a'), `${at}.att.a1`), `${at}.att.a2`).map((z, i) => sigmoid(a0[i]! + z))
      const gate = right(right(shifted('g'), `${at}.att.g1`).map(sigmoid), `${at}.att.g2`)
      const kk0 = flat(`${at}.att.k_k`).map((scale, i) => scale * k0[i]!)
      const kA = flat(`${at}.att.k_a`)
      const k = k0.map((value, i) => value * (1 + (a[i]! - 1) * kA[i]!))
      const rK = flat(`${at}.att.r_k`)
      const normed: number[] = []
      const bonus: number[] = []
      for (let h = 0; h < H; h++) {
        const of = (y: Vector): Vector => y.slice(h * N, h * N + N)
        const length = Math.max(Math.hypot(...of(kk0)), 1e-12)
        const kk = of(kk0).map((value) => value / length)
        const [rh, wh, kh, vh, ah] = [of(r), of(w), of(k), of(v), of(a)]
        const read = own.S[h]!.map((row, i) => {
          const removed = row.reduce((sum, value, m) => sum + value * kk[m]!, 0)
          for (let j = 0; j < N; j++) row[j] = row[j]! * wh[j]! - removed * kk[j]! * ah[j]! + vh[i]! * kh[j]!
          return row.reduce((sum, value, j) => sum + value * rh[j]!, 0)
        })
        normed.push(...standard(read, 64e-5))
        const score = rh.reduce((sum, value, j) => sum + value * kh[j]! * rK[h * N + j]!, 0)
        bonus.push(...vh.map((value) => score * value))
      }
      const scale = flat(`${at}.att.ln_x.weight`)
      const bias = flat(`${at}.att.ln_x.bias`)
      const y = normed.map((value, i) => (value * scale[i]! + bias[i]! + bonus[i]!) * gate[i]!)
      x = dot(`${at}.att.output.weight`, y).map((value, i) => x[i]! + value)

      const u2 = layerNorm(x, `${at}.ln2`)
      const mixK = flat(`${at}.ffn.x_k`)
      const m = u2.map((value, i) => value + (own.q[i]! - value) * mixK[i]!)
      own.q = u2
      const e = dot(`${at}.ffn.key.weight`, m).map((value) => Math.max(value, 0) ** 2)
      x = dot(`${at}.ffn.value.weight`, e).map((value, i) => x[i]! + value)
    }
    return dot('head.weight', layerNorm(x, 'ln_out'))
  }
  return { feed, vocabulary }
}

/** −ln softmax(logits)[token]. */
export const surprisalOf = (logits: Vector, token: number): number => {
  const max = Math.max(...logits)
  return max - logits[token]! + Math.log(logits.reduce((sum, value) => sum + Math.exp(value - max), 0))
}
