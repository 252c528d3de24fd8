/** Checks items of work and puts them into the form that the engine takes, before anything is written. */
import { ContinuoError } from '../errors.ts'
import type { ContextHead } from './context.ts'
import type { ContextHandle, NativeItem } from './native.ts'
import { tokenBytes } from './token-bytes.ts'
import type { Generate, Penalties, WorkItem } from './work.ts'

const maxCount = 2 ** 31 - 1
const maxSeed = 2n ** 64n
/** Of one adaptation. */
const MOST_EVALUATIONS = 65_536

/** So that f32 can divide by it. */
const LEAST_REPETITION = 1e-6
const MOST_BIAS = 1e6
const NONE: ReadonlyMap<number, number> = new Map()
const NEUTRAL: Penalties = { repetition: 1, presence: 0, frequency: 0, counts: NONE }

const invalid = (message: string): never => {
  throw new ContinuoError('INVALID', message)
}

const checkTokens = (tokens: Int32Array, vocabSize: number, label: string): void => {
  if (!(tokens instanceof Int32Array)) invalid(`${label}: tokens must be an Int32Array.`)
  const at = tokens.findIndex((token) => token < 0 || token >= vocabSize)
  if (at >= 0) invalid(`${label}: token ${at} is ${tokens[at]}, expected 0 to ${vocabSize - 1}.`)
}

const checkGenerate = (generate: NonNullable<WorkItem['generate']>, vocabSize: number, label: string): void => {
  const { count, temperature, topK, topP, seed, allowed, endTokens = [], stop } = generate
  const { minP = 0, topLogprobs = 0, logitBias = NONE, penalties = NEUTRAL } = generate
  const whole = (value: number): boolean => Number.isInteger(value) && value >= 0 && value <= maxCount
  if (!whole(count)) invalid(`${label}: count is ${count}, expected a whole number from 0 to ${maxCount}.`)
  if (!(temperature >= 0 && temperature <= 1e6))
    invalid(`${label}: temperature is ${temperature}, expected 0 (greedy) to 1e6.`)
  if (temperature > 0 && temperature < 1e-6)
    invalid(`${label}: temperature is ${temperature}, expected 0 (greedy) or at least 1e-6.`)
  if (!whole(topK)) invalid(`${label}: topK is ${topK}, expected a whole number; 0 keeps all tokens.`)
  if (!(topP > 0 && topP <= 1)) invalid(`${label}: topP is ${topP}, expected more than 0 and at most 1.`)
  if (!(minP >= 0 && minP <= 1)) invalid(`${label}: minP is ${minP}, expected 0 (keeps all tokens) to 1.`)
  if (!whole(topLogprobs)) invalid(`${label}: topLogprobs is ${topLogprobs}, expected a whole number; 0 asks for none.`)
  const { repetition, presence, frequency, counts } = penalties
  if (!(repetition >= LEAST_REPETITION && repetition <= 1 / LEAST_REPETITION))
    invalid(
      `${label}: the repetition penalty is ${repetition}, expected ${LEAST_REPETITION} to ${1 / LEAST_REPETITION}.`,
    )
  for (const [name, value] of Object.entries({ presence, frequency }))
    if (!(Math.abs(value) <= MOST_BIAS))
      invalid(`${label}: the ${name} penalty is ${value}, expected ${-MOST_BIAS} to ${MOST_BIAS}.`)
  const isId = (token: number): boolean => Number.isInteger(token) && token >= 0 && token < vocabSize
  for (const [token, bias] of logitBias)
    if (!isId(token) || !(Math.abs(bias) <= MOST_BIAS))
      invalid(
        `${label}: the logit of token ${token} is biased by ${bias}, expected ids from 0 to ${vocabSize - 1} and ${-MOST_BIAS} to ${MOST_BIAS}.`,
      )
  for (const [token, times] of counts)
    if (!isId(token) || !whole(times))
      invalid(
        `${label}: token ${token} counts ${times} times, expected ids from 0 to ${vocabSize - 1} and whole numbers.`,
      )
  if (typeof seed !== 'bigint' || seed < 0n || seed >= maxSeed)
    invalid(`${label}: seed is ${seed}, expected a bigint from 0 to 2^64 − 1.`)
  if (allowed !== undefined) {
    const words = Math.ceil(vocabSize / 64)
    const known = (bits: bigint, at: number): bigint => (at < words - 1 ? bits : bits << BigInt(64 * words - vocabSize))
    if (allowed.length !== words || !allowed.some((bits, at) => BigInt.asUintN(64, known(bits, at)) !== 0n))
      invalid(
        `${label}: allowed has ${allowed.length} words of 64 tokens, expected ${words} with a token among them that may be drawn.`,
      )
  }
  const unknown = endTokens.find((token) => !isId(token))
  if (unknown !== undefined)
    invalid(`${label}: an end token is ${unknown}, expected token ids from 0 to ${vocabSize - 1}.`)
  if (stop?.strings.some(({ length }) => length === 0))
    invalid(`${label}: a stop string is empty, expected at least one byte in each.`)
}

export interface ItemOwner {
  readonly handle: ContextHandle
  readonly head: ContextHead
}

const nativeRequest = (
  request: NonNullable<WorkItem['request']>,
  label: string,
): NonNullable<NativeItem['request']> => {
  if (request.type === 'adapt') {
    const { evaluations, seed = 0n } = request
    if (!Number.isInteger(evaluations) || evaluations < 1 || evaluations > MOST_EVALUATIONS)
      invalid(`${label}: evaluations is ${evaluations}, expected a whole number from 1 to ${MOST_EVALUATIONS}.`)
    if (typeof seed !== 'bigint' || seed < 0n || seed >= maxSeed)
      invalid(`${label}: seed is ${seed}, expected a bigint from 0 to 2^64 − 1.`)
    return { adapt: { evaluations, seed } }
  }
  if (request.type === 'importPlain') return { archive: false, plain: request.plain }
  if (request.type === 'archive' || request.blocks === undefined) return { archive: request.type === 'archive' }
  const wrong = request.blocks.find((block) => !Number.isInteger(block) || block < 0 || block > maxCount)
  if (wrong !== undefined) invalid(`${label}: it asks for block ${wrong}, expected numbers of archived blocks.`)
  return { archive: false, blocks: Int32Array.from(request.blocks) }
}

const shapingOf = ({ logitBias = NONE, penalties = NEUTRAL }: Generate): NonNullable<NativeItem['shaping']> => {
  const { counts, ...strengths } = penalties
  return {
    ...strengths,
    counted: Int32Array.from(counts.keys()),
    counts: Uint32Array.from(counts.values()),
    biased: Int32Array.from(logitBias.keys()),
    biases: Float32Array.from(logitBias.values()),
  }
}

/** Throws INVALID; `label` names the item in the message. */
export const nativeItem = (
  { tokens, nats, hidden, generate, request, perspectives }: WorkItem,
  { handle, head }: ItemOwner,
  vocabSize: number,
  label: string,
): NativeItem => {
  checkTokens(tokens, vocabSize, label)
  if (generate) checkGenerate(generate, vocabSize, label)
  if (generate && generate.count > 0 && tokens.length === 0 && head.pulse === head.origin)
    invalid(`${label}: cannot generate before the first token of a context; feed one first.`)
  const { stop } = generate ?? {}
  return {
    context: handle,
    tokens,
    nats,
    ...(hidden && { hidden }),
    count: generate?.count ?? 0,
    temperature: generate?.temperature ?? 0,
    topK: generate?.topK ?? 0,
    topP: generate?.topP ?? 1,
    minP: generate?.minP ?? 0,
    seed: generate?.seed ?? 0n,
    topLogprobs: generate?.topLogprobs ?? 0,
    endTokens: Int32Array.from(generate?.endTokens ?? []),
    more: generate?.more ?? false,
    ...((generate?.penalties ?? generate?.logitBias) !== undefined && { shaping: shapingOf(generate!) }),
    ...(generate?.allowed && { allowed: generate.allowed }),
    ...(perspectives && { perspectives }),
    ...(request !== undefined && { request: nativeRequest(request, label) }),
    ...(stop !== undefined &&
      stop.strings.length > 0 && {
        stop: { tokenBytes: tokenBytes(stop.vocabulary, vocabSize), strings: stop.strings, tail: stop.tail },
      }),
  }
}
