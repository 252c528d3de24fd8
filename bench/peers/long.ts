/**
 * Long prompts: Continuo's engine beside llama.cpp, both in this process, from the same GGUF files, keys and values in
 * f16.
 *
 *   node make-models.ts long && node long.ts [--only llama-0.1b-long-f16,…] [--depths 0,8192,32768] [--rounds 3]
 *     [--read 512] [--steps 32] [--threads 2] [--batch 512] [--flash on,off] [--tries 4] [--states DIR] [--clock cpu]
 *
 * At each depth a session stands behind so many tokens; it reads --read tokens more (prefill) and generates --steps
 * (decode). Reading all of a long prompt in every round would take hours, so the depths are read once, and every run
 * starts from there: Continuo from a fork, llama.cpp from a file of its own (in DIR, to be used again, or in a folder
 * that goes away). Rounds are interleaved as in bench.ts. On a machine with other work take `--threads 1 --clock cpu`:
 * speeds by the processor time of this process, which waits for nothing then; nothing is put against the probe, which
 * goes by the clock. llama.cpp counts with flash attention or without, whichever has the better median of a measure;
 * both are printed.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { count } from '../../src/cli/output.ts'
import type { EngineContext } from '../../src/engine/context.ts'
import { kernelFeatures } from '../../src/engine/inspect.ts'
import type { Model } from '../../src/engine/types.ts'
import { messageOf } from '../../src/errors.ts'
import { openModel } from '../../src/models/open.ts'
import { parseArgs } from '../options.ts'
import { CALM, type CalmCount, calmly, TRIES } from './calm.ts'
import { distance, idsOf, toleranceOf } from './check.ts'
import { openLlama } from './llama.ts'
import { type Llama, loadLlama } from './llama-binding.ts'
import { LONG_POSITIONS, type LongModel, longModels } from './models.ts'
import { greedy, none } from './ours.ts'
import { hasOneThread, runWithOneThread } from './pool.ts'
import { buildProbe, type Machine, probe } from './probe.ts'
import { median, printMachine, shownRatio, spread, whole } from './report.ts'
import { matrixTraffic } from './write.ts'

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: longModels.map(({ name }) => name).join() },
    depths: { type: 'string', default: '0,8192,32768' },
    rounds: { type: 'string', default: '3' },
    read: { type: 'string', default: '512' },
    steps: { type: 'string', default: '32' },
    threads: { type: 'string', default: '2' },
    batch: { type: 'string', default: '512' },
    flash: { type: 'string', default: 'on,off' },
    tries: { type: 'string', default: String(TRIES) },
    states: { type: 'string' },
    clock: { type: 'string', default: 'wall' },
  },
})
const number = (name: string, value: string, least: number, most: number): number => {
  const parsed = Number(value)
  if (Number.isInteger(parsed) && parsed >= least && parsed <= most) return parsed
  throw new Error(`--${name} is ${value}, expected a whole number from ${least} to ${most}.`)
}

interface Settings {
  readonly byProcessor: boolean
  readonly models: readonly LongModel[]
  readonly depths: readonly number[]
  readonly flash: readonly boolean[]
  readonly rounds: number
  readonly read: number
  readonly steps: number
  readonly threads: number
  readonly batch: number
  readonly tries: number
}
const settings = (): Settings => {
  try {
    const [read, steps] = [number('read', values.read, 1, 2048), number('steps', values.steps, 1, 1024)]
    const most = LONG_POSITIONS - Math.max(read, steps + 1)
    const byProcessor = values.clock === 'cpu'
    if (!byProcessor && values.clock !== 'wall') throw new Error(`--clock is ${values.clock}, expected cpu or wall.`)
    const count = number('threads', values.threads, 1, 256)
    if (byProcessor && count > 1)
      throw new Error(
        '--clock cpu wants --threads 1: threads of llama.cpp that wait for each other take processor time.',
      )
    return {
      byProcessor,
      models: values.only.split(',').map((wanted) => {
        const model = longModels.find(({ name }) => name === wanted)
        if (model) return model
        throw new Error(`--only names ${wanted}, expected some of ${longModels.map(({ name }) => name).join()}.`)
      }),
      depths: values.depths
        .split(',')
        .map((depth) => number('depths', depth, 0, most))
        .sort((a, b) => a - b),
      flash: values.flash.split(',').map((word) => {
        if (word === 'on' || word === 'off') return word === 'on'
        throw new Error(`--flash is ${values.flash}, expected on, off, or both with a comma.`)
      }),
      rounds: number('rounds', values.rounds, 1, 256),
      read,
      steps,
      threads: count,
      batch: number('batch', values.batch, 1, 4096),
      tries: number('tries', values.tries, 1, 256),
    }
  } catch (error) {
    console.error(messageOf(error))
    process.exit(2)
  }
}
const { byProcessor, models, depths, flash, rounds, read, steps, threads, batch, tries } = settings()
if (!hasOneThread()) process.exit(runWithOneThread())

/** What the bench asks of an engine. The ids at the positions of a session are those of idsOf. */
interface LongSide {
  readonly name: string
  readonly flash: boolean
  /** Behind so many tokens; what it takes to come there is not timed. Depths come in ascending order at first. */
  at(depth: number): Promise<void>
  /** Seconds to the logits behind the last of `ids`. */
  read(ids: Int32Array): Promise<number>
  /** Seconds of so many single tokens, logits after each. */
  generate(count: number): Promise<number>
  logits(id: number): Promise<Float32Array>
  close(): Promise<void>
}

/** Seconds, on the clock or of all processors together. */
const timed = async (run: () => Promise<unknown>): Promise<number> => {
  const [started, used] = [performance.now(), process.cpuUsage()]
  await run()
  const { user, system } = process.cpuUsage(used)
  return byProcessor ? (user + system) / 1e6 : (performance.now() - started) / 1000
}

const openOurs = async ({ files, vocabulary }: LongModel): Promise<LongSide> => {
  const model: Model = await openModel(files.dir, { threads, device: 'cpu', cacheDtype: 'f16' })
  const stand = new Map<number, EngineContext>()
  let deepest = { depth: 0, context: model.createContext() }
  stand.set(0, deepest.context)
  let one: EngineContext | null = null
  const item = (context: EngineContext, tokens: Int32Array) => ({ context, tokens, nats: false })
  const now = (): EngineContext => {
    if (one === null) throw new Error('at() comes first.')
    return one
  }
  return {
    name: 'Continuo',
    flash: false,
    async at(depth) {
      one?.close()
      one = null
      const there = stand.get(depth)
      if (there === undefined) {
        const context = model.forkContext(deepest.context)
        await model.submit(item(context, idsOf(vocabulary, depth).subarray(deepest.depth)))
        deepest = { depth, context }
        stand.set(depth, context)
      }
      one = model.forkContext(stand.get(depth)!)
    },
    read: (ids) =>
      timed(async () => {
        await model.submit(item(now(), ids))
        await model.logits(now())
      }),
    async generate(tokens) {
      return timed(() => model.submit({ ...item(now(), none), generate: { ...greedy, count: tokens } }))
    },
    async logits(id) {
      await model.submit(item(now(), Int32Array.of(id)))
      return model.logits(now())
    },
    async close() {
      one?.close()
      for (const context of stand.values()) context.close()
      model.close()
    },
  }
}

const openTheirs = async (
  llama: Llama,
  { files, name, vocabulary }: LongModel,
  flashAttention: boolean,
  states: string,
): Promise<LongSide> => {
  const options = { threads, sessions: 1, flashAttention, positions: LONG_POSITIONS, batch }
  const side = await openLlama(llama, files.gguf, options)
  let ids = new Uint32Array(0)
  let deepest = 0
  const fileOf = (depth: number): string => join(states, `${name}-${depth}-${flashAttention ? 'flash' : 'plain'}.state`)
  return {
    name: `llama.cpp ${flashAttention ? 'flash' : 'plain'}`,
    flash: flashAttention,
    async at(depth) {
      if (depth === 0) return side.fresh()
      if (!existsSync(fileOf(depth))) {
        await (deepest === 0 ? side.fresh() : side.load(fileOf(deepest)))
        await side.append(Uint32Array.from(idsOf(vocabulary, depth).subarray(deepest)))
        await side.save(fileOf(depth))
      }
      deepest = Math.max(deepest, depth)
      return side.load(fileOf(depth))
    },
    read: (tokens) => {
      ids = Uint32Array.from(tokens)
      return timed(() => side.append(ids))
    },
    generate: (tokens) => timed(() => side.step(Uint32Array.from(idsOf(vocabulary, tokens)))),
    logits: (id) => side.feed(Int32Array.of(id)),
    close: () => side.close(),
  }
}

interface Measure {
  readonly name: 'prefill' | 'decode'
  readonly depth: number
  readonly tokens: number
  readonly run: (side: LongSide) => Promise<number>
  /** Of each side, tokens a second in each round. */
  readonly speeds: Map<LongSide, number[]>
  readonly machines: Machine[]
}

const measuresOf = ({ vocabulary }: LongModel): readonly Measure[] =>
  depths.flatMap((depth): readonly Measure[] => {
    const ids = idsOf(vocabulary, depth + read).subarray(depth)
    const measure = (name: Measure['name'], tokens: number, run: Measure['run']): Measure => ({
      ...{ name, depth, tokens, run },
      speeds: new Map(),
      machines: [],
    })
    return [
      measure('prefill', read, async (side) => {
        await side.at(depth)
        return side.read(ids)
      }),
      // What generates has read something.
      measure('decode', steps, async (side) => {
        await side.at(depth)
        await side.read(ids.subarray(0, 1))
        return side.generate(steps)
      }),
    ]
  })

/**
 * llama.cpp's flash attention of one query sums values in f16: over thousands of positions they differ by several
 * percent where its other way does not.
 */
const FLASH = 10

/**
 * Whether the logits behind each depth are the same but for roundings. Every depth is come to here for the first time.
 */
const sameModel = async (model: LongModel, sides: readonly LongSide[]): Promise<boolean> => {
  let same = true
  for (const depth of depths) {
    const logits: Float32Array[] = []
    for (const side of sides) {
      const seconds = await timed(() => side.at(depth))
      console.log(`${model.title}: ${side.name} stands behind ${count(depth)} tokens after ${seconds.toFixed(1)} s.`)
      logits.push(await side.logits(1))
    }
    for (const [i, side] of sides.entries()) {
      if (i === 0) continue
      const apart = distance(logits[0]!, logits[i]!)
      const tolerance = toleranceOf('f16', model.layers) * (side.flash ? FLASH : 1)
      const right = apart <= tolerance
      same &&= right
      console.log(
        `  the logits of ${side.name} differ by ${(100 * apart).toPrecision(2)} % of their deviation (tolerance ${(100 * tolerance).toPrecision(2)} %)` +
          (right ? '.' : ': the sides DO NOT compute the same model.'),
      )
    }
  }
  return same
}

const runRound = async (
  measures: readonly Measure[],
  sides: readonly LongSide[],
  round: number,
  tally: CalmCount,
): Promise<void> => {
  for (const { run, tokens, speeds, machines } of measures) {
    machines.push(probe(threads))
    for (let i = 0; i < sides.length; i += 1) {
      const side = sides[(i + round) % sides.length]!
      const speed = tokens / (await calmly(() => run(side), tally, tries))
      const all = speeds.get(side) ?? []
      all.push(speed)
      speeds.set(side, all)
    }
  }
}

/**
 * Each side's speed, the ratio to the better llama.cpp, and for decoding the bytes read over what memory gave in the
 * same round.
 */
const printMeasure = (
  model: LongModel,
  sides: readonly LongSide[],
  measures: readonly Measure[],
  of: Measure,
): void => {
  const { name, depth, tokens, speeds, machines } = of
  const [ours, ...others] = sides
  const mine = speeds.get(ours!)!
  console.log(`${model.title}, ${name} of ${tokens} behind ${count(depth)}`)
  for (const side of sides) console.log(`  ${side.name.padEnd(16)} ${spread(speeds.get(side)!, whole)} tokens/s`)
  const best = others.map((side) => speeds.get(side)!).reduce((a, b) => (median(b) > median(a) ? b : a))
  console.log(
    `  ratio            ${spread(
      mine.map((speed, i) => speed / best[i]!),
      shownRatio,
    )}`,
  )
  // The probe goes by the clock.
  if (name !== 'decode' || byProcessor) return
  const weights = matrixTraffic(model.specs, 'f16').bytes
  const cache = 2 * model.cached * (depth + 1 + steps / 2)
  const part = (i: number): number => ((weights + cache) * mine[i]!) / machines[i]!.read
  console.log(
    `  read a token     ${count(weights / 1e6)} MB of weights, ${count(cache / 1e6)} MB of cache: ${spread(
      mine.map((_, i) => part(i)),
      shownRatio,
    )} of the read bandwidth`,
  )
  const near = measures.find((each) => each.name === 'decode' && each.depth === depths[0])!
  if (near === of) return
  const first = near.speeds.get(ours!)!
  const more = 2 * model.cached * (depth - depths[0]!)
  const alone = (i: number): number => more / (1 / mine[i]! - 1 / first[i]!) / machines[i]!.read
  console.log(
    `  of the cache     ${spread(
      mine.map((_, i) => alone(i)),
      shownRatio,
    )} of the read bandwidth, in the time that a token takes longer than behind ${count(depths[0]!)}`,
  )
}

const bench = async (llama: Llama, model: LongModel, states: string, tally: CalmCount): Promise<readonly Machine[]> => {
  const sides: LongSide[] = []
  try {
    sides.push(await openOurs(model))
    for (const on of flash) sides.push(await openTheirs(llama, model, on, states))
    if (!(await sameModel(model, sides))) throw new Error('Nothing is timed: the sides do not compute the same model.')
    const measures = measuresOf(model)
    for (const { run } of measures) for (const side of sides) await run(side)
    for (let round = 0; round < rounds; round += 1) await runRound(measures, sides, round, tally)
    for (const measure of measures) printMeasure(model, sides, measures, measure)
    return measures.flatMap(({ machines }) => machines)
  } finally {
    for (const side of sides) await side.close()
  }
}

const kept = values.states
const states = kept ?? mkdtempSync(join(tmpdir(), 'continuo-long-'))
try {
  const missing = models.find(({ files }) => !existsSync(files.gguf))
  if (missing)
    throw new Error(`${missing.files.gguf} is missing. Run \`node make-models.ts long\` in bench/peers first.`)
  buildProbe()
  const llama = await loadLlama()
  console.log(
    `${cpus()[0]?.model.trim()}, ${cpus().length} CPUs, Node ${process.versions.node}, ${threads} threads, ${byProcessor ? 'by processor time' : 'on the clock'}.`,
  )
  console.log(`Continuo: kernels ${kernelFeatures()}.`)
  console.log(
    `llama.cpp ${llama.release} (${llama.packageVersion}), CPU backend ${llama.variant}, batches of ${batch}.`,
  )
  const tally: CalmCount = { runs: 0, repeated: 0, disturbed: 0 }
  const machines: Machine[] = []
  for (const model of models) machines.push(...(await bench(llama, model, states, tally)))
  console.log(
    `\n${tally.runs} runs; ${tally.repeated} repetitions, because other processes took more than ${100 * CALM} % of the CPUs' time; ` +
      `${tally.disturbed} runs stayed disturbed${tally.disturbed > 0 ? ', which slows llama.cpp more than Continuo' : ''}.`,
  )
  if (!byProcessor) printMachine(machines)
} catch (error) {
  console.error(messageOf(error))
  process.exitCode = 1
} finally {
  if (kept === undefined) rmSync(states, { recursive: true, force: true })
}
