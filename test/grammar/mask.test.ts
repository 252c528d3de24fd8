import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Automaton, DEAD } from '../../src/grammar/automaton.ts'
import { gbnfRule } from '../../src/grammar/gbnf.ts'
import { openMatcher } from '../../src/grammar/index.ts'
import { maskOf } from '../../src/grammar/mask.ts'
import { networkOf } from '../../src/grammar/network.ts'
import { treeOf } from '../../src/grammar/vocabulary.ts'
import { allowedIds, BYTES, gbnf, grammarOf } from './helpers.ts'

const utf8 = (text: string): Uint8Array => Buffer.from(text)
const vocabularyOf = (tokens: readonly Uint8Array[]) => ({
  vocabSize: tokens.length,
  tokenizer: { bytesOf: (id: number) => tokens[id]! },
})

/** Some that share beginnings, are twice there, end inside a character, or have no bytes. */
const tokens = fc.array(
  fc.oneof(
    fc.string({ unit: fc.constantFrom('a', 'b', '"', '{', '}', ':', ' ', '1', 'é'), maxLength: 5 }).map(utf8),
    fc.uint8Array({ maxLength: 2 }),
  ),
  { minLength: 1, maxLength: 150 },
)
/** With these every answer can go on. */
const ALWAYS = ['"', '{', '}', '[', ']', ':', '{"', 'a', '"a"'].map(utf8)

describe('a mask', () => {
  test('allows the tokens whose bytes lead on, one by one', () => {
    const grammar = grammarOf({ type: 'jsonSchema', schema: { type: ['object', 'array', 'string'] } })
    let allowed = 0
    fc.assert(
      fc.property(
        tokens,
        fc.array(fc.nat()),
        fc.array(fc.nat({ max: 200 }), { maxLength: 3 }),
        (more, choices, given) => {
          const all = [...ALWAYS, ...more]
          const vocabulary = vocabularyOf(all)
          const ends = given.filter((id) => id < all.length)
          const path: Uint8Array[] = []
          const matcher = openMatcher(grammar, vocabulary, ends)
          const canFollow = (bytes: Uint8Array): boolean => {
            const bytewise = openMatcher(grammar, BYTES, [])
            return Buffer.concat([...path, bytes]).every((byte) => bytewise.accept(byte))
          }
          const whole = (): boolean => {
            try {
              JSON.parse(Buffer.concat(path).toString())
              return true
            } catch {
              return false
            }
          }
          for (const choice of choices) {
            const ids = allowedIds(matcher)
            const fitting = all.flatMap((bytes, id) =>
              (ends.includes(id) ? whole() : bytes.length > 0 && canFollow(bytes)) ? [id] : [],
            )
            expect(ids).toEqual(fitting)
            expect(matcher.mask().count).toBe(ids.length)
            const going = ids.filter((id) => !ends.includes(id))
            expect(matcher.over()).toBe(going.length > 0 ? null : whole() ? 'grammar' : 'blocked')
            allowed += ids.length
            if (going.length === 0) return
            const id = going[choice % going.length]!
            expect(matcher.accept(id)).toBe(true)
            path.push(all[id]!)
          }
        },
      ),
      { numRuns: 60 },
    )
    expect(allowed).toBeGreaterThan(300)
  })

  test('says when the vocabulary lacks what the grammar wants', () => {
    const matcher = openMatcher(gbnf('root ::= "ab"'), vocabularyOf([utf8('a'), utf8('c')]), [1])
    expect(matcher.over()).toBeNull()
    expect(matcher.accept(0)).toBe(true)
    expect(matcher.over()).toBe('blocked')
    expect(matcher.mask().count).toBe(0)
  })

  test('is the same however much of the automaton was forgotten', () => {
    const network = networkOf(
      gbnfRule('root ::= "[" (value ("," value)*)? "]"\nvalue ::= [0-9]{1,3} | root | "(" ([a-z] value?){0,20} ")"'),
    )
    const kept = new Automaton(network)
    const tree = treeOf(BYTES)
    let state = kept.start
    let forgetful = new Automaton(network)
    let other = forgetful.start
    for (const byte of utf8('[[12,(abc3d[4,5]e)],[],(x(y(z)))]')) {
      const mask = maskOf(forgetful, other, tree)
      expect(mask).toEqual(maskOf(kept, state, tree))
      expect(mask.count).toBeGreaterThan(0)
      state = kept.step(state, byte)
      other = forgetful.step(other, byte)
      const places = forgetful.placesOf(other)
      forgetful = new Automaton(network)
      other = forgetful.stateOf(places)
    }
    expect(kept.ended(state)).toBe(true)
    expect(state).not.toBe(DEAD)
  })

  test('of a grammar that is ambiguous without bounds costs no more than its bound, and what it allows can follow', () => {
    // Every character may belong to any of the parts: the places grow with the text.
    const grammar = gbnf('root ::= (.{1,1500}){1,1500}')
    const matcher = openMatcher(grammar, BYTES, [])
    let read = 0
    for (; read < 3000 && matcher.over() === null; read += 1) {
      const ids = allowedIds(matcher)
      expect(matcher.accept(ids[(7 * read) % ids.length]!)).toBe(true)
    }
    expect(read).toBeGreaterThan(50)
  }, 60_000)
})
