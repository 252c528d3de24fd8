/** Work of several sessions, on one device or on both, and what it leaves, to be compared to the last bit. */
import { createHash } from 'node:crypto'
import type { EngineContext } from '../../src/engine/context.ts'
import type { DeviceKind } from '../../src/engine/options.ts'
import type { Model } from '../../src/engine/types.ts'
import type { WorkItem } from '../../src/engine/work.ts'
import type { GateStatistics } from '../../src/memory.ts'
import { random } from '../crash/scenario.ts'

/** A model on both devices. */
export type Pair = Readonly<Record<DeviceKind, Model>>

/** What one session reads, and how much it writes after that. */
export interface Reading {
  readonly tokens: Int32Array
  readonly generate: NonNullable<WorkItem['generate']>
}

/** What is known of a session after its reading; floats as their bits. */
export interface Told {
  readonly nats: string
  readonly generated: readonly number[]
  readonly logprobs: string
  readonly logits: string
  readonly chain: string
  readonly state: string
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Buffer =>
  Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength)
const bitsOf = (values: readonly Float32Array[]): string => values.map((part) => bytesOf(part).toString('hex')).join('')
const hashOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

export const readingsOf = (model: Model, seed: number, lengths: readonly number[], count: number): Reading[] => {
  const next = random(seed)
  return lengths.map((length, session) => ({
    tokens: Int32Array.from({ length }, () => Math.floor(next() * model.vocabSize)),
    // Greedy, and drawn from what is cut off both ways.
    generate: { temperature: session % 3 === 0 ? 0 : 0.9, topK: 30, topP: 0.95, seed: BigInt(session), count },
  }))
}

const none = new Int32Array(0)

interface Reader {
  readonly reading: Reading
  context: EngineContext
  on: DeviceKind
  read: number
  written: number
  readonly nats: Float32Array[]
  readonly generated: number[]
  readonly logprobs: Float32Array[]
}

const readerOf = (reading: Reading, context: EngineContext, on: DeviceKind): Reader => ({
  ...{ reading, context, on, read: 0, written: 0 },
  ...{ nats: [], generated: [], logprobs: [] },
})

const isDone = ({ reading, read, written }: Reader): boolean =>
  read === reading.tokens.length && written === reading.generate.count

/** The next piece: so many tokens, then, where none are left, so many generated. */
const pieceOf = ({ reading, context, read, written }: Reader, size: number): WorkItem => {
  if (read < reading.tokens.length) return { context, tokens: reading.tokens.subarray(read, read + size), nats: true }
  const count = Math.min(size, reading.generate.count - written)
  return { context, tokens: none, nats: false, generate: { ...reading.generate, count } }
}

const process = async (model: Model, readers: readonly Reader[], items: readonly WorkItem[]): Promise<void> => {
  const results = await model.process(items)
  for (const [at, reader] of readers.entries()) {
    const { nats, generated, logprobs } = results[at]!
    reader.nats.push(nats)
    reader.generated.push(...generated)
    reader.logprobs.push(logprobs)
    reader.read += items[at]!.tokens.length
    reader.written += items[at]!.generate?.count ?? 0
  }
}

const toldOf = async (model: Model, reader: Reader): Promise<Told> => ({
  nats: bitsOf(reader.nats),
  generated: reader.generated,
  logprobs: bitsOf(reader.logprobs),
  logits: hashOf(bytesOf(await model.logits(reader.context))),
  chain: reader.context.chain,
  state: hashOf(reader.context.serialize()),
})

export interface Outcome {
  readonly told: readonly Told[]
  /** Of each session. */
  readonly gates: readonly (readonly GateStatistics[])[]
}

/** All sessions in one batch, each as a whole; or one after the other. */
export const whole = async (model: Model, readings: readonly Reading[], together: boolean): Promise<Outcome> => {
  const readers = readings.map((reading) => readerOf(reading, model.createContext(), model.device))
  const batches = together ? [readers] : readers.map((reader) => [reader])
  for (const batch of batches) {
    while (batch.some((reader) => !isDone(reader))) {
      const rest = batch.filter((reader) => !isDone(reader))
      await process(
        model,
        rest,
        rest.map((reader) => pieceOf(reader, Number.POSITIVE_INFINITY)),
      )
    }
  }
  const told: Told[] = []
  for (const reader of readers) told.push(await toldOf(model, reader))
  const gates = readers.map(({ context }) => context.gates())
  for (const { context } of readers) context.close()
  return { told, gates }
}

const other = (device: DeviceKind): DeviceKind => (device === 'cpu' ? 'cuda' : 'cpu')

const move = (reader: Reader, pair: Pair): void => {
  const { pulse, origin, chain } = reader.context
  const state = reader.context.serialize()
  reader.context.close()
  reader.on = other(reader.on)
  reader.context = pair[reader.on].createContext()
  reader.context.restore(state, { pulse, origin, chain })
}

/**
 * The same work in random pieces, in batches of whoever is drawn. With both devices, each session is moved in its turn
 * from one to the other by its state; most of the work is the CUDA device's.
 */
export const inPieces = async (
  pair: Pair | { readonly cuda: Model },
  readings: readonly Reading[],
  seed: number,
): Promise<readonly Told[]> => {
  const next = random(seed)
  const readers = readings.map((reading) => readerOf(reading, pair.cuda.createContext(), 'cuda'))
  while (readers.some((reader) => !isDone(reader))) {
    const rest = readers.filter((reader) => !isDone(reader))
    for (const [device, model] of Object.entries(pair)) {
      const drawn = rest.filter(({ on }) => on === device && next() < 0.8)
      if (drawn.length === 0) continue
      await process(
        model,
        drawn,
        drawn.map((reader) => pieceOf(reader, 1 + Math.floor(next() ** 2 * 24))),
      )
    }
    if (!('cpu' in pair)) continue
    for (const reader of rest) if (next() < (reader.on === 'cpu' ? 0.7 : 0.2)) move(reader, pair)
  }
  // What is compared stands on the CUDA device, and was on both.
  for (const reader of 'cpu' in pair ? readers : []) {
    do move(reader, pair as Pair)
    while (reader.on === 'cpu')
  }
  const told: Told[] = []
  for (const reader of readers) told.push(await toldOf(pair.cuda, reader))
  for (const { context } of readers) context.close()
  return told
}
