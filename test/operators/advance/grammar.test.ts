/** Requests with a grammar: what comes out fits, wherever the worker stops, and whoever generates beside it. */
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { faultOfGrammar } from '../../../src/grammar/index.ts'
import { byteTokenizer } from '../../../src/models/tokenizer/bytes.ts'
import { SessionManager } from '../../../src/sessions/manager.ts'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { reading, schemaGrammar } from '../../grammar/helpers.ts'
import { judge, schemas } from '../../grammar/schemas.ts'
import { type Bench, benches, event, interrupted, verified } from '../harness.ts'

type Generate = Extract<ChunkInput, { type: 'generate' }>

const { use, model } = benches()

const read = (session: string, text: string) => event(session, { type: 'text', text })
const asked = (session: string, requestId: string, more: Partial<Generate>) =>
  event(session, { type: 'generate', requestId, maxTokens: 400, ...more })
const answer = async (bench: Bench, session: string, requestId: string) => {
  const runs = (await bench.generated(session)).filter((run) => run.requestId === requestId)
  return { text: runs.map(({ text }) => text).join(''), finish: runs.at(-1)?.finish, runs }
}

const logbook = {
  type: 'object',
  properties: {
    ship: { type: 'string', maxLength: 12 },
    cargo: { enum: ['salt', 'coal', 'letters'] },
    crew: { type: 'integer', minimum: 3, maximum: 40 },
    ports: { type: 'array', items: { type: 'string', pattern: '^[A-Z][a-z]{2,6}$' }, minItems: 1, maxItems: 3 },
  },
  required: ['ship', 'cargo', 'crew', 'ports'],
  additionalProperties: false,
}
const bound = { grammar: { type: 'jsonSchema', schema: logbook } } as const

test('an answer that its grammar ends is valid, at any temperature and for any schema', { tags: 'slow' }, async () => {
  const manager = new SessionManager(model(), { tokenizer: byteTokenizer() })
  const parent = manager.createSession('parent')
  await manager.process(parent, 'The answer as JSON: ')
  let ended = 0
  let at = 0
  await fc.assert(
    fc.asyncProperty(schemas, fc.constantFrom(0, 0.5, 1, 1.7), fc.nat(), async (schema, temperature, seed) => {
      const grammar = schemaGrammar(schema)
      if (faultOfGrammar(grammar) !== null) return
      at += 1
      const session = await manager.fork(parent, `s${at}`)
      const { text, finish } = await manager.generate(session, { maxTokens: 200, temperature, seed, grammar })
      manager.closeSession(session)
      // What was cut may be whole: a number, for example.
      if (finish === 'length') expect([text, reading(grammar, text)]).not.toEqual([text, null])
      else {
        expect(finish).toBe('grammar')
        expect([text, judge(schema)(JSON.parse(text))]).toEqual([text, null])
        ended += 1
      }
    }),
    { numRuns: 60 },
  )
  expect(ended).toBeGreaterThan(20)
  await manager.close()
})

test('a request ends where its grammar does, one token before its last as well as on it', () =>
  use(async (bench) => {
    const word = { type: 'gbnf', text: 'root ::= "harbour"' } as const
    await bench.feed(
      read('s', 'The '),
      asked('s', 'longer', { grammar: word, temperature: 2 }),
      asked('s', 'exact', { grammar: word, maxTokens: 7, run: 3 }),
      asked('s', 'cut', { grammar: word, maxTokens: 6 }),
      asked('s', 'stop', { grammar: word, stop: ['rb'] }),
      asked('s', 'nothing', { grammar: { type: 'regex', pattern: '' } }),
      asked('s', 'end', { grammar: { type: 'regex', pattern: 'a+' }, stopTokens: [97], temperature: 0 }),
      asked('s', 'ends', { grammar: { type: 'regex', pattern: 'a{3}[^a]*' }, stopTokens: [32], maxTokens: 9 }),
    )
    await bench.settle()
    const all = await Promise.all(
      ['longer', 'exact', 'cut', 'stop', 'nothing', 'end'].map(async (id) => {
        const { text, finish, runs } = await answer(bench, 's', id)
        return [id, text, finish, runs.map(({ ids }) => ids.length)]
      }),
    )
    expect(all).toEqual([
      ['longer', 'harbour', 'grammar', [7]],
      ['exact', 'harbour', 'grammar', [3, 3, 1]],
      ['cut', 'harbou', 'length', [6]],
      ['stop', 'harb', 'stop', [4]],
      ['nothing', '', 'grammar', [0]],
      // An id that ends the request is none of the grammar's tokens.
      ['end', '', 'blocked', [0]],
    ])
    expect(['length', 'eos']).toContain((await answer(bench, 's', 'ends')).finish)
    expect((await answer(bench, 's', 'ends')).text).toMatch(/^aaa[^a ]*$/)
    await verified(bench)
  }))

test('the likeliest token that the grammar allows is drawn first, and its probability is the model’s', () =>
  use(async (bench) => {
    const text = 'The harbour master '
    await bench.feed(
      read('s', text),
      asked('s', 'r', { grammar: { type: 'regex', pattern: '[QXZ]{4}' }, temperature: 0, topLogprobs: 2 }),
    )
    await bench.settle()
    const context = model().createContext()
    await model().process([{ context, tokens: Int32Array.from(Buffer.from(text)), nats: false }])
    for (const run of (await answer(bench, 's', 'r')).runs)
      for (const [at, id] of run.ids.entries()) {
        const logits = [...(await model().logits(context))]
        const best = [...Buffer.from('QXZ')].sort((a, b) => logits[b]! - logits[a]! || a - b)[0]
        expect(id).toBe(best)
        expect(run.topLogprobs![at]![0]!.id).toBe(logits.indexOf(Math.max(...logits)))
        const [fed] = await model().process([{ context, tokens: Int32Array.of(id), nats: true }])
        expect(run.logprobs[at]).toBe(-fed!.nats[0]!)
      }
    context.close()
  }))

test(
  'stops in the middle, snapshots at every step, contexts that leave and other sessions change no token',
  { tags: 'slow' },
  () =>
    use(async (bench) => {
      const events = (id: string) => [
        read(id, 'Write the log of a ship as JSON. '),
        asked(id, 'p', { ...bound, temperature: 0.9, seed: 3, run: 5 }),
        read(id, ' Once more: '),
        asked(id, 'q', { ...bound, seed: 4, frequencyPenalty: 0.4, run: 2 }),
        asked(id, 'r', { grammar: { type: 'regex', pattern: '([a-z]+ )*' }, maxTokens: 60, seed: 5, run: 3 }),
      ]
      await bench.feed(...events('calm'))
      await bench.settle({ snapshotEvery: 1_000_000 })
      await bench.feed(
        ...events('a'),
        ...events('b'),
        read('mate', 'x'),
        asked('mate', 'm', { maxTokens: 150, seed: 9 }),
        event('fork', { type: 'open', from: { session: 'a' } }),
        asked('fork', 'f', { ...bound, seed: 8 }),
        asked('a', 'f', { ...bound, seed: 8 }),
      )
      const { stops, inside } = await interrupted(bench, 3, 2, 120_000)
      expect(stops).toBeGreaterThan(2)
      expect(inside).toBeGreaterThan(0)
      const told = async (id: string) =>
        (await bench.generated(id))
          .filter(({ requestId }) => requestId !== 'f')
          .map(({ session: _, cause: __, ...run }) => run)
      const calm = await told('calm')
      for (const id of ['a', 'b']) expect(await told(id)).toEqual(calm)
      for (const id of ['p', 'q']) {
        const { text, finish } = await answer(bench, 'calm', id)
        expect(finish).toBe('grammar')
        expect(judge(logbook)(JSON.parse(text))).toBeNull()
      }
      expect((await answer(bench, 'fork', 'f')).text).toBe((await answer(bench, 'a', 'f')).text)
      await verified(bench)
    }),
)

test('a grammar that cannot be used is a dead letter with its reason, and generates nothing', () =>
  use(async (bench) => {
    const deep = `${'{"items":'.repeat(20_000)}{}${'}'.repeat(20_000)}`
    const request = (grammar: string): string =>
      `{"type":"generate","requestId":"r","maxTokens":5,"grammar":${grammar}}`
    const grammars: readonly (readonly [string, RegExp])[] = [
      ['{"type":"jsonSchema","schema":{"not":{}}}', /the keyword "not" is not among those/],
      ['{"type":"jsonSchema","schema":[]}', /"grammar.schema": expected a JSON Schema/],
      ['{"type":"jsonSchema"}', /"grammar.schema": expected a JSON Schema/],
      [`{"type":"jsonSchema","schema":${deep}}`, /nested deeper than 64 levels/],
      ['{"type":"jsonSchema","schema":{"type":"string","minLength":100000000}}', /more than 65536 nodes/],
      ['{"type":"gbnf","text":"root ::= root"}', /No answer fits/],
      ['{"type":"gbnf","text":"root ::="}', /none/],
      ['{"type":"lark","text":"start: x"}', /"grammar.type"/],
      ['{"type":"regex","pattern":"("}', /is no regular expression/],
      ['{"type":"json","version":2}', /"grammar.version": Invalid input: expected 1/],
      ['{"type":"json","more":1}', /"grammar": Unrecognized key/],
    ]
    const usable = 6
    await bench.feed(read('s', 'x'), ...grammars.map(([grammar]) => event('s', request(grammar))))
    await bench.settle()
    const reasons = (await bench.records('deadletters')).map(
      ({ headers }) =>
        headers.filter(([name]) => name === 'continuo-reason').map(([, content]) => Buffer.from(content).toString())[0],
    )
    const refused = grammars.filter((_, at) => at !== usable)
    expect(reasons).toHaveLength(refused.length)
    for (const [at, [grammar, sentence]] of refused.entries())
      expect([grammar.slice(0, 80), reasons[at]]).toEqual([grammar.slice(0, 80), expect.stringMatching(sentence)])
    expect((await bench.generated('s')).map(({ ids, finish }) => [ids, finish])).toEqual([[[], 'grammar']])
    await verified(bench)
  }))
