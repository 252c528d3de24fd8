import { z } from 'zod'
import type { Context, Model } from '../../engine/types.ts'
import { ContinuoError } from '../../errors.ts'
import { writeDurably } from '../../files.ts'
import type { Tokenizer } from '../../models/tokenizer/types.ts'
import { command } from '../command.ts'
import { cacheDtypeFlag, deviceFlag, modelFlag, overflowFlag, threadsFlag, withModel } from '../common.ts'
import { optional, usage, whole } from '../flags.ts'
import { readAll } from '../input.ts'
import { bitsPer, count, print, printJson } from '../output.ts'

const idList = z.array(z.int().min(0))

/** A JSON array of whole numbers is ids; anything else is text. */
const idsIn = (bytes: Buffer): readonly number[] | null => {
  if (!/^\s*\[/.test(bytes.subarray(0, 64).toString('latin1'))) return null
  try {
    const parsed = idList.safeParse(JSON.parse(bytes.toString('utf8')))
    return parsed.success ? parsed.data : null
  } catch {
    return null
  }
}

const tokensOf = (bytes: Buffer, { vocabSize }: Model, tokenizer: Tokenizer | null): Int32Array => {
  const ids = idsIn(bytes)
  if (ids !== null) {
    const at = ids.findIndex((id) => id >= vocabSize)
    if (at >= 0) {
      throw new ContinuoError(
        'INVALID',
        `Token ids go from 0 to ${vocabSize - 1} for this model; number ${at} is ${ids[at]}.`,
      )
    }
    return Int32Array.from(ids)
  }
  if (tokenizer === null) {
    throw usage('This model has no tokenizer and reads token ids only. Give a JSON array of ids.')
  }
  const { ids: pushed, held } = tokenizer.pushBytes('', bytes)
  const rest = tokenizer.flush(held)
  const all = new Int32Array(pushed.length + rest.length)
  all.set(pushed)
  all.set(rest, pushed.length)
  return all
}

interface Score {
  readonly nats: number
  readonly predictions: number
}

/** Feeds the tokens and sums −ln p over all but the first, in order. */
const score = async (model: Model, context: Context, tokens: Int32Array, chunk: number): Promise<Score> => {
  let nats = 0
  let predictions = 0
  for (let at = 0; at < tokens.length; at += chunk) {
    const [result] = await model.process([{ context, tokens: tokens.subarray(at, at + chunk), nats: true }])
    for (const value of result!.nats) {
      if (Number.isNaN(value)) continue
      nats += value
      predictions += 1
    }
  }
  return { nats, predictions }
}

/** Bytes of the tokens that were predicted; null without a tokenizer. */
const predictedBytes = (tokens: Int32Array, tokenizer: Tokenizer | null): number | null =>
  tokenizer === null ? null : tokens.subarray(1).reduce((sum, id) => sum + tokenizer.bytesOf(id).length, 0)

export const evaluate = command({
  name: 'eval',
  about:
    'How well the model predicts a text it reads once, learning on the way: total nats over all tokens but the first, bits per byte, and the chain, a fingerprint of the computation.',
  args: [{ name: 'FILE', help: 'text, or a JSON array of token ids; - for standard input', required: true }],
  flags: {
    model: modelFlag,
    'chunk-tokens': whole('N', 'tokens a call; changes the speed, never the result', 4096, { min: 1 }),
    logits: optional('FILE', 'write the logits after the last token: raw little-endian f32'),
    overflow: overflowFlag,
    'cache-dtype': cacheDtypeFlag,
    threads: threadsFlag,
    device: deviceFlag,
  },
  examples: [
    'eval docs/demo/harbour-log.txt --model models/demo',
    'eval docs/demo/harbour-log.txt --model models/demo --device cuda',
  ],
  async run(flags, [file]) {
    const input = await readAll(file!)
    return withModel(flags.model, flags, async ({ model, tokenizer }) => {
      const tokens = tokensOf(input, model, tokenizer)
      if (model.positions !== null && tokens.length > model.positions) {
        throw new ContinuoError(
          'INVALID',
          `${tokens.length} positions exceed the ${model.positions} of one context. Give a shorter text, or let attention see a window: --overflow window.`,
        )
      }
      const context = model.createContext()
      const started = performance.now()
      const { nats, predictions } = await score(model, context, tokens, flags['chunk-tokens'])
      const seconds = (performance.now() - started) / 1000
      if (flags.logits !== undefined) {
        const logits = await model.logits(context)
        const raw = Buffer.alloc(4 * logits.length)
        for (const [at, value] of logits.entries()) raw.writeFloatLE(value, 4 * at)
        await writeDurably(flags.logits, raw)
      }
      const size = predictedBytes(tokens, tokenizer)
      const result = {
        tokens: tokens.length,
        predictions,
        nats,
        bitsPerToken: bitsPer(nats, predictions),
        bitsPerByte: size === null ? null : bitsPer(nats, size),
        pulse: Number(context.pulse),
        chain: context.chain,
        seconds,
        tokensPerSecond: seconds === 0 ? null : tokens.length / seconds,
      }
      context.close()
      if (flags.json) printJson(result)
      else {
        print(`${nats.toFixed(4)} nats over ${count(predictions)} predictions`)
        if (result.bitsPerByte !== null) print(`${result.bitsPerByte.toFixed(4)} bits per byte`)
        else if (result.bitsPerToken !== null) print(`${result.bitsPerToken.toFixed(4)} bits per token`)
        print(`pulse ${result.pulse}, chain ${result.chain}`)
        print(`${count(result.tokensPerSecond ?? 0)} tokens/s (${seconds.toFixed(2)} s)`)
      }
      return 0
    })
  },
})
