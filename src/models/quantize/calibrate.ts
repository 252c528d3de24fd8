/**
 * Reads a text with a model, to learn what its matrices are multiplied with: Σ x xᵀ of each
 * (native/runtime/executor/moments.h). The text goes through in pieces, each from the first state of a context, one
 * after the other: so the sums have the same bits on any number of threads.
 */
import { createReadStream } from 'node:fs'
import { ContinuoError, messageOf } from '../../errors.ts'
import { type ModelPackage, openPackage } from '../open.ts'
import { checkedIds, idsIn } from '../token-input.ts'

/** The most tokens of a text that are read, and those of a piece. */
const CALIBRATION = { tokens: 32_768, piece: 2048 } as const

/** Bytes of a file that are read: more than the tokens need. A JSON array of so many ids fits. */
const MOST_BYTES = 2 ** 22
/** Fewer say nothing of a matrix. */
const LEAST = 256

const invalid = (message: string, cause?: unknown): ContinuoError => new ContinuoError('INVALID', message, { cause })

const startOf = async (file: string): Promise<Buffer> => {
  const parts: Buffer[] = []
  try {
    for await (const part of createReadStream(file, { end: MOST_BYTES - 1 })) parts.push(part as Buffer)
  } catch (cause) {
    throw invalid(
      `${file} cannot be read to calibrate with: ${messageOf(cause)}. Name a file of text, or of token ids as a JSON array.`,
      cause,
    )
  }
  return Buffer.concat(parts)
}

/** The first tokens of a file. */
const tokensIn = async (file: string, { model, tokenizer }: ModelPackage): Promise<Int32Array> => {
  const start = await startOf(file)
  const ids = idsIn(start)
  if (ids === null && tokenizer === null)
    throw invalid(
      `${file} is text, but this model has no tokenizer. Give token ids: a JSON array of at most ${MOST_BYTES} bytes.`,
    )
  const tokens = ids === null ? tokenizer!.pushBytes('', start).ids : checkedIds(ids, model)
  if (tokens.length < LEAST)
    throw invalid(
      `${file} has ${tokens.length} tokens, expected at least ${LEAST} to calibrate with, and some thousands for a good result.`,
    )
  return tokens.subarray(0, CALIBRATION.tokens)
}

/** What a calibration found. */
export interface Calibration {
  /** Tokens that were read. */
  readonly tokens: number
  /** Σ x xᵀ [K, K] of the tensor's inputs; null where nothing multiplies with it. */
  moments(tensor: string): Float32Array | null
  close(): void
}

/**
 * Reads the beginning of the file for the sums of these tensors, which take 4 · K² bytes each until `close`. Throws
 * INVALID for a file that is no text for the model, and the signal's reason.
 */
export const calibrate = async (
  dir: string,
  file: string,
  tensors: readonly string[],
  options: {
    readonly signal?: AbortSignal | undefined
    readonly onTokens?: ((done: number, all: number) => void) | undefined
    readonly threads?: number | undefined
  } = {},
): Promise<Calibration> => {
  const opened = await openPackage(dir, {
    moments: tensors,
    keepPacked: false,
    withoutMemory: true,
    experts: { from: 'weights' },
    warn: () => {},
    ...(options.threads !== undefined && { threads: options.threads }),
  })
  const { model } = opened
  try {
    const tokens = await tokensIn(file, opened)
    const piece = Math.min(CALIBRATION.piece, model.positions ?? CALIBRATION.piece)
    for (let at = 0; at < tokens.length; at += piece) {
      options.signal?.throwIfAborted()
      options.onTokens?.(at, tokens.length)
      const context = model.createContext()
      try {
        // With surprisals, so that the output matrix is multiplied with every row.
        await model.process([{ context, tokens: tokens.subarray(at, at + piece), nats: true }])
      } finally {
        context.close()
      }
    }
    return { tokens: tokens.length, moments: (tensor) => model.moments(tensor), close: () => model.close() }
  } catch (error) {
    model.close()
    throw error
  }
}
