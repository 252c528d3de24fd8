/**
 * Experts from disk: what a mixture costs whose experts do not fit into the memory that it is given (docs/experts.md).
 *
 *   node bench/experts.ts [--dir DIR] [--rounds 3] [--tokens 64] [--threads 2] [--model DIR]
 *
 * The model is random: 8 layers of 1,024 channels, 64 ternary experts of 1,024 inner channels in each, 3.1M weights a
 * token and layer. Its routes have no locality, so of a cache that holds a share of the experts that share is the hit
 * rate. --model takes a model of your own in its place. In turns, --rounds times, the medians:
 *
 *   all, 1/2, 1/4, 1/8   the share of all experts that may be in memory; read past the page cache
 *   decode, prefill      tokens a second of one session, after 64 tokens; and of 512 tokens read in one call
 *   read, GB/s           bytes read for a token that was generated, and that times tokens a second
 *   hits                 experts that were in memory when a row was routed to them
 *   overlap              1 − time waiting for experts / time
 *   of the disk          bytes a second while at least one read is on its way in decoding, as a share of what the disk gives by itself for
 *                        records of this size, one after the other: where a token must have an expert before the next one is known
 *
 * Beside them the same engine over a mapping of the same files, which gives up the pages that it has copied. What the
 * kernel reads around them stays, so this row has more memory than it is given; bench/peers/experts.ts has one whose
 * memory is bounded. Then each policy of eviction; look-ahead; Belady's optimum for the same routes; 16 sessions that
 * generate together; and the same model with dense parts of the same size, in memory. Every run prints its chain: they
 * are all equal, but for the dense model's.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { bytes, count } from '../src/cli/output.ts'
import type { ExpertOptions } from '../src/engine/options.ts'
import type { ExpertStatistics, Model } from '../src/engine/types.ts'
import { dropPages, measureReads } from '../src/experts/native.ts'
import { packExperts } from '../src/experts/pack.ts'
import { findExperts } from '../src/models/files/experts-source.ts'
import { openModel } from '../src/models/open.ts'
import { writeExpertPackage } from './expert-package.ts'
import { parseArgs } from './options.ts'
import { median } from './support.ts'

const { values } = parseArgs({
  options: {
    dir: { type: 'string', default: tmpdir() },
    rounds: { type: 'string', default: '3' },
    tokens: { type: 'string', default: '64' },
    threads: { type: 'string', default: '2' },
    model: { type: 'string' },
  },
})
const rounds = Number(values.rounds)
const tokens = Number(values.tokens)
const threads = Number(values.threads)
const SIZES = { layers: 8, channels: 1024, inner: 1024, torus: [8, 8] } as const
const WARM = 64
const PREFILL = 512
const SESSIONS = 16
/** Tokens of the trace that policies of eviction are compared on. */
const TRACE = 512
/** Pieces that the store reads at once. */
const DEPTH = 16

const text = (n: number): Int32Array => Int32Array.from({ length: n }, (_, i) => (i * 7919 + ((i * i) >> 3)) % 256)
const sampled = (n: number) => ({ count: n, temperature: 1, topK: 0, topP: 1, seed: 3n })

interface Figures {
  readonly decode: number
  readonly prefill: number
  readonly read: number
  readonly hits: number
  readonly overlap: number
  /** Bytes a second while reading. */
  readonly rate: number
  readonly right: number
  readonly chain: string
}

const readOf = (seen: ExpertStatistics): number => seen.demandBytes + seen.aheadBytes + seen.warmBytes + seen.deltaBytes

const measure = async (model: Model): Promise<Figures> => {
  const context = model.createContext()
  const seen = (): ExpertStatistics | null => model.experts?.statistics ?? null
  const timed = async (work: () => Promise<unknown>) => {
    const [before, began] = [seen(), performance.now()]
    await work()
    const [after, seconds] = [seen(), (performance.now() - began) / 1000]
    return { before, after, seconds }
  }
  await model.process([{ context, tokens: text(WARM), nats: false }])
  const decoded = await timed(() =>
    model.process([{ context, tokens: new Int32Array(0), nats: false, generate: sampled(tokens) }]),
  )
  const chain = context.chain
  const prefilled = await timed(() => model.process([{ context, tokens: text(PREFILL), nats: false }]))
  context.close()
  const { before, after, seconds } = decoded
  const all = { decode: tokens / seconds, prefill: PREFILL / prefilled.seconds, chain: `${chain} ` }
  if (before === null || after === null) return { ...all, read: 0, hits: 1, overlap: 1, rate: 0, right: 0 }
  const [uses, reading] = [after.uses - before.uses, after.readSeconds - before.readSeconds]
  const ahead = after.ahead[0]!
  return {
    ...all,
    read: (readOf(after) - readOf(before)) / tokens,
    hits: (after.hits - before.hits) / uses,
    overlap: 1 - (after.waitSeconds - before.waitSeconds) / seconds,
    rate: reading > 0 ? (readOf(after) - readOf(before)) / reading : 0,
    right: ahead.predictions === 0 ? 0 : ahead.right / ahead.predictions,
  }
}

const middle = (of: readonly Figures[]): Figures => {
  const by = (name: Exclude<keyof Figures, 'chain'>): number => median(of.map((each) => each[name]))
  const chains = new Set(of.map(({ chain }) => chain))
  return {
    ...{ decode: by('decode'), prefill: by('prefill'), read: by('read'), hits: by('hits'), overlap: by('overlap') },
    ...{ rate: by('rate'), right: by('right'), chain: chains.size === 1 ? of[0]!.chain : 'THEY DIFFER' },
  }
}

const quiet = { threads, keepPacked: false, warn: () => {} }

/** Routes of generated tokens, in the order in which they are asked for: (layer, expert) as one number. */
const routesOf = async (dir: string): Promise<{ readonly trace: readonly number[]; readonly perToken: number }> => {
  const model = await openModel(dir, { ...quiet, experts: { frequencies: false } })
  const context = model.createContext()
  await model.process([{ context, tokens: text(1), nats: false }])
  const item = { context, tokens: new Int32Array(0), nats: false, perspectives: true, generate: sampled(TRACE) }
  const [result] = await model.process([item])
  model.close()
  const experts = result!.experts!
  const perToken = experts.length / TRACE
  return { trace: Array.from(experts, (expert, i) => (i % perToken) * 65_536 + expert), perToken }
}

/** The share of hits of the same tokens, from a cache that nothing was asked of before. */
const hitsOf = async (dir: string, options: ExpertOptions): Promise<number> => {
  const model = await openModel(dir, { ...quiet, experts: { frequencies: false, ...options } })
  model.experts!.forget()
  const context = model.createContext()
  const before = model.experts!.statistics
  await model.process([{ context, tokens: text(1), nats: false, generate: sampled(TRACE) }])
  const after = model.experts!.statistics
  model.close()
  return (after.hits - before.hits) / (after.uses - before.uses)
}

/** Hits of Belady's optimum (1966) for the trace and a cache of so many entries, empty at first. */
const belady = (trace: readonly number[], capacity: number): number => {
  const next = new Array<number>(trace.length).fill(Number.POSITIVE_INFINITY)
  const seen = new Map<number, number>()
  for (let at = trace.length - 1; at >= 0; at -= 1) {
    next[at] = seen.get(trace[at]!) ?? Number.POSITIVE_INFINITY
    seen.set(trace[at]!, at)
  }
  const held = new Map<number, number>()
  let hits = 0
  for (const [at, key] of trace.entries()) {
    if (held.has(key)) hits += 1
    else if (held.size >= capacity) {
      const last = [...held].reduce((a, b) => (b[1] > a[1] ? b : a))
      held.delete(last[0])
    }
    held.set(key, next[at]!)
  }
  return hits / trace.length
}

const folder = mkdtempSync(join(values.dir, 'continuo-experts-'))
try {
  const dir = values.model ?? join(folder, 'mixture')
  const dense = join(folder, 'dense')
  if (values.model === undefined) {
    for (const path of [dir, dense]) mkdirSync(path)
    writeExpertPackage(dir, SIZES)
    writeExpertPackage(dense, { ...SIZES, dense: true })
    for (const path of [dir, dense]) await packExperts({ source: await findExperts(path) })
  }
  const store = join(dir, 'experts')
  const files = readdirSync(store).filter((name) => name.endsWith('.experts'))
  const probe = await openModel(dir, { ...quiet, experts: { frequencies: false } })
  const context = probe.createContext()
  await probe.process([{ context, tokens: text(8), nats: false }])
  const { residentBytes, resident } = probe.experts!.statistics
  const perExpert = residentBytes / resident
  const { parameters } = probe
  probe.close()
  const source = await findExperts(dir)
  const all = source.layers.length * source.sizes.experts * perExpert
  console.log(
    `${source.layers.length} layers of ${source.sizes.experts} experts, ${count(parameters)} weights; an expert takes ${bytes(perExpert)} in memory, all of them ${bytes(all)}.`,
  )

  const runs: readonly (readonly [name: string, options: ExpertOptions])[] = [
    ['all', { bytes: Math.ceil(all) }],
    ['1/2', { bytes: Math.ceil(all / 2) }],
    ['1/4', { bytes: Math.ceil(all / 4) }],
    ['1/8', { bytes: Math.ceil(all / 8) }],
    ['1/4, no look-ahead', { bytes: Math.ceil(all / 4), lookAhead: false }],
    ['1/4, lfu', { bytes: Math.ceil(all / 4), policy: 'lfu' }],
    ['1/4, lru', { bytes: Math.ceil(all / 4), policy: 'lru' }],
    ['1/4, no deltas', { bytes: Math.ceil(all / 4), deltas: false }],
    ['1/4, threads', { bytes: Math.ceil(all / 4), backend: 'threads' }],
    ['1/8, mapped', { bytes: Math.ceil(all / 8), io: 'buffered', backend: 'mapped', lookAhead: false }],
  ]
  const found = new Map<string, Figures[]>()
  const disk: number[] = []
  const single: number[] = []
  const dropAll = (): void => {
    for (const file of files) dropPages(join(store, file))
  }
  for (let round = 0; round < rounds; round += 1) {
    dropAll()
    const many = await measureReads(join(store, files[0]!), 512, DEPTH, false)
    const one = await measureReads(join(store, files[0]!), 512, DEPTH, true)
    const { direct } = many
    disk.push(many.bytes / many.seconds)
    single.push(one.bytes / one.seconds)
    if (round === 0 && !direct) console.log('The file system has no O_DIRECT: reads go through the page cache.')
    for (const [name, options] of runs) {
      dropAll()
      const model = await openModel(dir, { ...quiet, experts: { depth: DEPTH, frequencies: false, ...options } })
      if (name === 'all') {
        // Everything that is wanted comes into memory once before it is measured.
        await measure(model)
        await measure(model)
      }
      found.set(name, [...(found.get(name) ?? []), await measure(model)])
      model.close()
    }
    if (values.model === undefined) {
      const model = await openModel(dense, { ...quiet, experts: { frequencies: false } })
      await measure(model)
      found.set('dense', [...(found.get('dense') ?? []), await measure(model)])
      model.close()
    }
  }
  const alone = median(disk)
  const serial = median(single)
  const rateText = (rate: number): string => `${(rate / 1e9).toFixed(2)} GB/s`
  console.log(
    `The disk by itself: ${rateText(alone)}, ${DEPTH} pieces at once; ${rateText(serial)}, one record after the other.\n`,
  )
  console.log('in memory              decode  prefill  read       GB/s   hits   overlap  of the disk  k=1 right  chain')
  for (const [name, each] of found) {
    const { decode, prefill, read, hits, overlap, rate, right, chain } = middle(each)
    const percent = (share: number): string => `${(100 * share).toFixed(0)} %`
    const cells = [
      ...[name.padEnd(22), decode.toFixed(1).padStart(6), prefill.toFixed(0).padStart(8)],
      ...[
        bytes(read).padStart(9),
        ((decode * read) / 1e9).toFixed(2).padStart(6),
        percent(hits).padStart(6),
        percent(overlap).padStart(8),
      ],
      ...[(rate > 0 ? (rate / serial).toFixed(2) : '').padStart(12), percent(right).padStart(10), chain.slice(0, 8)],
    ]
    console.log(cells.join(' '))
  }

  const { trace, perToken } = await routesOf(dir)
  console.log(`\nHits of ${TRACE} tokens, ${perToken} experts a token, from an empty cache, without look-ahead:`)
  console.log('in memory   score     lfu     lru  Belady')
  const total = source.layers.length * source.sizes.experts
  for (const part of [2, 4, 8]) {
    const bound = { bytes: Math.ceil(all / part), lookAhead: false }
    const shares = [
      await hitsOf(dir, bound),
      await hitsOf(dir, { ...bound, policy: 'lfu' }),
      await hitsOf(dir, { ...bound, policy: 'lru' }),
      belady(trace, Math.floor(total / part)),
    ]
    console.log([`1/${part}`.padEnd(9), ...shares.map((each) => `${(100 * each).toFixed(1)} %`.padStart(8))].join(''))
  }

  console.log('\nsessions  decode    read a token   (1/4 in memory)')
  for (const sessions of [1, 4, SESSIONS]) {
    dropAll()
    const options = { bytes: Math.ceil(all / 4), depth: DEPTH, frequencies: false }
    const model = await openModel(dir, { ...quiet, experts: options })
    const contexts = Array.from({ length: sessions }, () => model.createContext())
    await model.process(contexts.map((each, i) => ({ context: each, tokens: text(WARM + i), nats: false })))
    const [before, began] = [readOf(model.experts!.statistics), performance.now()]
    await model.process(
      contexts.map((each, i) => ({
        ...{ context: each, tokens: new Int32Array(0), nats: false },
        generate: { ...sampled(tokens), seed: BigInt(i) },
      })),
    )
    const seconds = (performance.now() - began) / 1000
    const read = (readOf(model.experts!.statistics) - before) / (tokens * sessions)
    console.log(
      `${String(sessions).padStart(8)}  ${((tokens * sessions) / seconds).toFixed(1).padStart(6)}  ${bytes(read).padStart(14)}`,
    )
    model.close()
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}
