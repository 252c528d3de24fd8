/**
 * What a mask costs: `npx node bench/masks.ts`. Processor time of this process for each token of an answer, fresh
 * (states and masks are found) and again (they are kept), for the byte tokenizer and for a vocabulary of 150,000
 * made-up pieces of words. Best of several rounds.
 */

import { openMatcher } from '../src/grammar/index.ts'
import type { Vocabulary } from '../src/grammar/vocabulary.ts'
import { byteTokenizer } from '../src/models/tokenizer/bytes.ts'
import { type GrammarInput, grammar } from '../topics/chunks.ts'
import { parseArgs } from './options.ts'

parseArgs()

const LETTERS = 'eeeeeeeeeettttttttaaaaaaaooooooiiiiiinnnnnsssssshhhhrrrrddddllllccuummwwffggyyppbbvk'

/** Bytes, marks of JSON with their neighbours, and pieces of words by the frequency of letters. */
const pieces = (count: number): Vocabulary => {
  let seed = 1
  const below = (n: number): number => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0
    return Math.floor((seed / 2 ** 32) * n)
  }
  const marks = ['{"', '"}', '": "', '",', '", "', '"},', '\n  ', '    ', '":', ' {', '[]', 'true', 'false', ' null']
  const seen = new Set(marks)
  while (seen.size < count - 256) {
    const length = 1 + below(9)
    const letters = Array.from({ length }, () => LETTERS[below(LETTERS.length)]).join('')
    seen.add(
      below(10) === 0
        ? String.fromCodePoint(0x4e00 + below(5000), 0x4e00 + below(5000))
        : (below(2) === 0 ? ' ' : '') + letters,
    )
  }
  const tokens = [
    ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
    ...[...seen].map((text) => Buffer.from(text)),
  ]
  return { vocabSize: tokens.length, tokenizer: { bytesOf: (id) => tokens[id]! } }
}

const cases: readonly (readonly [string, GrammarInput, string])[] = [
  [
    'JSON',
    { type: 'json' },
    '{"name": "Aria", "age": 12, "tags": ["x", "yy", {"z": null}], "note": "hello world of things"}',
  ],
  [
    'a schema with a bounded text',
    { type: 'jsonSchema', schema: { properties: { note: { type: 'string', maxLength: 200 } }, required: ['note'] } },
    '{"note": "hello world of things that are in a list of things"}',
  ],
]

const microseconds = (run: () => void): number => {
  const before = process.cpuUsage()
  run()
  return process.cpuUsage(before).user
}

for (const vocabulary of [{ vocabSize: 256, tokenizer: byteTokenizer() }, pieces(150_000)])
  for (const [name, given, text] of cases) {
    const best = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]
    for (let round = 0; round < 6; round += 1) {
      // Another version of the text of the grammar is another grammar: nothing is kept of it.
      const bound = grammar.parse(
        given.type === 'jsonSchema' ? { ...given, schema: { ...(given.schema as object), title: `${round}` } } : given,
      )
      for (const again of [0, 1]) {
        const matcher = openMatcher(bound, vocabulary, [])
        matcher.mask()
        const bytes = Buffer.from(text)
        const spent = microseconds(() => {
          for (const byte of bytes) {
            matcher.accept(byte)
            matcher.mask()
          }
        })
        if (again === 1 || round === 0 || given.type === 'jsonSchema')
          best[again] = Math.min(best[again]!, spent / bytes.length)
      }
    }
    console.log(
      `${vocabulary.vocabSize} tokens, ${name}: ${best[0]!.toFixed(1)} µs a token fresh, ${best[1]!.toFixed(1)} µs again`,
    )
  }
