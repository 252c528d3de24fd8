/**
 * What each token adds to the text, in bytes. A stream goes on: what a decoder does only at the beginning of a text
 * (taking the first space away) is left out.
 */
import { z } from 'zod'
import { byteOf } from './alphabet.ts'
import type { TokenizerFile } from './file.ts'
import { MOST_GROWTH, MOST_STAGES } from './limits.ts'
import { Unstreamable } from './unstreamable.ts'

const utf8 = new TextEncoder()
const NOTHING = new Uint8Array(0)

/**
 * A step of the decoder turns the text of a token into its bytes, which are final, or into the text that the next step
 * gets.
 */
type Step = (token: string) => string | Uint8Array

const byteLevel: Step = (token) => {
  const bytes: number[] = []
  for (const char of token) {
    const byte = byteOf(char)
    if (byte === undefined) return token
    bytes.push(byte)
  }
  return Uint8Array.from(bytes)
}

const byteFallback: Step = (token) => {
  const hex = /^<0x([0-9A-Fa-f]{2})>$/.exec(token)?.[1]
  return hex === undefined ? token : Uint8Array.of(Number.parseInt(hex, 16))
}

/** What the limits of all steps together are judged by; counted while the steps are read. */
interface Seen {
  fused: boolean
  steps: number
  /** How many times as long as its token a text becomes at most. */
  growth: number
}

const replace = (json: unknown, seen: Seen): Step => {
  const found = z
    .looseObject({ pattern: z.strictObject({ String: z.string().min(1) }), content: z.string() })
    .safeParse(json)
  if (!found.success) throw new Unstreamable('a decoder of type Replace that is not of one text by another')
  const { pattern, content } = found.data
  seen.growth *= Math.max(1, content.length / pattern.String.length)
  if (seen.growth > MOST_GROWTH.decoder)
    throw new Unstreamable(
      `decoders of type Replace that may make a text ${Math.ceil(seen.growth)} times as long; at most ${MOST_GROWTH.decoder} times is taken`,
    )
  return (token) => token.replaceAll(pattern.String, () => content)
}

const stepsOf = (json: unknown, seen: Seen): Step[] => {
  if (json === null || json === undefined) return []
  seen.steps += 1
  if (seen.steps > MOST_STAGES) throw new Unstreamable(`more than ${MOST_STAGES} decoders`)
  const item = z.looseObject({ type: z.string() }).safeParse(json)
  if (!item.success) throw new Unstreamable('a malformed decoder: expected an object with a type')
  const { type } = item.data
  switch (type) {
    case 'ByteLevel':
      return [byteLevel]
    case 'ByteFallback':
      return [byteFallback]
    case 'Replace':
      return [replace(json, seen)]
    case 'Fuse':
      seen.fused = true
      return []
    case 'Metaspace': {
      const found = z.looseObject({ replacement: z.string().min(1).default('\u2581') }).safeParse(json)
      if (!found.success) throw new Unstreamable('a malformed decoder of type Metaspace')
      return [(token) => token.replaceAll(found.data.replacement, ' ')]
    }
    case 'Strip': {
      // Behind Fuse it works at the two ends of the whole text only.
      if (seen.fused) return []
      throw new Unstreamable('a decoder of type Strip that is not behind Fuse')
    }
    case 'Sequence': {
      const list = z.looseObject({ decoders: z.array(z.unknown()) }).safeParse(json)
      if (!list.success) throw new Unstreamable('a decoder of type Sequence without a list of decoders')
      return list.data.decoders.flatMap((decoder) => stepsOf(decoder, seen))
    }
  }
  throw new Unstreamable(`a decoder of type ${type}, which is not known here`)
}

/** Throws Unstreamable. */
export const decoderOf = ({
  decoder,
  tokens,
  added,
}: Pick<TokenizerFile, 'decoder' | 'tokens' | 'added'>): ((id: number) => Uint8Array) => {
  const steps = stepsOf(decoder, { fused: false, steps: 0, growth: 1 })
  const verbatim = new Map(added.map(({ id, content, special }) => [id, special ? NOTHING : utf8.encode(content)]))
  const known = new Map<number, Uint8Array>()
  return (id) => {
    const before = verbatim.get(id) ?? known.get(id)
    if (before !== undefined) return before
    const token = tokens.get(id)
    if (token === undefined) return NOTHING
    let out: string | Uint8Array = token
    for (const step of steps) if (typeof out === 'string') out = step(out)
    const bytes = typeof out === 'string' ? utf8.encode(out) : out
    known.set(id, bytes)
    return bytes
  }
}
