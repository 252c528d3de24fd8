import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type ModelPackage, openPackage } from '../../src/models/open.ts'
import { watchModel } from '../../src/places.ts'
import { fieldOf } from '../../src/watch/field.ts'
import { createSessions, type Read, type SessionOptions } from '../../src/watch/sessions.ts'

let opened: ModelPackage
beforeAll(async () => {
  opened = await openPackage(watchModel, { threads: 1 })
})
afterAll(() => opened.model.close())

const told = ({ session, line, number, bits, novelty }: Read) => ({
  session,
  line: Buffer.from(line).toString(),
  number,
  bits: [...bits],
  novelty: { ...novelty, pattern: null, words: novelty.words() },
})
/** What is told of these lines, fed in pieces of so many. */
const readAll = async (lines: readonly string[], pieces: readonly number[], options: SessionOptions) => {
  const sessions = createSessions(opened.model, opened.tokenizer!, options)
  const all: ReturnType<typeof told>[] = []
  let at = 0
  for (const size of [...pieces, lines.length]) {
    const some = lines.slice(at, at + size).map((line) => Buffer.from(line))
    for await (const read of sessions.read(some)) all.push(told(read))
    at += some.length
  }
  return { all, sessions }
}

const line = fc.tuple(fc.constantFrom('a', 'b', 'c', 'd'), fc.constantFrom('came in', 'left', 'failed 17 times', 'é'))
const field = fieldOf('1')

test('each session reads its own lines alone, however they are mixed and cut', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(line, { minLength: 1, maxLength: 40 }),
      fc.array(fc.nat(9), { maxLength: 8 }),
      async (drawn, pieces) => {
        const lines = drawn.map((words) => words.join(' '))
        const { all, sessions } = await readAll(lines, pieces, { field })
        expect(all.map((each) => each.line)).toEqual(lines)
        expect(all.map(({ number }) => number)).toEqual(lines.map((_, i) => i + 1))
        const names = new Set(drawn.map(([name]) => name))
        expect(sessions.begun).toBe(names.size)
        expect(sessions.forgotten).toBe(0)
        for (const name of names) {
          const alone = await readAll(
            lines.filter((text) => text.startsWith(name)),
            [],
            {},
          )
          const mixed = all.filter(({ session }) => session === name)
          expect(mixed.map(({ bits }) => bits)).toEqual(alone.all.map(({ bits }) => bits))
          const scores = ({ novelty }: ReturnType<typeof told>) => [novelty.structure, novelty.values, novelty.seen]
          expect(mixed.map(scores)).toEqual(alone.all.map(scores))
        }
      },
    ),
    { numRuns: 15 },
  )
})

test('of more sessions than are remembered those that were silent for longest begin anew', async () => {
  const lines = ['a 1', 'b 1', 'a 2', 'c 1', 'a 3', 'b 2']
  const { all, sessions } = await readAll(lines, [2, 1, 1, 1], { field, most: 2 })
  expect([sessions.begun, sessions.forgotten]).toEqual([4, 2])
  expect(all.map(({ novelty }) => novelty.seen)).toEqual([0, 0, 1, 0, 2, 0])
  // The same where all of them come at once.
  const atOnce = await readAll(lines, [], { field, most: 2 })
  expect(atOnce.all.map((each) => each.line)).toEqual(lines)
  expect(atOnce.sessions.begun - atOnce.sessions.forgotten).toBe(2)
})
