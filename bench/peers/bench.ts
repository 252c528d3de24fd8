/**
 * Continuo's engine beside llama.cpp, both in this process: checks that they compute the same model, then measures
 * their speed.
 *
 *   node make-models.ts && node bench.ts [--threads 2] [--rounds 9] [--sessions 16] [--only rwkv7-f16,gpt2-q8] [--tries 4] [--default-pool]
 *
 * Each side runs at its best: libuv's pool has one thread (pool.ts), so that llama.cpp's threads have the CPUs to
 * themselves. `--default-pool` leaves the pool as a Node program finds it.
 *
 * Every round runs every measure on both sides, one after the other, with another side first in the next round, and
 * probes the speed of the machine. Figures are medians with the least and the greatest round; a ratio is the median of
 * the rounds' ratios.
 */
import { existsSync } from 'node:fs'
import { cpus } from 'node:os'
import { kernelFeatures } from '../../src/engine/inspect.ts'
import { ContinuoError, messageOf } from '../../src/errors.ts'
import { parseArgs } from '../options.ts'
import { CALM, type CalmCount, calmly, TRIES } from './calm.ts'
import { compare, idsOf } from './check.ts'
import { type LlamaSide, openLlama } from './llama.ts'
import { type Llama, loadLlama } from './llama-binding.ts'
import { type BenchModel, benchModels } from './models.ts'
import { openContinuo } from './ours.ts'
import { hasOneThread, runWithOneThread } from './pool.ts'
import { buildProbe, type Machine, probe } from './probe.ts'
import { printMachine, printRow, type Round } from './report.ts'
import type { Side } from './side.ts'
import { matrixTraffic } from './write.ts'

interface Settings {
  readonly threads: number
  readonly rounds: number
  readonly sessions: number
  /** The most tries of a run that other processes disturb. */
  readonly tries: number
  readonly models: readonly BenchModel[]
  readonly defaultPool: boolean
}

/** The command line; ends the process with a sentence where it asks for what there is not. */
const settings = (): Settings => {
  try {
    const { values } = parseArgs({
      options: {
        threads: { type: 'string', default: '2' },
        rounds: { type: 'string', default: '9' },
        sessions: { type: 'string', default: '16' },
        tries: { type: 'string', default: String(TRIES) },
        only: { type: 'string', default: benchModels.map(({ name }) => name).join() },
        'default-pool': { type: 'boolean', default: false },
      },
    })
    const whole = (name: 'threads' | 'rounds' | 'sessions' | 'tries'): number => {
      const value = Number(values[name])
      if (Number.isInteger(value) && value >= 1 && value <= 256) return value
      throw new Error(`--${name} is ${values[name]}, expected a whole number from 1 to 256.`)
    }
    const models = values.only.split(',').map((wanted) => {
      const model = benchModels.find(({ name }) => name === wanted)
      if (model) return model
      throw new Error(`--only names ${wanted}, expected some of ${benchModels.map(({ name }) => name).join()}.`)
    })
    const numbers = {
      threads: whole('threads'),
      rounds: whole('rounds'),
      sessions: whole('sessions'),
      tries: whole('tries'),
    }
    return { ...numbers, models, defaultPool: values['default-pool'] }
  } catch (error) {
    console.error(messageOf(error))
    process.exit(2)
  }
}
const { threads, rounds, sessions, tries, models, defaultPool } = settings()
if (!defaultPool && !hasOneThread()) process.exit(runWithOneThread())

const PREFILL = 512
const DECODE = 48
const DECODE_MANY = 16

interface Pair {
  readonly model: BenchModel
  /** null: only llama.cpp's half is timed. */
  readonly ours: Side | null
  readonly theirs: LlamaSide
}

interface Measure {
  readonly pair: Pair
  readonly name: string
  readonly tokens: number
  readonly run: (side: Side) => Promise<number>
  /** The rate at which memory bandwidth or arithmetic alone would limit the measure; null where neither does. */
  readonly bound: ((machine: Machine) => { readonly of: string; readonly tokensPerSecond: number }) | null
  readonly rounds: Round[]
}

const newTally = (): CalmCount => ({ runs: 0, repeated: 0, disturbed: 0 })

/** llama.cpp with flash attention or without, whichever reads and decodes faster on this machine. */
const openFaster = async (llama: Llama, model: BenchModel): Promise<LlamaSide> => {
  const open = (flashAttention: boolean): Promise<LlamaSide> =>
    openLlama(llama, model.files.gguf, { threads, sessions, flashAttention })
  if (model.family === 'rwkv7') return open(false)
  const candidates = [await open(false), await open(true)] as const
  const best = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]
  const ids = idsOf(model.vocabulary, PREFILL)
  for (let round = 0; round < 3; round += 1) {
    for (const [i, side] of candidates.entries()) {
      const both = async (): Promise<number> => (await side.prefill(ids)) + (await side.decode(ids, DECODE))
      const seconds = await (round === 0 ? both() : calmly(both, newTally(), tries))
      if (round > 0) best[i] = Math.min(best[i]!, seconds)
    }
  }
  const flash = best[1]! < best[0]!
  await candidates[flash ? 0 : 1].close()
  console.log(`${model.title}: llama.cpp ${flash ? 'with' : 'without'} flash attention, the faster of the two here.`)
  return candidates[flash ? 1 : 0]
}

/** Continuo's side; null, with a sentence, where the engine refuses this q8 package. */
const openOurs = async ({ format, title, files, config }: BenchModel): Promise<Side | null> => {
  if (format !== 'q8' || config === null) return openContinuo(files.dir, threads, sessions)
  try {
    return await openContinuo(files.dir, threads, sessions)
  } catch (error) {
    if (!(error instanceof ContinuoError) || error.code !== 'INVALID') throw error
    console.log(`${title}: only llama.cpp is timed, since the engine does not open the package: ${error.message}`)
    return null
  }
}

const measuresOf = (pair: Pair): readonly Measure[] => {
  const { specs, format, vocabulary } = pair.model
  const { bytes, weights, headWeights } = matrixTraffic(specs, format)
  const ids = idsOf(vocabulary, PREFILL)
  const prompts = Array.from({ length: sessions }, (_, session) => idsOf(vocabulary, 4, session))
  // The head is needed for the last token only.
  const operations = 2 * (weights - headWeights + headWeights / PREFILL)
  const measure = (
    name: string,
    tokens: number,
    run: (side: Side) => Promise<number>,
    bound: Measure['bound'],
  ): Measure => ({ pair, name, tokens, run, bound, rounds: [] })
  return [
    measure(
      'decode, 1 session',
      DECODE,
      (side) => side.decode(ids.subarray(0, 16), DECODE),
      ({ read }) => ({ of: 'the read bandwidth', tokensPerSecond: read / bytes }),
    ),
    measure(
      `decode, ${sessions} sessions`,
      sessions * DECODE_MANY,
      (side) => side.decodeMany(prompts, DECODE_MANY),
      null,
    ),
    measure(
      `prefill of ${PREFILL}`,
      PREFILL,
      (side) => side.prefill(ids),
      ({ fma, int8 }) =>
        (format === 'q8' || format === 'q4' || format === 'q4k') && int8 !== null
          ? { of: 'the int8 peak', tokensPerSecond: int8 / operations }
          : { of: 'the f32 FMA peak', tokensPerSecond: fma / operations },
    ),
  ]
}

const runRound = async (measures: readonly Measure[], round: number, tally: CalmCount): Promise<void> => {
  let machine: Machine | undefined
  let asked: Pair | undefined
  for (const { pair, run, tokens, bound, rounds: results } of measures) {
    if (!machine || pair !== asked) machine = probe(threads)
    asked = pair
    const speed = async (side: Side): Promise<number> => tokens / (await calmly(() => run(side), tally, tries))
    const oursFirst = round % 2 === 0
    const early = pair.ours && oursFirst ? await speed(pair.ours) : null
    const theirs = await speed(pair.theirs)
    const ours = pair.ours && !oursFirst ? await speed(pair.ours) : early
    results.push({ ours, theirs, machine, bound: bound ? bound(machine) : null })
  }
}

const main = async (pairs: Pair[]): Promise<boolean> => {
  const missing = models.find(({ files }) => !existsSync(files.gguf))
  if (missing) throw new Error(`${missing.files.gguf} is missing. Run \`node make-models.ts\` in bench/peers first.`)
  buildProbe()
  const llama = await loadLlama()
  console.log(`${cpus()[0]?.model.trim()}, ${cpus().length} CPUs, Node ${process.versions.node}, ${threads} threads.`)
  console.log(`Continuo: kernels ${kernelFeatures()}.`)
  console.log(`llama.cpp ${llama.release} (${llama.packageVersion}), CPU backend ${llama.variant}: ${llama.features}`)
  console.log(`libuv's pool: ${hasOneThread() ? 'one thread' : 'as a Node program finds it'}.`)

  let allSame = true
  for (const model of models) {
    const theirs = await openFaster(llama, model)
    const ours = await openOurs(model)
    pairs.push({ model, ours, theirs })
    if (!ours) continue
    const { same, sentence } = await compare(ours, theirs, model.vocabulary, model.format, sessions, model.layers)
    console.log(`${model.title}: ${sentence}`)
    allSame &&= same
  }
  if (!allSame) {
    console.error('Nothing is timed: speeds of different models say nothing about each other.')
    return false
  }
  const overhead = (await pairs[0]!.theirs.emptyCall()) * 1e6
  console.log(
    `An empty call into llama.cpp's binding and back takes ${overhead.toFixed(0)} µs; a step of it is one call.`,
  )

  const measures = pairs.flatMap(measuresOf)
  for (const { pair, run } of measures) {
    if (pair.ours) await run(pair.ours)
    await run(pair.theirs)
  }
  const tally = newTally()
  for (let round = 0; round < rounds; round += 1) {
    const started = performance.now()
    await runRound(measures, round, tally)
    console.log(`Round ${round + 1} of ${rounds}: ${((performance.now() - started) / 1000).toFixed(0)} s.`)
  }
  console.log(
    `\n${tally.runs} runs; ${tally.repeated} repetitions, because other processes took more than ${100 * CALM} % of the CPUs' time; ` +
      `${tally.disturbed} runs stayed disturbed${tally.disturbed > 0 ? ', which slows llama.cpp more than Continuo' : ''}.`,
  )
  printMachine(measures.flatMap(({ rounds: results }) => results.map(({ machine }) => machine)))
  for (const { pair, name, rounds: results } of measures) printRow(`${pair.model.title}, ${name}`, results)
  return true
}

const pairs: Pair[] = []
try {
  if (!(await main(pairs))) process.exitCode = 1
} catch (error) {
  console.error(messageOf(error))
  process.exitCode = 1
} finally {
  for (const { ours, theirs } of pairs) {
    await ours?.close()
    await theirs.close()
  }
}
