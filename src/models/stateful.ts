/**
 * A decoder over key and value caches, as the tools around GPT-2 know it: the prompt once, then one token a step, on
 * the same state. One model serves both: prefill of n tokens gives the bits of prefill of one and n − 1 steps.
 *
 *   fresh (pastLen 0) ──prefill(n tokens)──▶ decoding (pastLen n) ──step(token)──▶ decoding (pastLen n + 1) …
 *          ◀──────────────────────────────reset()──────────────────────────────
 *
 * A wrong call is refused before anything is written; state and pastLen are then what they were.
 */
import type { EngineContext } from '../engine/context.ts'
import type { DecoderShape, Model } from '../engine/types.ts'
import { ContinuoError } from '../errors.ts'
import type { LayoutEntry } from '../memory.ts'

/** Little-endian and row-major, as safetensors has it. */
export interface CacheTensor {
  /** [layers, 1, heads, positions, channels of a head] */
  readonly shape: readonly number[]
  /** Zero at and beyond `pastLen`. */
  readonly data: Float32Array
}

/** A copy of what a decoder knows. */
export interface DecoderState {
  /** Keys: [layers, 1, heads, positions, channels]. */
  readonly keyCache: CacheTensor
  /** Values, of the same shape. */
  readonly valueCache: CacheTensor
  /** `[1]`: positions in use; also the position of the next token. */
  readonly pastLen: { readonly shape: readonly number[]; readonly data: BigInt64Array }
}

/** A decoder with its caches as explicit state: read, replaced, and stepped by the program. */
export interface StatefulDecoder {
  /** Positions in use. */
  readonly pastLen: number
  /**
   * Feeds the whole prompt, n ≥ 1 tokens, to a fresh state; the mask, if given, has n ones. Resolves with the logits
   * [vocabulary] that follow its last token. INVALID: no tokens, an id outside the vocabulary, a mask that is not all
   * ones over the active length, more tokens than positions. MISUSE: the state is not fresh.
   */
  prefill(ids: ArrayLike<number>, attentionMask?: ArrayLike<number>): Promise<Float32Array>
  /**
   * Feeds one token; the mask, if given, has pastLen + 1 ones: the active sequence, never the length of the new token
   * alone. Errors as for `prefill`. MISUSE: nothing was prefilled.
   */
  step(id: number, attentionMask?: ArrayLike<number>): Promise<Float32Array>
  /** A copy; the decoder goes on with its own. */
  state(): DecoderState
  /** Puts a state in place of the decoder's own. INVALID: it is another model's; the message says what differs. */
  restore(state: DecoderState): void
  /** Back to a fresh state. */
  reset(): void
  /** Closes its context. Every later call throws MISUSE. */
  close(): void
}

const invalid = (message: string): ContinuoError => new ContinuoError('INVALID', message)
const misuse = (message: string): ContinuoError => new ContinuoError('MISUSE', message)
const shapeText = (shape: readonly number[]): string => `[${shape.join(', ')}]`

const CACHES = ['keyCache', 'valueCache'] as const

/**
 * Copies between a cache of the contract, [layer, 1, head, position, channel], and the engine's, [layer, position,
 * head, channel].
 */
const eachVector = (
  { layers, heads, positions, channels }: DecoderShape,
  pastLen: number,
  copy: (contract: number, own: number, length: number) => void,
): void => {
  for (let l = 0; l < layers; l += 1) {
    for (let h = 0; h < heads; h += 1) {
      for (let p = 0; p < pastLen; p += 1) {
        copy(((l * heads + h) * positions + p) * channels, ((l * pastLen + p) * heads + h) * channels, channels)
      }
    }
  }
}

/** The floats of one tensor in a serialised context; a copy, because a slice may begin at any byte. */
const floatsOf = (state: Uint8Array, { offset, bytes }: LayoutEntry): Float32Array =>
  new Float32Array(state.slice(offset, offset + bytes).buffer)

const checkState = (state: DecoderState, { layers, heads, positions, channels }: DecoderShape): number => {
  const wanted = [layers, 1, heads, positions, channels]
  const named = ['layers', 'batch', 'heads', 'positions', 'channels of a head']
  for (const name of CACHES) {
    const { shape, data } = state[name]
    if (!(data instanceof Float32Array)) {
      throw invalid(`A state of another model: ${name} must be a Float32Array. The state is as it was.`)
    }
    const at = wanted.findIndex((extent, i) => shape[i] !== extent)
    if (at >= 0 || shape.length !== wanted.length) {
      const where = at < 0 ? 'the number of axes' : `${named[at]}: ${shape[at]} instead of ${wanted[at]}`
      throw invalid(
        `A state of another model: ${name} has shape ${shapeText(shape)}, expected ${shapeText(wanted)}; ${where} differs. The state is as it was.`,
      )
    }
    const length = wanted.reduce((product, extent) => product * extent, 1)
    if (data.length !== length) {
      throw invalid(
        `A damaged state: ${name} has ${data.length} numbers, expected ${length} for shape ${shapeText(wanted)}.`,
      )
    }
  }
  const { shape, data } = state.pastLen
  if (!(data instanceof BigInt64Array) || data.length !== 1 || shape.length !== 1 || shape[0] !== 1) {
    throw invalid(`A state of another model: pastLen must be a BigInt64Array of shape [1], not ${shapeText(shape)}.`)
  }
  const pastLen = Number(data[0])
  if (pastLen < 0 || pastLen > positions) {
    throw invalid(`A damaged state: pastLen is ${pastLen}, expected 0 to ${positions}.`)
  }
  return pastLen
}

/**
 * Throws INVALID for a model without such caches, or one that was opened with `overflow: 'window'` or narrow caches.
 */
export const statefulDecoder = (model: Model): StatefulDecoder => {
  const { decoder: shape, vocabSize } = model
  if (shape === null) {
    throw invalid(
      `A stateful decoder needs key and value caches over all positions; a "${model.modelType}" model as it was opened has none. Open a "gpt2" package with overflow "refuse" and cacheDtype "f32".`,
    )
  }
  const context: EngineContext = model.createContext()
  // A state that others may have written says nothing of a chain: what is restored begins one of its own.
  const { chain } = context
  let busy = false
  const pastLenOf = (): number => Number(context.pulse - context.origin)

  const checkMask = (mask: ArrayLike<number> | undefined, active: number): void => {
    if (mask === undefined) return
    if (mask.length !== active) {
      throw invalid(
        `Attention covers ${mask.length} positions, the active sequence has ${active}. Give a mask over all of it: what is in the caches and what is new.`,
      )
    }
    const at = Array.prototype.findIndex.call(mask, (each: number) => each !== 1)
    if (at >= 0) throw invalid(`A stateful run has no padding: the mask is ${mask[at]} at ${at}, expected all ones.`)
  }

  const call = async (ids: ArrayLike<number>, mask: ArrayLike<number> | undefined): Promise<Float32Array> => {
    const pastLen = pastLenOf()
    const active = pastLen + ids.length
    if (active > shape.positions) {
      throw invalid(
        `${active} positions exceed n_positions ${shape.positions}. The model has learned none beyond; reset the decoder to begin anew.`,
      )
    }
    const at = Array.prototype.findIndex.call(ids, (id: number) => !Number.isInteger(id) || id < 0 || id >= vocabSize)
    if (at >= 0) throw invalid(`Token id ${ids[at]} is outside the vocabulary of ${vocabSize}.`)
    checkMask(mask, active)
    busy = true
    try {
      await model.process([{ context, tokens: Int32Array.from(ids), nats: false }])
      return await model.logits(context)
    } finally {
      busy = false
    }
  }

  const checkIdle = (): void => {
    if (busy) throw misuse('The decoder is busy with an earlier call; await that first.')
  }

  return {
    get pastLen() {
      return pastLenOf()
    },

    async prefill(ids, attentionMask) {
      checkIdle()
      if (ids.length === 0) throw invalid('There are no tokens, expected at least one.')
      if (pastLenOf() > 0) {
        throw misuse(
          `Already prefilled (pastLen ${pastLenOf()}): feed one token a step, got ${ids.length}. Reset the decoder to begin anew.`,
        )
      }
      return call(ids, attentionMask)
    },

    async step(id, attentionMask) {
      checkIdle()
      if (pastLenOf() === 0) {
        throw misuse('Nothing was prefilled (pastLen 0), so a step has nothing to attend to. Prefill the prompt first.')
      }
      return call([id], attentionMask)
    },

    state() {
      checkIdle()
      const serialized = context.serialize()
      const entries = model.layout.tensors(serialized)
      const pastLen = pastLenOf()
      const { layers, heads, positions, channels } = shape
      const cache = (name: (typeof CACHES)[number]): CacheTensor => {
        const own = floatsOf(serialized, entries.find((entry) => entry.name === name)!)
        const data = new Float32Array(layers * heads * positions * channels)
        eachVector(shape, pastLen, (to, from, length) => data.set(own.subarray(from, from + length), to))
        return { shape: [layers, 1, heads, positions, channels], data }
      }
      return {
        keyCache: cache('keyCache'),
        valueCache: cache('valueCache'),
        pastLen: { shape: [1], data: BigInt64Array.of(BigInt(pastLen)) },
      }
    },

    restore(state) {
      checkIdle()
      const pastLen = checkState(state, shape)
      const { layers, heads, channels } = shape
      const width = heads * channels
      const parts = model.layout.first.map(({ name, bytes }): Uint8Array => {
        if (name === 'pastLen') return new Uint8Array(BigInt64Array.of(BigInt(pastLen)).buffer)
        if (name !== 'keyCache' && name !== 'valueCache') return new Uint8Array(bytes)
        const own = new Float32Array(layers * pastLen * width)
        const { data } = state[name]
        eachVector(shape, pastLen, (from, to, length) => own.set(data.subarray(from, from + length), to))
        return new Uint8Array(own.buffer)
      })
      context.restore(Buffer.concat(parts), { pulse: BigInt(pastLen), origin: 0n, chain })
    },

    reset() {
      checkIdle()
      context.reset()
    },

    close() {
      context.close()
    },
  }
}
