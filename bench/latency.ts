/**
 * The time between tokens of sessions that generate, each one token at a time, beside sessions that read 512 tokens at
 * a time.
 *
 *   node bench/latency.ts [--models 0.1b,demo] [--generators 1,8] [--readers 0,1,8,63] [--threads 2] [--target 2] [--seconds 10]
 *                         [--together] [--log]
 *
 * A gap is the time from one token of a session to its next, measured in JavaScript. Tokens per second are those of all
 * generators and those of all readers while both run: readers have a fixed amount of work, and the measurement ends
 * with it. The ratio beside a gap is to the median gap without readers; the ratio beside the readers' speed is to the
 * readers alone.
 *
 * --together is the negative control: it emulates static batches, in which a new item waits until all items of the
 * batch before are done. The gaps must be long then, or the bench does not measure what it should.
 *
 * --log measures through the embedded log instead: from the append of a `generate` request to the commit of its first
 * tokens (a record of 16), while the readers have more to read than they can finish.
 *
 * The 0.1B model (RWKV-7, f16, random weights) is written to a temporary folder.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Context } from '../src/engine/context.ts'
import type { Model } from '../src/engine/types.ts'
import type { WorkItem, WorkResult } from '../src/engine/work.ts'
import { openPackage } from '../src/models/open.ts'
import { startWorker } from '../src/operators/worker/worker.ts'
import { topicNames } from '../topics/index.ts'
import { parseArgs } from './options.ts'
import { RWKV7_0B1, writeRwkv7 } from './rwkv7-package.ts'
import { embeddedPlace, median, modelDir, type Place, prepared, quantile } from './support.ts'

const { values } = parseArgs({
  options: {
    models: { type: 'string', default: '0.1b,demo' },
    generators: { type: 'string', default: '1,8' },
    readers: { type: 'string', default: '0,1,8,63' },
    threads: { type: 'string', default: '2' },
    target: { type: 'string', default: '2' },
    seconds: { type: 'string', default: '10' },
    together: { type: 'boolean', default: false },
    log: { type: 'boolean', default: false },
  },
})
const READ = 512
const PROMPT = 16
const numbers = (list: string): readonly number[] => list.split(',').map(Number)

type Submit = (item: WorkItem) => Promise<WorkResult>

/**
 * Static batches: collects the ready items into a group, starts it when the group before is done, and answers the whole
 * group at once.
 */
const together = (submit: Submit): Submit => {
  let waiting: { readonly item: WorkItem; readonly answer: PromiseWithResolvers<WorkResult> }[] = []
  let busy = false
  const pump = async (): Promise<void> => {
    while (waiting.length > 0) {
      const group = waiting
      waiting = []
      const results = await Promise.all(group.map(({ item }) => submit(item)))
      for (const [n, { answer }] of group.entries()) answer.resolve(results[n]!)
      await new Promise(setImmediate)
    }
    busy = false
  }
  return (item) => {
    const answer = Promise.withResolvers<WorkResult>()
    waiting.push({ item, answer })
    if (!busy) {
      busy = true
      setImmediate(() => void pump())
    }
    return answer.promise
  }
}

const idsOf = (model: Model, seed: number, count: number): Int32Array =>
  Int32Array.from({ length: count }, (_, i) => (i * 7919 + seed * 104_729 + 1) % model.vocabSize)

interface Figures {
  readonly gaps: readonly number[]
  /** Tokens a second. */
  readonly generated: number
  readonly read: number
}

const measure = async (
  model: Model,
  submit: Submit,
  generators: number,
  readers: number,
  readTokens: number,
  seconds: number,
): Promise<Figures> => {
  const contexts: Context[] = []
  const opened = async (seed: number): Promise<Context> => {
    const context = model.createContext()
    contexts.push(context)
    await model.process([{ context, tokens: idsOf(model, seed, PROMPT), nats: false }])
    return context
  }
  const gaps: number[] = []
  let generated = 0
  let read = 0
  let over = false
  const generate = async (context: Context, seed: number): Promise<void> => {
    const sampling = { temperature: 1, topK: 0, topP: 1, seed: BigInt(seed), count: 1, more: true }
    let last = performance.now()
    while (!over) {
      await submit({ context, tokens: new Int32Array(0), nats: false, generate: sampling })
      const now = performance.now()
      gaps.push(now - last)
      last = now
      generated += 1
    }
  }
  const readAll = async (context: Context, seed: number): Promise<void> => {
    for (let left = Math.ceil(readTokens / readers / READ); left > 0; left -= 1) {
      await submit({ context, tokens: idsOf(model, seed + left, READ), nats: true })
      read += READ
    }
  }
  const writing = await Promise.all(Array.from({ length: generators }, (_, n) => opened(n)))
  const reading = await Promise.all(Array.from({ length: readers }, (_, n) => opened(100 + n)))
  const begun = performance.now()
  const generating = writing.map(generate)
  if (readers === 0) await new Promise((resolve) => setTimeout(resolve, seconds * 1000))
  else await Promise.all(reading.map(readAll))
  const elapsed = (performance.now() - begun) / 1000
  over = true
  await Promise.all(generating)
  for (const context of contexts) context.close()
  return { gaps, generated: generated / elapsed, read: read / elapsed }
}

const dir = mkdtempSync(join(tmpdir(), 'continuo-latency-'))
const dirOf = async (name: string): Promise<string> => {
  if (name !== '0.1b') return name === 'demo' ? modelDir : name
  await writeRwkv7(dir, RWKV7_0B1, 'F16')
  return dir
}

const ms = (value: number): string => value.toFixed(2).padStart(9)
const ratio = (value: number): string => `${value.toFixed(value < 10 ? 2 : 0)} x`.padStart(8)

/** Times from request to first token, ms, of consecutive requests of a session beside `readers` reading sessions. */
const throughLog = async (model: Model, place: Place, readers: number, seconds: number): Promise<readonly number[]> => {
  const log = await prepared(place.fresh(), 1)
  const names = topicNames(log.prefix)
  const append = (session: string, event: unknown): Promise<unknown> =>
    log.append(names.chunks, [{ key: Buffer.from(session), value: Buffer.from(JSON.stringify(event)) }])
  const read = (seed: number, count: number) => ({ type: 'tokens', tokens: [...idsOf(model, seed, count)] })
  let failed: (error: unknown) => void = () => undefined
  const failure = new Promise<never>((_, reject) => {
    failed = reject
  })
  const waiting = new Map<string, () => void>()
  await append('writer', read(1, PROMPT))
  const worker = await startWorker({
    ...{ log, names, model, tokenizer: null, group: 'bench', format: 'json' },
    ...{ commitInterval: 10, snapshotEvery: 1 << 20, maxContexts: 128, compactFloor: 1 << 30 },
    warn: (message) => console.error(message),
    onState: (_, __, error) => {
      if (error !== undefined) failed(error)
    },
    onCommit({ steps }) {
      for (const { session, outputs, done } of steps) {
        for (const { to, ...output } of outputs) {
          if (to !== 'tokens' || !('value' in output)) continue
          const { requestId } = output.value as { readonly requestId: string }
          waiting.get(requestId)?.()
          waiting.delete(requestId)
        }
        // A reader that has finished a record gets another one.
        if (done && session?.startsWith('reader')) void append(session, read(3, READ)).catch(failed)
      }
    },
  })
  const times: number[] = []
  const over = performance.now() + seconds * 1000
  for (let n = 0; n < readers; n += 1)
    for (let k = 0; k < 2; k += 1) await append(`reader-${n}`, read(n + 100 * k, READ))
  for (let n = 0; times.length < 3 || performance.now() < over; n += 1) {
    const requestId = `r${n}`
    const first = new Promise<void>((resolve) => waiting.set(requestId, resolve))
    const started = performance.now()
    await append('writer', { type: 'generate', requestId, maxTokens: 16, temperature: 1, seed: n })
    await Promise.race([first, failure])
    times.push(performance.now() - started)
  }
  await worker.stop()
  await log.close()
  return times
}

const reportLog = async (name: string): Promise<void> => {
  const { model } = await openPackage(await dirOf(name), {
    threads: Number(values.threads),
    stepTarget: Number(values.target),
  })
  const place = embeddedPlace()
  console.log(`\n${name}, ${model.vocabSize} tokens, ${values.threads} threads, through the embedded log`)
  console.log('readers  requests   p50 ms             worst ms')
  let alone = Number.NaN
  for (const readers of numbers(values.readers)) {
    const times = await throughLog(model, place, readers, Number(values.seconds))
    if (readers === 0) alone = median(times)
    const worst = Math.max(...times)
    console.log(
      `${String(readers).padStart(7)} ${String(times.length).padStart(9)} ${ms(median(times))} ${ratio(median(times) / alone)} ${ms(worst)} ${ratio(worst / alone)}`,
    )
  }
  await place.stop()
  model.close()
}

const report = async (name: string): Promise<void> => {
  const { model } = await openPackage(await dirOf(name), {
    threads: Number(values.threads),
    stepTarget: Number(values.target),
  })
  const submit: Submit = values.together ? together(model.submit) : model.submit
  const seconds = Number(values.seconds)
  // An amount of reading that takes about the requested time.
  const probe = await measure(model, submit, 0, 8, 8 * READ, seconds)
  const readTokens = Math.max(8 * READ, probe.read * seconds)
  console.log(`\n${name}, ${model.vocabSize} tokens, ${values.threads} threads`)
  console.log('generators readers   p50 ms    p99 ms            worst ms          tokens/s  read tokens/s')
  const aloneReading = new Map<number, number>()
  for (const readers of numbers(values.readers)) {
    if (readers === 0) continue
    const { read } = await measure(model, submit, 0, readers, readTokens, seconds)
    aloneReading.set(readers, read)
    console.log(`${'0'.padStart(10)} ${String(readers).padStart(7)} ${' '.repeat(64)} ${read.toFixed(0).padStart(8)}`)
  }
  for (const generators of numbers(values.generators)) {
    let alone = Number.NaN
    for (const readers of numbers(values.readers)) {
      const { gaps, generated, read } = await measure(model, submit, generators, readers, readTokens, seconds)
      if (readers === 0) alone = median(gaps)
      const [p99, worst] = [quantile(gaps, 0.99), gaps.reduce((a, b) => Math.max(a, b), 0)]
      const share = readers === 0 ? '' : `${read.toFixed(0).padStart(8)} ${ratio(read / aloneReading.get(readers)!)}`
      console.log(
        `${String(generators).padStart(10)} ${String(readers).padStart(7)} ${ms(median(gaps))} ${ms(p99)} ${ratio(p99 / alone)} ${ms(worst)} ${ratio(worst / alone)} ${generated.toFixed(1).padStart(10)} ${share}`,
      )
    }
  }
  model.close()
}

try {
  for (const name of values.models.split(',')) await (values.log ? reportLog(name) : report(name))
} finally {
  rmSync(dir, { recursive: true, force: true })
}
