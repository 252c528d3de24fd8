/** What each byte of a line costs a model that reads the stream line by line, in bits. */
import type { WorkItem, WorkResult } from '../engine/work.ts'
import type { Tokenizer } from '../models/tokenizer/types.ts'

type Context = WorkItem['context']

export interface Costs {
  /** Reads lines, each with a line end behind it; the bits of each byte of each line, without those of its end. */
  read(lines: readonly Uint8Array[]): Promise<readonly Float64Array[]>
}

/** Tokens of a call. */
const CALL = 4096
/** What nothing predicts, the first byte. */
const UNPREDICTED = 8
const LINE_END = Buffer.of(0x0a)

/**
 * A token's bits are shared equally by its bytes; those of a token without bytes go to the bytes behind it. Each line is made tokens by
 * itself, so its bits do not depend on how the stream was cut into pieces.
 */
export const createCosts = (
  { submit }: { submit(item: WorkItem): Promise<WorkResult> },
  context: Context,
  tokenizer: Tokenizer,
): Costs => ({
  async read(lines) {
    const texts = lines.map((line) => Buffer.concat([line, LINE_END]))
    const ids = texts.map((text) => {
      const { ids: known, held } = tokenizer.pushBytes('', text)
      return [...known, ...tokenizer.flush(held)]
    })
    const tokens = Int32Array.from(ids.flat())
    const nats = new Float32Array(tokens.length)
    for (let from = 0; from < tokens.length; from += CALL) {
      const read = await submit({ context, tokens: tokens.subarray(from, from + CALL), nats: true })
      nats.set(read.nats, from)
    }
    let at = 0
    return texts.map((text, i) => {
      const bits = new Float64Array(text.length)
      let [byte, carried] = [0, 0]
      for (const id of ids[i]!) {
        const { length } = tokenizer.bytesOf(id)
        const own = nats[at]!
        at += 1
        carried += Number.isNaN(own) ? length * UNPREDICTED : own / Math.LN2
        if (length === 0) continue
        bits.fill(carried / length, byte, byte + length)
        byte += length
        carried = 0
      }
      return bits.subarray(0, -1)
    })
  },
})
