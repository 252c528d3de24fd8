/**
 * A decoder with an external memory in double precision (docs/infinite-context.md), written from its formulas, one
 * token after the other. It keeps every token for ever and lays the whole list anew for each; it shares nothing with
 * the engine.
 */
import type { Tensors } from '../../engine/safetensors.ts'
import {
  type Attention,
  type DecoderConfig,
  decoderReference,
  headWidth,
  keyHeads,
  layerOf,
  turnedHead,
} from '../decoders.ts'
import { dot, plus, type Vector } from '../float64.ts'
import { type ModuleSizes, mean, modulesReference, unit } from './outer-memory-modules.ts'
import { gardenReference, type Topics } from './outer-memory-topics.ts'

/** memory.json with every member there, layers as numbers and tokens as ids. */
export interface Memory extends Omit<ModuleSizes, 'graph'> {
  readonly window: number
  readonly sinks: number
  readonly kv_dtype: 'f32' | 'f16' | 'bf16'
  readonly cold_dtype: 'f8' | 'f16' | 'f32'
  readonly anchors: { readonly tokens: number; readonly entries: number; readonly policy: 'segment' | 'trimmer' }
  readonly segmentation: {
    readonly gamma: number
    readonly rate: number
    readonly warmup: number
    readonly min_blocks: number
  }
  readonly tombstones: {
    readonly count: number
    readonly threshold: number | null
    readonly rate: number
    readonly cooldown: number
    readonly layers: readonly number[]
  }
  readonly retrieval: {
    readonly every: number
    readonly blocks: number
    readonly policy: 'recent' | 'similar' | 'graph'
    readonly similarity: 'dot' | 'cosine'
    readonly layers: readonly number[]
    readonly rate: number
    readonly inject_after: 0 | 1
  }
  readonly summarize_keep: number
  readonly tokens: { readonly summarize: number | null; readonly retrieve: number | null }
  readonly graph: Topics | null
}

export type Happening = Readonly<Record<string, unknown>> & { readonly type: string; readonly pulse: number }

/** Keys and values of a token in all layers, [L][G][d], before they turn. */
interface Pair {
  readonly k: readonly (readonly Vector[])[]
  readonly v: readonly (readonly Vector[])[]
}
interface Tombstone extends Pair {
  readonly span: readonly [number, number]
  e: number
}

/** The nearest number with so many bits behind the point, the even one of two; 2^least is the smallest normal one. */
export const nearest = (x: number, bits: number, least: number): number => {
  if (x === 0) return x
  const a = Math.abs(x)
  const step = 2 ** (Math.max(least, Math.floor(Math.log2(a))) - bits)
  const [below, rest] = [Math.floor(a / step), a / step - Math.floor(a / step)]
  const up = rest > 0.5 || (rest === 0.5 && below % 2 !== 0)
  // A zero keeps its sign.
  return (x < 0 ? -1 : 1) * (below + (up ? 1 : 0)) * step
}
const CASTS = {
  f32: Math.fround,
  f16: (x: number) => nearest(x, 10, -14),
  bf16: (x: number) => nearest(x, 7, -126),
}
export const f8 = (x: number): number => nearest(x, 3, -6)
/** The smallest whole number e with most ≤ 448 · 2^e, −120 … 120; 0 for 0. */
export const exponentOf = (most: number): number => {
  if (most === 0) return 0
  let e = -120
  while (e < 120 && most > 448 * 2 ** e) e += 1
  return e
}

export interface MemoryReference {
  /** Feeds a token; returns the logits that follow it. */
  readonly feed: (token: number) => number[]
  readonly archive: () => void
  readonly retrieve: (blocks?: readonly number[]) => void
  readonly events: readonly Happening[]
  /**
   * How near a decision came to another one, at its nearest. Of the numbers that are compared; a tie of a code is far
   * smaller.
   */
  readonly closest: () => number
}

export const memoryReference = (
  config: DecoderConfig,
  tensors: Tensors,
  memory: Memory,
  modules: Tensors,
): MemoryReference => {
  const { block_size: B, window: M, sinks: S, anchors, tombstones, retrieval, segmentation, qformer } = memory
  const [L, H, G, d] = [config.num_hidden_layers, config.num_attention_heads, keyHeads(config), headWidth(config)]
  const learned = modulesReference(modules, memory as unknown as ModuleSizes)
  const turn = layerOf(config, 0).turn!
  const kept = CASTS[memory.kv_dtype]
  const events: Happening[] = []
  let closest = Number.POSITIVE_INFINITY
  const compared = (a: number, b: number): void => {
    if (a !== b) closest = Math.min(closest, Math.abs(a - b))
  }

  const all: Pair[] = []
  const cold: Pair[] = []
  const rows: Vector[][] = []
  const entries: { block: number; offsets: readonly number[] }[] = []
  const tombs: Tombstone[] = []
  let archived = 0
  let injected: readonly number[] = []
  let pending: readonly number[] | null = null
  let last = 0
  let query: Vector[] = []
  let [sum, middle, blocks, seen, mu, variance] = [[] as Vector, [] as Vector, 0, 0, 0, 0]
  let hidden: Vector[] = []
  let scores: number[] = []

  const note = (event: { type: string; [more: string]: unknown }): void => {
    events.push({ pulse: all.length - 1, ...event })
  }

  interface Slot {
    readonly k: readonly (readonly Vector[])[]
    readonly v: readonly (readonly Vector[])[]
    readonly tomb?: Tombstone
  }
  const slotOf = (pair: Pair, at: number, tomb?: Tombstone): Slot => ({
    k: pair.k.map((heads) => heads.map((head) => turnedHead(head, turn, at))),
    v: pair.v,
    ...(tomb && { tomb }),
  })
  const shown = (): Tombstone[] =>
    tombs.filter(({ span: [from, to] }) => injected.filter((b) => b >= from && b < to).length < to - from)
  let list: Slot[] = []
  const lay = (): void => {
    const out: (readonly [Pair, Tombstone?])[] = []
    if (archived > 0) for (let p = 0; p < S; p += 1) out.push([all[p]!])
    for (const { block, offsets } of entries)
      if (block < archived && !injected.includes(block))
        for (const offset of offsets) out.push([all[block * B + offset]!])
    for (const tomb of shown()) out.push([tomb, tomb])
    for (const block of injected) for (let p = block * B; p < (block + 1) * B; p += 1) if (p >= S) out.push([cold[p]!])
    for (let p = archived * B; p < all.length; p += 1) out.push([all[p]!])
    list = out.map(([pair, tomb], at) => slotOf(pair, at, tomb))
  }

  // Of the token that is being read.
  const current = { k: [] as Vector[][], v: [] as Vector[][], asked: [] as Vector[][], shares: [] as number[][][] }
  const attention: Attention = (layer, q, k, v) => {
    const cast = (heads: readonly Vector[]): Vector[] => heads.map((head) => head.map(kept))
    current.k[layer] = cast(k)
    current.v[layer] = cast(v)
    current.asked[layer] = [...q]
    const position = list.length
    const own = current.k[layer]!.map((head) => turnedHead(head, turn, position))
    current.shares[layer] = []
    return q.map((head, h) => {
      const g = Math.floor(h / (H / G))
      const keys = [...list.map((slot) => slot.k[layer]![g]!), own[g]!]
      const values = [...list.map((slot) => slot.v[layer]![g]!), current.v[layer]![g]!]
      const turned = turnedHead(head, turn, position)
      const found = keys.map((key) => dot(turned, key) / Math.sqrt(d))
      const most = Math.max(...found)
      const raised = found.map((each) => Math.exp(each - most))
      const total = raised.reduce((a, b) => a + b, 0)
      const weights = raised.map((each) => each / total)
      current.shares[layer]![h] = weights
      return head.map((_, i) => values.reduce((acc, value, p) => acc + weights[p]! * value[i]!, 0))
    })
  }
  const decoder = decoderReference(config, tensors, attention)

  const flat = (vectors: readonly Vector[]): Vector => vectors.flat()
  const node = (vectors: readonly Vector[]): Vector =>
    qformer === null ? flat(vectors.map(unit)).map((x) => x / Math.sqrt(vectors.length)) : unit(mean(vectors))
  const asks = (): Vector => (qformer === null ? node(query) : learned.question(decoder.hidden()))
  const garden =
    memory.graph === null ? null : gardenReference(memory.graph, (block) => node(rows[block]!), note, compared)

  const take = (): void => {
    const asked = retrieval.layers.flatMap((l) =>
      Array.from({ length: G }, (_, g) => mean(current.asked[l]!.slice((g * H) / G, ((g + 1) * H) / G))),
    )
    query =
      all.length === 1 ? asked : query.map((old, i) => old.map((x, c) => x + retrieval.rate * (asked[i]![c]! - x)))
    const length = list.length + 1
    if (tombstones.threshold !== null)
      for (const [at, { tomb }] of list.entries()) {
        if (tomb === undefined) continue
        const share = mean(tombstones.layers.map((l) => [mean(current.shares[l]!.map((of) => [of[at]!]))[0]!]))[0]!
        tomb.e += tombstones.rate * (length * share - tomb.e)
      }
    sum = sum.length === 0 ? decoder.hidden() : plus(sum, decoder.hidden())
    hidden.push(decoder.hidden())
    if (memory.trimmer !== null) scores.push(learned.trimScore(decoder.hidden()))
  }

  const topic = (block: number): boolean => {
    const own = sum.map((x) => x / B)
    sum = []
    if (block === 0) {
      middle = own
      blocks = 1
      return false
    }
    const distance = 1 - dot(unit(own), unit(middle))
    const threshold = mu + segmentation.gamma * Math.sqrt(variance)
    const may = seen >= segmentation.warmup && blocks >= segmentation.min_blocks
    if (may) compared(distance, threshold)
    const fresh = may && distance > threshold
    if (seen === 0) {
      mu = distance
      variance = 0
    } else {
      const delta = distance - mu
      mu += segmentation.rate * delta
      variance = (1 - segmentation.rate) * (variance + segmentation.rate * delta ** 2)
    }
    seen += 1
    if (fresh) note({ type: 'segment', block, distance })
    middle = fresh ? own : middle.map((x, i) => x + (own[i]! - x) / (blocks + 1))
    blocks = fresh ? 1 : blocks + 1
    return fresh
  }

  const close = (block: number): void => {
    const tokens = Array.from({ length: B }, (_, p) => all[block * B + p]!)
    rows[block] =
      qformer === null
        ? retrieval.layers.flatMap((l) => Array.from({ length: G }, (_, g) => mean(tokens.map(({ k }) => k[l]![g]!))))
        : learned.sumUp(hidden)
    const fresh = topic(block)
    const K = anchors.tokens
    const trims = anchors.policy === 'trimmer'
    if (K * anchors.entries > 0 && (trims || fresh)) {
      const allowed = Array.from({ length: B }, (_, p) => p).filter((p) => block * B + p >= S || !trims)
      const best = trims ? allowed.toSorted((a, b) => scores[b]! - scores[a]! || a - b) : allowed
      if (trims && K < best.length) compared(scores[best[K - 1]!]!, scores[best[K]!]!)
      if (entries.length === anchors.entries) note({ type: 'release', block: entries.shift()!.block })
      entries.push({ block, offsets: best.slice(0, K).toSorted((a, b) => a - b) })
    }
    hidden = []
    scores = []
  }

  /** The block's tokens as its payload reads back, and the norms of that. */
  const encode = (block: number): void => {
    const norms = { k: 0, v: 0 }
    const tokens = all.slice(block * B, (block + 1) * B)
    const decoded = { k: [] as Vector[][][], v: [] as Vector[][][] }
    for (const which of ['k', 'v'] as const)
      for (let l = 0; l < L; l += 1)
        for (let g = 0; g < G; g += 1) {
          const most = Math.max(...tokens.flatMap((token) => token[which][l]![g]!.map(Math.abs)))
          const scale = 2 ** exponentOf(most)
          const cast = (x: number): number =>
            memory.cold_dtype === 'f8' ? f8(x / scale) * scale : CASTS[memory.cold_dtype](x)
          for (const [p, token] of tokens.entries()) {
            const row = token[which][l]![g]!.map(cast)
            norms[which] += dot(row, row)
            decoded[which][p] ??= []
            decoded[which][p]![l] ??= []
            decoded[which][p]![l]![g] = row
          }
        }
    for (let p = 0; p < B; p += 1) cold[block * B + p] = { k: decoded.k[p]!, v: decoded.v[p]! }
    note({ type: 'archive', block, k_norm: Math.sqrt(norms.k), v_norm: Math.sqrt(norms.v) })
  }

  const entomb = (block: number): void => {
    const tokens = all.slice(block * B, (block + 1) * B)
    const averaged = (which: 'k' | 'v'): Vector[][] => {
      const more = qformer === null ? null : learned.tombstone(which, rows[block]!)
      return Array.from({ length: L }, (_, l) =>
        Array.from({ length: G }, (_, g) => {
          const plain = mean(tokens.map((token) => token[which][l]![g]!))
          return more === null ? plain : plus(plain, more[l]!.slice(g * d, (g + 1) * d))
        }),
      )
    }
    tombs.push({ span: [block, block + 1], e: 0, k: averaged('k'), v: averaged('v') })
    if (tombs.length <= tombstones.count) return
    const sizes = tombs.slice(1).map(({ span }, i) => span[1] - tombs[i]!.span[0])
    const pair = sizes.indexOf(Math.min(...sizes))
    const [a, b] = [tombs[pair]!, tombs[pair + 1]!]
    const [n, m] = [a.span[1] - a.span[0], b.span[1] - b.span[0]]
    const mixed = (which: 'k' | 'v'): Vector[][] =>
      a[which].map((heads, l) =>
        heads.map((head, g) => head.map((x, i) => (n * x + m * b[which][l]![g]![i]!) / (n + m))),
      )
    tombs.splice(pair, 2, { span: [a.span[0], b.span[1]], e: Math.max(a.e, b.e), k: mixed('k'), v: mixed('v') })
    note({ type: 'tombstone', spans: tombs.map(({ span }) => span) })
  }

  const archiveNext = (reason: string): void => {
    const block = archived
    encode(block)
    events[events.length - 1] = { ...events.at(-1)!, reason }
    if (tombstones.count > 0) entomb(block)
    archived += 1
    garden?.insert(block)
  }
  const summarize = (): void => {
    while (Math.floor(all.length / B) - archived > memory.summarize_keep) archiveNext('summarize')
  }
  const inject = (chosen: readonly number[]): void => {
    injected = chosen
    lay()
    note({ type: 'inject', blocks: [...chosen], slots: list.length })
  }

  const scored = (): number[] => {
    const e = retrieval.policy === 'similar' && qformer === null ? [] : asks()
    return Array.from({ length: archived }, (_, block) => {
      const row = rows[block]!
      if (retrieval.policy === 'recent') return block
      if (retrieval.policy === 'graph') return dot(e, node(row))
      if (qformer !== null) return Math.max(...row.map((each) => dot(e, each)))
      if (retrieval.similarity === 'dot') return dot(flat(query), flat(row)) / (row.length * Math.sqrt(d))
      return row.reduce((acc, each, i) => acc + dot(unit(query[i]!), unit(each)), 0) / row.length
    })
  }
  const best = (among: readonly number[], n: number): readonly number[] => {
    const score = scored()
    const order = among.toSorted((a, b) => score[b]! - score[a]! || b - a)
    if (n > 0 && n < order.length) compared(score[order[n - 1]!]!, score[order[n]!]!)
    return order.slice(0, n)
  }
  const retrieveFor = (reason: string, tomb: Tombstone | null, given?: readonly number[]): void => {
    if (archived === 0) return
    const blocksOf = Array.from({ length: archived }, (_, b) => b)
    const n = retrieval.blocks
    let chosen: readonly number[]
    if (given !== undefined) chosen = given
    else if (tomb !== null) {
      const inside = (b: number): boolean => b >= tomb.span[0] && b < tomb.span[1]
      const first = best(blocksOf.filter(inside), n)
      chosen = [
        ...first,
        ...best(
          blocksOf.filter((b) => !inside(b)),
          n - first.length,
        ),
      ]
    } else if (retrieval.policy === 'graph') chosen = garden!.walk(asks(), archived, n, learned.walkScore)
    else chosen = best(blocksOf, n)
    chosen = chosen.toSorted((a, b) => a - b)
    note({ type: 'retrieve', reason, blocks: [...chosen], ...(tomb && { span: tomb.span }) })
    last = all.length
    for (const each of tombs) each.e = 0
    pending = null
    if (retrieval.inject_after === 1 && reason !== 'event') pending = chosen
    else inject(chosen)
  }
  const triggering = (): Tombstone | null => {
    if (tombstones.threshold === null || tombs.length === 0 || all.length - last < tombstones.cooldown) return null
    const most = tombs.reduce((a, b) => (b.e > a.e ? b : a))
    compared(most.e, tombstones.threshold)
    return most.e > tombstones.threshold ? most : null
  }

  return {
    events,
    closest: () => closest,
    feed: (token) => {
      const logits = decoder.feed(token)
      all.push({ k: [...current.k], v: [...current.v] })
      take()
      const count = all.length
      const beat = count % B === 0
      if (beat) {
        close(count / B - 1)
        while (count - archived * B + B > M) archiveNext('window')
      }
      if (token === memory.tokens.summarize) {
        note({ type: 'summarize' })
        summarize()
      }
      if (beat && pending !== null) {
        const coming = pending
        pending = null
        inject(coming)
      }
      const tomb = beat ? triggering() : null
      if (token === memory.tokens.retrieve) retrieveFor('token', null)
      else if (tomb !== null) retrieveFor('tombstone', tomb)
      else if (beat && retrieval.every > 0 && count % retrieval.every === 0) retrieveFor('period', null)
      lay()
      return logits
    },
    archive: () => {
      summarize()
      lay()
    },
    retrieve: (given) => {
      retrieveFor('event', null, given)
      lay()
    },
  }
}
