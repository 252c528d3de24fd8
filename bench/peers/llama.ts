/** llama.cpp as a side of the bench. */
import { type Context, ERRORS, type Llama, type Model, SILENT } from './llama-binding.ts'
import type { Side } from './side.ts'

/** The tokens that llama.cpp takes in one pass over its weights (n_batch = n_ubatch). */
const BATCH = 512
/** Positions for the longest session of the bench: of the single session, and of each of many sessions. */
const POSITIONS = 1024
const POSITIONS_OF_MANY = 128

export interface LlamaSide extends Side {
  /** Appends to the single session; the logits behind the last of `ids` are computed and not fetched. */
  append(ids: Uint32Array): Promise<unknown>
  /** Seconds for single tokens, logits after each, behind what the single session has read. */
  step(ids: Uint32Array): Promise<number>
  /** Writes the single session to a file, and goes on from one. */
  save(path: string): Promise<void>
  load(path: string): Promise<void>
  /** Seconds of a call that llama.cpp refuses at once: the cost of the binding in every step. */
  emptyCall(): Promise<number>
}

export interface LlamaOptions {
  readonly threads: number
  readonly sessions: number
  readonly flashAttention: boolean
  /** Of the single session. */
  readonly positions?: number
  /** Tokens of a pass over the weights. */
  readonly batch?: number
}

export const openLlama = async (
  { binding }: Llama,
  path: string,
  { threads, sessions, flashAttention, positions: most = POSITIONS, batch = BATCH }: LlamaOptions,
): Promise<LlamaSide> => {
  const model: Model = new binding.AddonModel(path, { gpuLayers: 0, useMmap: true })
  if (!(await model.init())) throw new Error(`llama.cpp does not load ${path}; its own message stands above.`)
  const contextFor = async (sequences: number, positions: number): Promise<Context> => {
    const context = new binding.AddonContext(model, {
      contextSize: positions * sequences,
      batchSize: batch,
      sequences,
      flashAttention,
      threads,
    })
    if (!(await context.init()))
      throw new Error(`llama.cpp makes no context for ${path}; its own message stands above.`)
    return context
  }
  const one = await contextFor(1, most)
  const many = await contextFor(sessions, POSITIONS_OF_MANY)
  const sampler = new binding.AddonSampler(model)
  sampler.applyConfig({})

  const none = new Uint32Array(0)
  const first = Uint32Array.of(0)
  let position = 0
  let manyPosition = 0

  const logitsAt = async (context: Context, output: number): Promise<Float32Array> => {
    const [, , , pairs] = await context.sampleToken(output, sampler, false, false, true)
    const logits = new Float32Array(pairs.length / 2)
    for (let i = 0; i < pairs.length; i += 2) logits[pairs[i]!] = pairs[i + 1]!
    return logits
  }
  /** Appends to the single session. Returns the index in the batch of the last logits. */
  const append = async (ids: Uint32Array): Promise<number> => {
    let output = 0
    for (let from = 0; from < ids.length; from += batch) {
      const part = ids.subarray(from, from + batch)
      one.initBatch(part.length)
      const last = from + batch >= ids.length
      output = one.addToBatch(0, position, part, last ? Uint32Array.of(part.length - 1) : none)[0] ?? 0
      await one.decodeBatch()
      position += part.length
    }
    return output
  }
  const fresh = async (): Promise<void> => {
    one.disposeSequence(0)
    position = 0
  }
  const step = async (ids: Uint32Array): Promise<number> => {
    const started = performance.now()
    for (let i = 0; i < ids.length; i += 1) {
      one.initBatch(1)
      one.addToBatch(0, position, ids.subarray(i, i + 1), first)
      await one.decodeBatch()
      position += 1
    }
    return (performance.now() - started) / 1000
  }
  /** Feeds one token of each session in one batch. Returns the indices in the batch of their logits. */
  const together = async (ids: Uint32Array): Promise<readonly number[]> => {
    many.initBatch(ids.length)
    const outputs = Array.from(ids, (_, i) => many.addToBatch(i, manyPosition, ids.subarray(i, i + 1), first)[0]!)
    await many.decodeBatch()
    manyPosition += 1
    return outputs
  }

  return {
    name: 'llama.cpp',
    fresh,
    append,
    step,
    async save(path) {
      await one.saveSequenceStateToFile(path, 0, new Uint32Array(position))
    },
    async load(path) {
      await fresh()
      position = (await one.loadSequenceStateFromFile(path, 0, most)).length
    },
    async feed(ids) {
      return logitsAt(one, await append(Uint32Array.from(ids)))
    },
    async prefill(ids) {
      const tokens = Uint32Array.from(ids)
      await fresh()
      const started = performance.now()
      await append(tokens)
      return (performance.now() - started) / 1000
    },
    async decode(prompt, steps) {
      await fresh()
      await append(Uint32Array.from(prompt))
      return step(Uint32Array.from({ length: steps }, (_, i) => prompt[i % prompt.length]!))
    },
    async decodeMany(prompts, steps) {
      manyPosition = 0
      for (let i = 0; i < prompts.length; i += 1) many.disposeSequence(i)
      const column = (at: number): Uint32Array => Uint32Array.from(prompts, (prompt) => prompt[at % prompt.length]!)
      for (let at = 0; at < prompts[0]!.length; at += 1) await together(column(at))
      const started = performance.now()
      for (let step = 0; step < steps; step += 1) await together(column(step))
      return (performance.now() - started) / 1000
    },
    async feedMany(ids) {
      const outputs = await together(Uint32Array.from(ids))
      const all: Float32Array[] = []
      for (const output of outputs) all.push(await logitsAt(many, output))
      return all
    },
    async emptyCall() {
      const calls = 500
      binding.setLoggerLogLevel(SILENT)
      const started = performance.now()
      for (let call = 0; call < calls; call += 1) {
        one.initBatch(1)
        await one.decodeBatch().catch(() => undefined)
      }
      const seconds = (performance.now() - started) / 1000
      binding.setLoggerLogLevel(ERRORS)
      return seconds / calls
    },
    async close() {
      sampler.dispose()
      await one.dispose()
      await many.dispose()
      await model.dispose()
    },
  }
}
