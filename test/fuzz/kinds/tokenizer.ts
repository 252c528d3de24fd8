/** tokenizer.json of every kind: opened, and made to read texts whole, cut into pieces, and longer than its windows. */
import { join } from 'node:path'
import { ContinuoError } from '../../../src/errors.ts'
import { openTokenizer } from '../../../src/models/tokenizer/index.ts'
import { MOST_HELD } from '../../../src/models/tokenizer/limits.ts'
import type { OpenKind } from '../kind.ts'
import { damagedText, type Random } from '../mutate.ts'
import { goodTokenizers, TEXTS, writeFiles } from '../packages.ts'

const ATOMS = ['a', '[a-z]', '[^c]', '.', '\\s', '\\p{L}', '\\p{N}', ' ?', '(?!b)', '(?=a)', "(?i:'s)", '🌊']
const QUANTIFIERS = ['', '', '?', '*', '+', '{2}', '{1,3}', '{1,40}', '{64}', '{2,}', '{1,999999999}']

/** A pattern that nobody would write: nested, repeated, with many ways to the same end. */
const oddPattern = (random: Random, depth = 0): string => {
  const parts = Array.from({ length: 1 + random.below(4) }, () => {
    const atom = depth < 4 && random.next() < 0.35 ? `(?:${oddPattern(random, depth + 1)})` : random.pick(ATOMS)
    return atom + random.pick(QUANTIFIERS)
  })
  return random.next() < 0.4 ? `${parts.join('')}|${oddPattern(random, depth + 1)}` : parts.join('')
}

const withPattern = (text: string, pattern: string): string =>
  JSON.stringify({
    ...JSON.parse(text),
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false },
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
  })

const LONG = ['a', ' ', 'ab', 'a1 '].map((unit) => unit.repeat(Math.ceil((1.5 * MOST_HELD) / unit.length)))

export const open: OpenKind = async (folder) => {
  const files = goodTokenizers()
  const dir = join(folder, 'tokenizer')
  return {
    bases: [...files.keys()],
    make: (base, random) => {
      const text = files.get(base)!
      return random.next() < 0.3 ? Buffer.from(withPattern(text, oddPattern(random))) : damagedText(text, random)
    },
    run: async (_, input) => {
      writeFiles(dir, { 'tokenizer.json': input })
      const { tokenizer } = await openTokenizer(dir, { vocabSize: 2000, config: {}, warn: () => {} })
      let ended = 'read'
      const read = (pieces: readonly string[]): void => {
        try {
          let held = ''
          const ids: number[] = []
          for (const piece of pieces) {
            const pushed = tokenizer.push(held, piece)
            held = pushed.held
            ids.push(...pushed.ids)
          }
          ids.push(...tokenizer.flush(held))
          if (ids.some((id) => !Number.isInteger(id) || id < 0 || id >= tokenizer.vocabSize))
            throw new Error(`An id outside of 0 to ${tokenizer.vocabSize - 1} among ${ids.length}.`)
          for (const id of new Set(ids)) tokenizer.bytesOf(id)
        } catch (error) {
          if (!(error instanceof ContinuoError) || error.code === 'INTERNAL') throw error
          ended = `opened, then ${error.code}`
        }
      }
      for (const text of [...TEXTS, ...LONG]) read([text])
      for (const text of TEXTS) read([...text])
      return ended
    },
    close: async () => {},
  }
}
