/**
 * node child.ts '{"dir": …, "device": …, "sessions": …, "length": …}': what so many sessions tell after reading in one
 * batch and, again, in random pieces; and how much of the device's memory the model took by itself. Prints one line of
 * JSON. A process of its own, because an emulated device reads what it is from the environment it starts in.
 */
import { cudaStatus } from '../../src/engine/inspect.ts'
import type { DeviceKind } from '../../src/engine/options.ts'
import { openModel } from '../../src/models/open.ts'
import { inPieces, readingsOf, type Told, whole } from './readings.ts'

export interface Asked {
  readonly dir: string
  readonly device: DeviceKind
  readonly sessions: number
  readonly length: number
}

export interface Answer {
  readonly told: readonly Told[]
  readonly again: readonly Told[]
  /** Bytes. */
  readonly modelBytes: number
  readonly contextBytes: number
}

const { dir, device, sessions, length } = JSON.parse(process.argv[2]!) as Asked
const model = await openModel(dir, { device, threads: 1, keepPacked: false })
const { total, free } = cudaStatus()
const context = model.createContext()
const lengths = Array.from({ length: sessions }, (_, i) => length - (i % 5))
const readings = readingsOf(model, 1, lengths, 4)
await model.process([{ context, tokens: readings[0]!.tokens, nats: false }])
const contextBytes = context.bytes
context.close()
const { told } = await whole(model, readings, true)
const again = await inPieces({ cuda: model }, readings, 3)
const answer: Answer = { told, again, modelBytes: total - free, contextBytes }
process.stdout.write(`${JSON.stringify(answer)}\n`)
model.close()
