/**
 * A million tokens through each composition of Titans, at a small shape. Does a token at the end cost as much as one at
 * the start? Does the state keep its size? Do the norms of the memories stay within the bounds of their retention
 * (docs/performance.md)?
 *
 *   npx node bench/titans-long.ts [--tokens N] [--threads N]
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { measureLong } from '../src/cli/bench/long.ts'
import type { Model } from '../src/engine/types.ts'
import { openModel } from '../src/models/open.ts'
import { parseArgs } from './options.ts'
import { documentOf } from './support.ts'
import { type TitansShape, writeTitans } from './titans-package.ts'

const { values } = parseArgs({
  options: { tokens: { type: 'string', default: '1000000' }, threads: { type: 'string', default: '2' } },
})
const tokens = Number(values.tokens)
const threads = Number(values.threads)
const signal = new AbortController().signal
const HEAD_DIM = 32
const shape = {
  levels: [1, 8, 64, 512],
  hidden: 64,
  layers: 2,
  heads: 2,
  keyHeads: 1,
  headDim: HEAD_DIM,
  intermediate: 160,
  window: 64,
  segment: 64,
} as const

const CAP = 2 * Math.sqrt(HEAD_DIM)
/** The rule that bounds ‖M‖ (docs/titans.md), and the bound. */
const kept: readonly { readonly name: string; readonly form: Partial<TitansShape>; readonly bound: number }[] = [
  { name: 'l2, titans, norm_max', form: { rule: 'titans', retention: 'l2', normMax: CAP }, bound: CAP },
  { name: 'elastic, titans, norm_max', form: { rule: 'titans', retention: 'elastic', normMax: CAP }, bound: CAP },
  { name: 'none, hebbian, norm_max', form: { rule: 'hebbian', retention: 'none', normMax: CAP }, bound: CAP },
  { name: 'sphere, titans', form: { rule: 'titans', retention: 'sphere' }, bound: Math.sqrt(HEAD_DIM) },
  { name: 'kl, titans', form: { rule: 'titans', retention: 'kl' }, bound: Math.sqrt(HEAD_DIM) },
]
const compositions = ['mac', 'mag', 'mal'] as const

/** The largest norm √(Σ M²) of a head's matrix in one level. */
const largestNorm = (model: Model, state: Uint8Array): number => {
  const entry = model.layout.tensors(state).find(({ name }) => name === 'memory.M')!
  const numbers = new Float32Array(state.slice(entry.offset, entry.offset + entry.bytes).buffer)
  let most = 0
  for (let at = 0; at < numbers.length; at += HEAD_DIM ** 2) {
    most = Math.max(most, Math.hypot(...numbers.subarray(at, at + HEAD_DIM ** 2)))
  }
  return most
}

const text = new TextEncoder().encode(documentOf(1 << 20))
const PIECE = 8192

/** Reads `count` tokens of text in pieces. Returns the largest norm after any piece. */
const readOn = async (model: Model, count: number): Promise<{ most: number; bytes: readonly number[] }> => {
  const context = model.createContext()
  let most = 0
  const bytes = new Set<number>()
  for (let at = 0; at < count; at += PIECE) {
    const piece = Int32Array.from({ length: Math.min(PIECE, count - at) }, (_, i) => text[(at + i) % text.length]!)
    await model.process([{ context, tokens: piece, nats: false }])
    const state = context.serialize()
    bytes.add(state.length)
    most = Math.max(most, largestNorm(model, state))
  }
  context.close()
  return { most, bytes: [...bytes] }
}

const dir = mkdtempSync(join(tmpdir(), 'continuo-titans-'))
let failed = false
try {
  process.stdout.write(
    `${tokens} tokens, D 64, 2 layers, 2 memory heads of ${HEAD_DIM}, levels 1 8 64 512, ${threads} threads\n\n`,
  )
  process.stdout.write('composition  tokens/s at the start, at the end, ratio of neighbours at the end   state\n')
  for (const composition of compositions) {
    const folder = join(dir, composition)
    await writeTitans(folder, { ...shape, composition })
    const model = await openModel(folder, { threads, device: 'cpu', keepPacked: false })
    const { begin, end } = await measureLong({ model, tokens, signal })
    const rate = (value: number): string => Math.round(value).toLocaleString('en-US')
    const { median, min, max } = end!.ratio
    process.stdout.write(
      `${composition.padEnd(13)}${rate(begin!.tokensPerSecond.median)}, ${rate(end!.tokensPerSecond.median)}, ${median.toFixed(3)} (${min.toFixed(3)} to ${max.toFixed(3)})   ${begin!.contextBytes} B, ${end!.contextBytes} B\n`,
    )
    model.close()
  }
  process.stdout.write('\nretention, rule             composition  largest ‖M‖  promised at most\n')
  for (const { name, form, bound } of kept) {
    for (const composition of compositions) {
      const folder = join(dir, `${composition}-${name.replaceAll(/[^a-z0-9]+/g, '-')}`)
      await writeTitans(folder, { ...shape, ...form, composition })
      const model = await openModel(folder, { threads, device: 'cpu', keepPacked: false })
      const { most, bytes } = await readOn(model, tokens)
      model.close()
      const kept = most <= bound * (1 + 1e-4) && bytes.length === 1
      failed ||= !kept
      process.stdout.write(
        `${name.padEnd(28)}${composition.padEnd(13)}${most.toFixed(3).padStart(11)}  ${bound.toFixed(3).padStart(16)}${kept ? '' : '  BROKEN'}\n`,
      )
    }
  }
} finally {
  rmSync(dir, { recursive: true, force: true })
}
if (failed) process.exitCode = 1
