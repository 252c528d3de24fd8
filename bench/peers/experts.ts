/**
 * A mixture of experts that does not fit into memory: Continuo's store beside llama.cpp's mapped file, of the same
 * weights in the same bytes (mixture.ts), each in processes whose memory is bounded.
 *
 *   node bench/peers/experts.ts [--dir DIR] [--rounds 5] [--tokens 128] [--threads 2] [--group DIR]
 *
 * First both sides compute the same model, or nothing is measured: two layers in f32, in which nothing is rounded that
 * would exchange two experts, then all eight in q8 (check.ts). Then in turns, --rounds times, the medians. Every run is
 * a process of its own in a group with a bound on its memory, pages of files included (memory-group.ts), from an empty
 * page cache:
 *
 *   Continuo, store      at most this share of the experts in memory, read past the page cache
 *   Continuo, mapping    the same, but every record is copied out of a mapping of the store, whose pages are given up at once
 *   llama.cpp, mmap      the GGUF mapped, as llama.cpp does by itself; what the bound has room for stays in memory
 *
 * A bound is what a side has in memory that is no file's (measured in its first run, without a bound), for llama.cpp
 * the weights that every token needs, the share of all experts, and SLACK. llama.cpp so has room for as many experts as
 * Continuo has; it decides on nothing, the kernel does, by pages. `all` has no bound.
 *
 * A page fault of a mapping reads ahead as much as the system is set to for the disk (read_ahead_kb, printed below);
 * where that is more than an expert it reads others, which are dropped again. Linux's own setting is 128.
 *
 *   decode, prefill   tokens a second: single given tokens with logits after each, --tokens of them or as many as 10 seconds allow; 512
 *                     tokens in one call
 *   read, GB/s        bytes that the disk was read for a token (/proc/self/io: calls and page faults), and that times tokens a second
 *   hits, waited      of decoding in Continuo's store: experts in memory when wanted; share of the time that computing waited for one
 *   open              seconds from an empty page cache until the model is open
 *   others            share of the CPUs' time that other processes took while decoding. Threads of llama.cpp wait by spinning, so it is slowed
 *                     much more than Continuo where this is not near 0; with --threads 1 neither waits for another thread
 *   most              memory of the group at its highest
 */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { bytes, say, table } from '../../src/cli/output.ts'
import type { ExpertOptions } from '../../src/engine/options.ts'
import { messageOf } from '../../src/errors.ts'
import { dropPages, measureReads } from '../../src/experts/native.ts'
import { packExperts } from '../../src/experts/pack.ts'
import { findExperts } from '../../src/models/files/experts-source.ts'
import { parseArgs } from '../options.ts'
import { compare } from './check.ts'
import type { Measured, Request } from './experts-side.ts'
import type { Format } from './formats.ts'
import { openLlama } from './llama.ts'
import { type Llama, loadLlama } from './llama-binding.ts'
import { ownGroup, runInGroup } from './memory-group.ts'
import { expertBytes, type Mixture, mixtureOf } from './mixture.ts'
import { openContinuo } from './ours.ts'
import { hasOneThread, runWithOneThread } from './pool.ts'
import { median } from './report.ts'
import { type ModelFiles, writeModel } from './write.ts'

const { values } = parseArgs({
  options: {
    dir: { type: 'string', default: tmpdir() },
    rounds: { type: 'string', default: '5' },
    tokens: { type: 'string', default: '128' },
    threads: { type: 'string', default: '2' },
    group: { type: 'string' },
  },
})
if (!hasOneThread()) process.exit(runWithOneThread())

const rounds = Number(values.rounds)
const tokens = Number(values.tokens)
const threads = Number(values.threads)
const LAYERS = 8
const CHECKED_LAYERS = 2
const PREFILL = 512
const DEPTH = 16
/** Beyond what a side was seen to need: JavaScript's heap is not equally large in every run. */
const SLACK = 8 << 20
const PARTS = [1, 2, 4, 8] as const
const side = join(import.meta.dirname, 'experts-side.ts')

interface Run {
  readonly name: string
  /** The share of experts in memory is 1 / part. */
  readonly part: number
  readonly request: Pick<Request, 'llama' | 'continuo' | 'experts'>
}

/** What a page fault reads ahead on the disk of a file, kB; null: the system does not say. */
const readAheadOf = (path: string): number | null => {
  const { dev } = statSync(path)
  const device = `/sys/dev/block/${(dev >> 8) & 0xfff}:${(dev & 0xff) | ((dev >> 12) & 0xfff00)}`
  const setting = ['queue', '../queue'].map((at) => join(device, at, 'read_ahead_kb')).find((each) => existsSync(each))
  return setting === undefined ? null : Number(readFileSync(setting, 'utf8'))
}

const write = async (mixture: Mixture, format: Format, folder: string): Promise<ModelFiles> => {
  mkdirSync(folder)
  const files = { gguf: join(folder, 'mixture.gguf'), dir: join(folder, 'mixture') }
  writeModel(mixture.specs, format, mixture.metadata, mixture.config, files)
  await packExperts({ source: await findExperts(files.dir) })
  return files
}

const isSame = async (llama: Llama, mixture: Mixture, format: Format, files: ModelFiles): Promise<boolean> => {
  const theirs = await openLlama(llama, files.gguf, { threads, sessions: 2, flashAttention: false })
  try {
    const ours = await openContinuo(files.dir, threads, 2, { frequencies: false })
    try {
      const { same, sentence } = await compare(ours, theirs, mixture.vocabulary, format, 2)
      console.log(`${mixture.layers} layers in ${format}: ${sentence}`)
      return same
    } finally {
      await ours.close()
    }
  } finally {
    await theirs.close()
  }
}

const runsOf = ({ gguf, dir }: ModelFiles): readonly Run[] => {
  const all = expertBytes(LAYERS)
  const ours = (name: string, part: number, options: ExpertOptions = {}): Run => ({
    name,
    part,
    request: {
      llama: null,
      continuo: dir,
      experts: { bytes: Math.ceil(all / part), depth: DEPTH, frequencies: false, ...options },
    },
  })
  return PARTS.flatMap((part) => [
    ours('Continuo, store', part),
    ...(part === 1 ? [] : [ours('Continuo, mapping', part, { io: 'buffered', backend: 'mapped', lookAhead: false })]),
    { name: 'llama.cpp, mmap', part, request: { llama: gguf, continuo: null } },
  ])
}

const main = async (folder: string): Promise<boolean> => {
  const parent = values.group ?? ownGroup()
  if (parent === null) {
    console.error(
      'This process is in no group of memory below which it could make others (cgroups, version 1). Give the folder of one: --group DIR.',
    )
    return false
  }
  const llama = await loadLlama()
  console.log(`llama.cpp ${llama.release} (${llama.packageVersion}), CPU backend ${llama.variant}.`)
  const small = mixtureOf(CHECKED_LAYERS)
  const smallFiles = await write(small, 'f32', join(folder, 'f32'))
  const smallSame = await isSame(llama, small, 'f32', smallFiles)
  rmSync(join(folder, 'f32'), { recursive: true })
  const mixture = mixtureOf(LAYERS)
  const files = await write(mixture, 'q8', join(folder, 'q8'))
  if (!(await isSame(llama, mixture, 'q8', files)) || !smallSame) {
    console.error('Nothing is timed: speeds of different models say nothing about each other.')
    return false
  }

  const store = join(files.dir, 'experts')
  const stored = readdirSync(store).filter((name) => name.endsWith('.experts'))
  const all = expertBytes(LAYERS)
  const shared = statSync(files.gguf).size - all
  const dropAll = (): void => {
    for (const path of [files.gguf, join(files.dir, 'model.safetensors'), ...stored.map((name) => join(store, name))])
      dropPages(path)
  }
  const runs = runsOf(files)
  const measure = async ({ part, request }: Run, anonymous: number): Promise<Measured & { readonly most: number }> => {
    dropAll()
    // Of what Continuo holds without a file, the share of the experts that it may not have is taken off.
    const room = request.llama === null ? anonymous - all * (1 - 1 / part) : anonymous + shared + all / part
    const whole: Request = { ...request, threads, vocabulary: mixture.vocabulary, tokens, prefill: PREFILL }
    const { output, most } = await runInGroup(parent, part === 1 ? null : room + SLACK, [side, JSON.stringify(whole)])
    return { ...(JSON.parse(output) as Measured), most }
  }
  const disk: number[] = []
  const found = new Map<Run, (Measured & { readonly most: number })[]>()
  const anonymous = { ours: 0, theirs: 0 }
  for (let round = 0; round < rounds; round += 1) {
    dropAll()
    const reads = await measureReads(join(store, stored[0]!), 512, DEPTH, true)
    if (!reads.direct) console.log('The file system has no O_DIRECT: reads go through the page cache.')
    disk.push(reads.bytes / reads.seconds)
    // In the first round the runs without a bound come first, since they say what a bound has to hold.
    const order = round % 2 === 0 ? runs : [...runs].reverse()
    for (const run of order) {
      const whose = run.request.llama === null ? 'ours' : 'theirs'
      const measured = await measure(run, anonymous[whose])
      if (run.part === 1) anonymous[whose] = Math.max(anonymous[whose], measured.anonymous)
      say(`${run.name}, 1/${run.part}: ${measured.decode.toFixed(1)} and ${measured.prefill.toFixed(0)} tokens/s.`)
      found.set(run, [...(found.get(run) ?? []), measured])
    }
    console.log(`Round ${round + 1} of ${rounds}.`)
  }
  const rate = (value: number): string => (value / 1e9).toFixed(2)
  console.log(
    `\n${LAYERS} layers of 64 experts, ${bytes(all)} of experts, ${bytes(shared)} for every token beside them. Without a file Continuo holds ` +
      `${bytes(anonymous.ours - all)} beside its experts, llama.cpp ${bytes(anonymous.theirs)}. ` +
      `The disk by itself: ${rate(median(disk))} GB/s, records of ${bytes(all / LAYERS / 64)} one after the other; a page fault reads ahead ${readAheadOf(files.gguf) ?? 'unknown'} kB.\n`,
  )
  const rows = runs.map((run) => {
    const of = (name: keyof Measured | 'most'): number =>
      median(found.get(run)!.map((each) => each[name] ?? Number.NaN))
    const percent = (share: number): string => (Number.isNaN(share) ? '' : `${(100 * share).toFixed(0)} %`)
    return [
      ...[run.part === 1 ? 'all' : `1/${run.part}`, run.name],
      ...[of('decode').toFixed(1), bytes(of('decodeRead')), rate(of('decode') * of('decodeRead'))],
      ...[percent(of('hits')), percent(of('waited'))],
      ...[of('prefill').toFixed(0), bytes(of('prefillRead')), rate(of('prefill') * of('prefillRead'))],
      ...[of('open').toFixed(2), percent(of('others')), bytes(of('most'))],
    ]
  })
  const header = [
    'in memory',
    'side',
    'decode',
    'read',
    'GB/s',
    'hits',
    'waited',
    'prefill',
    'read',
    'GB/s',
    'open',
    'others',
    'most',
  ]
  console.log(table(header, rows))
  return true
}

const folder = mkdtempSync(join(values.dir, 'continuo-mixture-'))
try {
  if (!(await main(folder))) process.exitCode = 1
} catch (error) {
  console.error(messageOf(error))
  process.exitCode = 1
} finally {
  rmSync(folder, { recursive: true, force: true })
}
