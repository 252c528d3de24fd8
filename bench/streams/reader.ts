/** A package as a reader of texts: the bits that each byte costs it. */
import { basename } from 'node:path'
import { ContinuoError } from '../../src/errors.ts'
import { openPackage } from '../../src/models/open.ts'
import { idsOf, natsOf, spreadBits } from '../../src/watch/costs.ts'

export interface Reader {
  readonly name: string
  /** Bits of each byte, read as one session from an empty state. */
  bitsOf(bytes: Uint8Array): Promise<Float64Array>
  close(): void
}

/**
 * `bitsOf` throws INVALID where the model has too few positions for the text, or its tokenizer does not give back the
 * text's bytes.
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
      const tokens = Int32Array.from(idsOf(tokenizer, bytes))
      if (model.positions !== null && tokens.length > model.positions)
        throw new ContinuoError(
          'INVALID',
          `${name} has ${model.positions} positions for ${tokens.length} tokens. Give it a memory: continuo memory init.`,
        )
      const bits = new Float64Array(bytes.length)
      const context = model.createContext()
      let nats: Float32Array
      try {
        nats = await natsOf(model.submit, context, tokens)
      } finally {
        context.close()
      }
      const byte = spreadBits(tokenizer, tokens, nats, bits)
      if (byte !== bytes.length)
        throw new ContinuoError('INVALID', `The tokens of ${name} have ${byte} bytes, the text has ${bytes.length}.`)
      return bits
    },
    close: () => model.close(),
  }
}
