import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { gbnfRule } from '../../src/grammar/gbnf.ts'
import { fault, gbnf, reading, reads } from './helpers.ts'

/** Small grammars over a few letters, as text; `rules` names the rules that may be used. */
const parts = fc.letrec<{ part: string }>((tie) => ({
  part: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom('"a"', '"ab"', '"é"', '[ab]', '[^a]', '.', '""', 'one', 'two'),
    fc
      .tuple(tie('part'), fc.constantFrom('*', '+', '?', '{2}', '{1,}', '{0,2}'))
      .map(([part, count]) => `(${part})${count}`),
    fc.array(tie('part'), { minLength: 1, maxLength: 3 }).map((all) => all.join(' ')),
    fc.array(tie('part'), { minLength: 2, maxLength: 3 }).map((all) => `(${all.join(' | ')})`),
  ),
})).part

const grammars = fc
  .tuple(parts, parts, parts)
  .map(([root, one, two]) => `root ::= ${root}\none ::= "a" ${one} | "b"\ntwo ::= "a" ${two} | [é-ü]\n`)

describe('a grammar in GBNF', () => {
  test('reads what its definition says, followed word for word', () => {
    const seen = { ended: 0, open: 0, null: 0 }
    fc.assert(
      fc.property(
        grammars,
        fc.array(fc.string({ unit: fc.constantFrom('a', 'b', 'é', '😀'), maxLength: 6 }), {
          minLength: 5,
          maxLength: 5,
        }),
        (text, samples) => {
          const grammar = gbnf(text)
          const root = gbnfRule(text)
          for (const sample of samples) {
            const found = reading(grammar, sample)
            seen[`${found}`] += 1
            expect([sample, found === 'ended']).toEqual([sample, reads(root, sample)])
          }
        },
      ),
      { numRuns: 300 },
    )
    expect(Math.min(...Object.values(seen))).toBeGreaterThan(20)
  })

  test.each<[string, readonly string[], readonly string[]]>([
    ['root ::= "yes" | "no"', ['yes', 'no'], ['y', 'yesno', '']],
    ['# a comment\nroot ::= item ("," item)* # more\n\nitem ::=\n  [0-9]+ |\n  "x"', ['1', '12,x,3'], ['1,', ',1']],
    ['root ::= (\n  "a"\n  | "b"\n)+', ['abba'], ['c', '']],
    [
      'root ::= "\\n\\t\\"\\\\" [\\]\\-\\^x-z] "\\x41\\u00e9\\U0001F600"',
      ['\n\t"\\yAé😀', '\n\t"\\]Aé😀'],
      ['\n\t"\\wAé😀'],
    ],
    ['root ::= [^\\n]{2}', ['éx', '😀\t'], ['\nx', 'x']],
    ['root ::= "(" root ")" | ""', ['', '(())'], ['(', ')']],
    ['root ::= "a" root | "a"', ['a', 'a'.repeat(2000)], ['']],
    ['root ::= a* "b"\na ::= "a"?', ['b', 'aab'], ['a']],
    ['root ::= b\nroot-2 ::= "x"\nb ::= root-2 | "y"', ['x', 'y'], ['z']],
  ])('is read: %j', (text, right, wrong) => {
    for (const sample of right) expect([sample, reading(gbnf(text), sample)]).toEqual([sample, 'ended'])
    for (const sample of wrong) expect([sample, reading(gbnf(text), sample)]).not.toEqual([sample, 'ended'])
  })

  test.each<[string, RegExp]>([
    ['', /has no rule "root"/],
    ['roo ::= "a"', /has no rule "root"/],
    ['root = "a"', /expected "::=" behind "root", got "=", in line 1/],
    ['root ::= "a"\nroot ::= "b"', /rule "root" is there twice, in line 2/],
    ['root ::= x\ny ::= "a"', /there is no rule "x", in line 1/],
    ['root ::= "a', /it ends inside a text or a class/],
    ['root ::= "a\n"', /goes on over the end of a line/],
    ['root ::= [a', /it ends inside/],
    ['root ::= [z-a]', /a range of a class ends before it begins/],
    ['root ::= "\\q"', /"\\q" is no escape/],
    ['root ::= "\\xZZ"', /is no character; expected 2 hexadecimal digits/],
    ['root ::= "\\ud800"', /is no character/],
    ['root ::= ("a"', /expected "\)", got the end/],
    ['root ::= "a")', /expected the end of the line, got "\)"/],
    ['root ::= "a"{2,1}', /a count ends below its beginning/],
    ['root ::= "a"{x}', /expected a count as/],
    ['root ::= "a"{99999}', /a count is larger than 65536/],
    ['root ::= "a"{60000} "b"{60000}', /more than 65536 nodes/],
    [`root ::= ${'('.repeat(65)}"a"${')'.repeat(65)}`, /nested deeper than 64 levels/],
    [`root ::= "a"${'*'.repeat(70)}`, /more than 64 repetitions/],
    [`root ::= "${'a'.repeat(66_000)}"`, /has 66011 bytes, expected at most 65536/],
    ['root ::= root "a" | "b"', /rule "root" leads to itself before it has read a character \(left recursion\)/],
    ['root ::= a\na ::= "x"? b\nb ::= a "y" | "z"', /leads to itself/],
    ['root ::= "a" root', /No answer fits the grammar/],
    [`root ::= ${'"a"? '.repeat(5000)}`, /stands at more than 4096 places before its first character/],
  ])('is refused with a sentence: %#', (text, sentence) => {
    expect(fault(gbnf(text))).toMatch(sentence)
  })

  test('costs what its size allows, however often it repeats what repeats', () => {
    const nested = 'root ::= ((("a"{0,1000} "b"){0,1000} "c"){0,1000} "d"){0,1000}'
    expect(reading(gbnf(nested), 'aabcbcd')).toBe('ended')
  })

  test('goes no deeper than 256 unfinished rules', () => {
    const grammar = gbnf('root ::= "(" root ")" | "x"')
    const nested = (depth: number): string => `${'('.repeat(depth)}x${')'.repeat(depth)}`
    expect(reading(grammar, nested(256))).toBe('ended')
    expect(reading(grammar, '('.repeat(257))).toBeNull()
  })
})
