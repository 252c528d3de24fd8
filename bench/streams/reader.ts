/** A package as a reader of texts: the bits that each byte costs it. */
import { basename } from 'node:path'
import { ContinuoError } from '../../src/errors.ts'
import { openPackage } from '../../src/models/open.ts'

export interface Reader {
  readonly name: string
  /** Bits of each byte, read as one session from an empty state. */
  bitsOf(bytes: Uint8Array): Promise<Float64Array>
  close(): void
}

/** Tokens of a call. */
const CALL = 4096
/** What nothing predicts: the first byte. */
const UNPREDICTED = 8

/**
 * A token's bits are shared equally by its bytes; those of a token without bytes go to the bytes behind it.
 * `bitsOf` throws INVALID where the model has too few positions for the text, or its tokenizer does not give back the text's bytes.
 */
export const openReader = async (dir: string, threads: number): Promise<Reader> => {
  const { model, tokenizer } = await openPackage(dir, { threads, keepPacked: false, warn: () => {} })
  const name = basename(dir)
  if (tokenizer === null) {
    model.close()
    throw new ContinuoError('INVALID', `${name} has no tokenizer; expected a package that reads texts.`)
  }
  return {
    name,
    async bitsOf(bytes) {
      const { ids, held } = tokenizer.pushBytes('', bytes)
      const tokens = Int32Array.from([...ids, ...tokenizer.flush(held)])
      if (model.positions !== null && tokens.length > model.positions)
        throw new ContinuoError(
          'INVALID',
          `${name} has ${model.positions} positions for ${tokens.length} tokens. Give it a memory: continuo memory init.`,
        )
      const bits = new Float64Array(bytes.length)
      let [byte, carried] = [0, 0]
      const context = model.createContext()
      try {
        for (let at = 0; at < tokens.length; at += CALL) {
          const piece = tokens.subarray(at, at + CALL)
          const { nats } = await model.submit({ context, tokens: piece, nats: true })
          for (const [i, id] of piece.entries()) {
            const { length } = tokenizer.bytesOf(id)
            const own = Number.isNaN(nats[i]) ? length * UNPREDICTED : nats[i]! / Math.LN2
            carried += own
            if (length === 0) continue
            bits.fill(carried / length, byte, byte + length)
            byte += length
            carried = 0
          }
        }
      } finally {
        context.close()
      }
      if (byte !== bytes.length)
        throw new ContinuoError('INVALID', `The tokens of ${name} have ${byte} bytes, the text has ${bytes.length}.`)
      return bits
    },
    close: () => model.close(),
  }
}
