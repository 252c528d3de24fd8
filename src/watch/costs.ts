/** What each byte of a line costs a model that reads the stream line by line, in bits. */
import type { WorkItem, WorkResult } from '../engine/work.ts'
import type { Tokenizer } from '../models/tokenizer/types.ts'

type Context = WorkItem['context']

type Submit = (item: WorkItem) => Promise<WorkResult>

/** Tokens of a call. */
const CALL = 4096
/** What nothing predicts, the first byte. */
const UNPREDICTED = 8
export const LINE_END = Buffer.of(0x0a)

/** Reads tokens into a context; the nats of each, NaN for the first token of the context. */
export const natsOf = async (submit: Submit, context: Context, tokens: Int32Array): Promise<Float32Array> => {
  const nats = new Float32Array(tokens.length)
  for (let at = 0; at < tokens.length; at += CALL)
    nats.set((await submit({ context, tokens: tokens.subarray(at, at + CALL), nats: true })).nats, at)
  return nats
}

/**
 * Writes the bits of each byte that the tokens stand for; returns how many bytes those are. A token's bits are shared
 * equally by its bytes; those of a token without bytes go to the bytes behind it.
 */
export const spreadBits = (
  tokenizer: Pick<Tokenizer, 'bytesOf'>,
  tokens: ArrayLike<number>,
  nats: ArrayLike<number>,
  bits: Float64Array,
): number => {
  let [byte, carried] = [0, 0]
  for (let at = 0; at < tokens.length; at += 1) {
    const { length } = tokenizer.bytesOf(tokens[at]!)
    const own = nats[at]!
    carried += Number.isNaN(own) ? length * UNPREDICTED : own / Math.LN2
    if (length === 0) continue
    bits.fill(carried / length, byte, byte + length)
    byte += length
    carried = 0
  }
  return byte
}

/** The tokens of a whole text. */
export const idsOf = (tokenizer: Tokenizer, text: Uint8Array): readonly number[] => {
  const { ids, held } = tokenizer.pushBytes('', text)
  return [...ids, ...tokenizer.flush(held)]
}

export interface Costs {
  /** Reads lines, each with a line end behind it; the bits of each byte of each line, without those of its end. */
  read(lines: readonly Uint8Array[]): Promise<readonly Float64Array[]>
}

/** Each line is made tokens by itself, so its bits do not depend on how the stream was cut into pieces. */
export const createCosts = (
  { submit }: { readonly submit: Submit },
  context: Context,
  tokenizer: Tokenizer,
): Costs => ({
  async read(lines) {
    const texts = lines.map((line) => Buffer.concat([line, LINE_END]))
    const ids = texts.map((text) => idsOf(tokenizer, text))
    const nats = await natsOf(submit, context, Int32Array.from(ids.flat()))
    let at = 0
    return texts.map((text, i) => {
      const bits = new Float64Array(text.length)
      spreadBits(tokenizer, ids[i]!, nats.subarray(at, at + ids[i]!.length), bits)
      at += ids[i]!.length
      return bits.subarray(0, -1)
    })
  },
})
