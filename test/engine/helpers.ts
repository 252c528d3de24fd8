import { onTestFinished } from 'vitest'
import type { Context } from '../../src/engine/context.ts'
import type { OpenModelOptions } from '../../src/engine/options.ts'
import type { Model } from '../../src/engine/types.ts'
import type { Generate, Sampling } from '../../src/engine/work.ts'
import { ContinuoError, type ErrorCode } from '../../src/errors.ts'
import { openModel } from '../../src/models/open.ts'

/** Where suites open a model that say no device themselves: the CPU, unless tools/device.vitest.ts runs them. */
export const testDevice: Pick<OpenModelOptions, 'device'> =
  process.env.CONTINUO_TEST_DEVICE === 'cuda' ? { device: 'cuda' } : {}

/** Opens a model that closes with the test. */
export const open = async (dir: string, options: OpenModelOptions = { threads: 1 }): Promise<Model> => {
  const model = await openModel(dir, { ...testDevice, ...options })
  onTestFinished(() => {
    try {
      model.close()
    } catch {
      // The test closed it.
    }
  })
  return model
}

export const greedy: Sampling = { temperature: 0, topK: 0, topP: 1, seed: 0n }
export const none = new Int32Array(0)

export const feed = async (
  model: Model,
  context: Context,
  tokens: ArrayLike<number>,
  nats = true,
): Promise<Float32Array> => (await model.process([{ context, tokens: Int32Array.from(tokens), nats }]))[0]!.nats

export const generate = async (
  model: Model,
  context: Context,
  count: number,
  sampling: Omit<Generate, 'count'> = greedy,
) => (await model.process([{ context, tokens: none, nats: false, generate: { ...sampling, count } }]))[0]!

/** The ContinuoError that `call` throws or rejects with. */
export const errorOf = async (call: () => unknown): Promise<{ code: ErrorCode; message: string }> => {
  try {
    await call()
  } catch (error) {
    if (error instanceof ContinuoError) return { code: error.code, message: error.message }
    throw error
  }
  throw new Error('expected a ContinuoError, but nothing was thrown')
}

/** Bits of floats, so that NaN equals NaN and −0 differs from 0. */
export const bits = (values: Float32Array): Uint32Array => new Uint32Array(values.slice().buffer)

/** Whether two states are the same bytes; a deep comparison of typed arrays would take seconds. */
export const sameBytes = (a: Uint8Array, b: Uint8Array): boolean =>
  Buffer.from(a.buffer, a.byteOffset, a.length).equals(b)
