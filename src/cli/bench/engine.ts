/** The engine alone: generating for one session and for many, reading, and the state of a session out and in. */
import type { EngineContext } from '../../engine/context.ts'
import type { Model } from '../../engine/types.ts'
import type { Sampling } from '../../engine/work.ts'
import { bytes, count } from '../output.ts'
import { startBandwidth } from './bandwidth.ts'
import { sequence } from './exactness-cases.ts'
import { figure, type Measure, row } from './measure.ts'
import type { TokenWork } from './work.ts'

const none = new Int32Array(0)
const greedy: Sampling = { temperature: 0, topK: 0, topP: 1, seed: 0n }
/** Less where a context has not so many positions. */
const PROMPT = 64
const READ = 512
const fits = ({ positions }: Model, wanted: number): number => Math.min(wanted, positions ?? wanted)
/**
 * How long a sample of generating should take, s, and between which bounds the number of its tokens is chosen for that.
 */
const SAMPLE = 0.1
const [FEWEST, MOST] = [16, 1024]
const COPIES = 16

const perSecond = (value: number): string => count(value)
const giga = (value: number): string => (value / 1e9).toFixed(2)
const fixed =
  (digits: number) =>
  (value: number): string =>
    value.toFixed(digits)

interface Generating {
  /** Tokens a second of all sessions, each generating `tokens` from where its prompt ended. */
  speed(): Promise<number>
  close(): void
}

const generating = async (model: Model, sessions: number): Promise<Generating> => {
  const contexts = Array.from({ length: sessions }, () => model.createContext())
  const prompt = Math.ceil(fits(model, 2 * PROMPT) / 2)
  const most = fits(model, MOST + prompt) - prompt
  const fewest = Math.min(FEWEST, most)
  await model.process(
    contexts.map((context, i) => ({ context, tokens: sequence(i, prompt, model.vocabSize), nats: false })),
  )
  const first = contexts.map((context) => ({
    state: context.serialize(),
    head: { pulse: context.pulse, origin: context.origin, chain: context.chain },
  }))
  const run = async (tokens: number): Promise<number> => {
    for (const [i, context] of contexts.entries()) context.restore(first[i]!.state, first[i]!.head)
    const started = performance.now()
    await model.process(
      contexts.map((context) => ({ context, tokens: none, nats: false, generate: { ...greedy, count: tokens } })),
    )
    return (performance.now() - started) / 1000
  }
  let tokens: number | undefined
  return {
    async speed() {
      tokens ??= Math.min(most, Math.max(fewest, Math.round((SAMPLE / (await run(fewest))) * fewest)))
      return (sessions * tokens) / (await run(tokens))
    },
    close() {
      for (const context of contexts) context.close()
    },
  }
}

/**
 * How fast one session's tokens are, and how fast the weights pass for that; beside it what memory gives, where it is
 * the CPU's.
 */
export const decode = async (model: Model, work: TokenWork, threads: number): Promise<Measure> => {
  const one = await generating(model, 1)
  const bandwidth = model.device === 'cpu' ? await startBandwidth(threads) : null
  const weightBytes = work.step.bytes + work.predict.bytes
  return {
    name: 'decode',
    async sample() {
      const read = await bandwidth?.measure()
      const speed = await one.speed()
      const weights = speed * weightBytes
      return { speed, weights, ...(read !== undefined && { read, fraction: weights / read }) }
    },
    report(samples) {
      const [speed, weights] = [figure(samples, 'speed'), figure(samples, 'weights')]
      const values = { tokensPerSecond: speed, weightBytesPerToken: weightBytes, weightBytesPerSecond: weights }
      const rows = [
        row('tokens/s, one session', speed, perSecond),
        row(`GB/s of weights, ${bytes(weightBytes)} a token`, weights, giga),
      ]
      if (bandwidth === null) return { values, rows }
      const [read, fraction] = [figure(samples, 'read'), figure(samples, 'fraction')]
      return {
        values: { ...values, memoryBytesPerSecond: read, fractionOfMemory: fraction },
        rows: [...rows, row('GB/s that memory gives', read, giga), row('weights over memory', fraction, fixed(2))],
      }
    },
    async close() {
      one.close()
      await bandwidth?.close()
    },
  }
}

export const prefill = (model: Model, work: TokenWork): Measure => {
  const context = model.createContext()
  const count = fits(model, READ)
  const tokens = sequence(0, count, model.vocabSize)
  const read = async (nats: boolean): Promise<number> => {
    context.reset()
    const started = performance.now()
    await model.process([{ context, tokens, nats }])
    return count / ((performance.now() - started) / 1000)
  }
  const flops = { state: 2 * work.step.weights, surprisal: 2 * (work.step.weights + work.predict.weights) }
  return {
    name: 'prefill',
    async sample() {
      return { state: await read(false), surprisal: await read(true) }
    },
    report(samples) {
      const kinds = (['state', 'surprisal'] as const).map((kind) => {
        const speed = figure(samples, kind)
        const { median, min, max } = speed
        const perToken = flops[kind] / 1e9
        return { kind, speed, gflops: { median: median * perToken, min: min * perToken, max: max * perToken } }
      })
      return {
        values: {
          tokens: count,
          ...Object.fromEntries(
            kinds.map(({ kind, speed, gflops }) => [kind, { tokensPerSecond: speed, gflopsPerSecond: gflops }]),
          ),
        },
        rows: kinds.flatMap(({ kind, speed, gflops }) => [
          row(`tokens/s, ${count} at once, ${kind === 'state' ? 'state only' : 'with surprisal'}`, speed, perSecond),
          row('GFLOP/s of that', gflops, fixed(1)),
        ]),
      }
    },
    async close() {
      context.close()
    },
  }
}

export const sessions = async (model: Model, many: number): Promise<Measure> => {
  const [one, all] = [await generating(model, 1), await generating(model, many)]
  return {
    name: 'sessions',
    async sample() {
      const single = await one.speed()
      const together = await all.speed()
      return { together, gain: together / single }
    },
    report(samples) {
      const [together, gain] = [figure(samples, 'together'), figure(samples, 'gain')]
      return {
        values: { sessions: many, tokensPerSecond: together, timesOneSession: gain },
        rows: [
          row(`tokens/s, ${many} sessions together`, together, perSecond),
          row('times one session', gain, fixed(2)),
        ],
      }
    },
    async close() {
      one.close()
      all.close()
    },
  }
}

export const snapshot = async (model: Model): Promise<Measure> => {
  const context: EngineContext = model.createContext()
  await model.process([{ context, tokens: sequence(0, fits(model, PROMPT), model.vocabSize), nats: false }])
  const { pulse, origin, chain } = context
  let state = context.serialize()
  /** ms of one of several in a row. */
  const timed = (work: () => void): number => {
    const started = performance.now()
    for (let copy = 0; copy < COPIES; copy += 1) work()
    return (performance.now() - started) / COPIES
  }
  return {
    name: 'snapshot',
    async sample() {
      const take = timed(() => {
        state = context.serialize()
      })
      return { take, restore: timed(() => context.restore(state, { pulse, origin, chain })) }
    },
    report(samples) {
      const [take, restore] = [figure(samples, 'take'), figure(samples, 'restore')]
      return {
        values: { bytes: state.length, serializeMs: take, restoreMs: restore },
        rows: [
          row(`ms to copy a context of ${bytes(state.length)} out`, take, fixed(3)),
          row('ms to put it back', restore, fixed(3)),
        ],
      }
    },
    async close() {
      context.close()
    },
  }
}
