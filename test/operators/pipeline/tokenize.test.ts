import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Model } from '../../../src/engine/types.ts'
import type { WorkItem } from '../../../src/engine/work.ts'
import { openModel } from '../../../src/models/open.ts'
import { byteTokenizer } from '../../../src/models/tokenizer/index.ts'
import type { Tokenizer } from '../../../src/models/tokenizer/types.ts'
import { advance } from '../../../src/operators/advance/advance.ts'
import { initialSession, type SessionState } from '../../../src/operators/advance/session-state.ts'
import { tokenizeEvent } from '../../../src/operators/pipeline/tokenize.ts'
import { validateRecord } from '../../../src/operators/pipeline/validate.ts'
import type { Rejected, Tokenized, Valid } from '../../../src/operators/types.ts'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { fallback, open as openFixture } from '../../models/tokenizer/fixtures.ts'
import { demoModel, event } from '../harness.ts'

const valid = (session: string, chunk: ChunkInput, offset = 0): Valid | Rejected => {
  const { key, value } = event(session, chunk)
  return validateRecord(
    { topic: 'continuo.chunks', partition: 0, offset, timestamp: 0, key, value, headers: [] },
    { format: 'json', vocabSize: 256, readsText: true },
  )
}

let model: Model
beforeAll(async () => {
  model = await openModel(demoModel, { threads: 1 })
})
afterAll(() => model.close())

/** One event after the other: what each becomes, and then what it does to its session. */
const through = (...items: readonly (readonly [session: string, chunk: ChunkInput])[]) =>
  throughWith(byteTokenizer(), ...items)

const throughWith = async (
  tokenizer: Tokenizer,
  ...items: readonly (readonly [session: string, chunk: ChunkInput])[]
) => {
  const engine = {
    model,
    tokenizer,
    // What the model reads does not matter here, and it has 256 tokens.
    submit: async (item: WorkItem) =>
      (await model.process([{ ...item, tokens: item.tokens.map((id) => id % model.vocabSize) }]))[0]!,
  }
  const sessions = new Map<string, SessionState>()
  const all: (Tokenized | Rejected)[] = []
  for (const [offset, [id, chunk]] of items.entries()) {
    const event = valid(id, chunk, offset)
    if (event.kind === 'rejected') throw new Error(event.reason)
    const out = tokenizeEvent(event, sessions.get(id)?.head, tokenizer, model)
    all.push(out)
    if (out.kind === 'rejected') continue
    const fresh = !sessions.has(id)
    const session = sessions.get(id) ?? initialSession(out, model, model.createContext())
    sessions.set(id, session)
    for await (const _ of advance(session, out, fresh, engine));
  }
  for (const { context } of sessions.values()) context.close()
  return all
}

const idsOf = (item: Tokenized | Rejected | undefined): number[] | string =>
  item?.kind === 'tokenized' ? [...item.ids] : (item?.reason ?? 'nothing')

describe('tokenize', () => {
  test('holds back half a character, of each session its own, and joins it with what follows', async () => {
    const items = await through(
      ['a', { type: 'text', text: 'x\ud834' }],
      ['b', { type: 'text', text: 'y\ud83d' }],
      ['a', { type: 'text', text: '\udd1e' }],
      ['b', { type: 'text', text: '\ude00' }],
    )
    expect(items.map((item) => (item.kind === 'tokenized' ? item.held : null))).toEqual(['\ud834', '\ud83d', '', ''])
    expect(items.map(idsOf)).toEqual([[120], [121], [...Buffer.from('𝄞')], [...Buffer.from('😀')]])
  })

  test.each([
    ['generate', { type: 'generate', requestId: 'r', maxTokens: 1 }],
    ['boundary', { type: 'boundary' }],
    ['close', { type: 'close' }],
  ] as const)('%s flushes what was held back', async (_, chunk) => {
    const [, flushed] = await through(['a', { type: 'text', text: '\ud834' }], ['a', chunk])
    expect(idsOf(flushed)).toEqual([0xef, 0xbf, 0xbd])
  })

  test('ids flush it too and come after it; open lets it be', async () => {
    const [, opened, read] = await through(
      ['a', { type: 'text', text: '\ud834' }],
      ['a', { type: 'open', surprisal: true }],
      ['a', { type: 'tokens', tokens: [7, 8] }],
    )
    expect(opened).toMatchObject({ kind: 'tokenized', held: '\ud834' })
    expect(idsOf(read)).toEqual([0xef, 0xbf, 0xbd, 7, 8])
  })

  test('a closed session takes nothing but open, and says so; what was refused leaves no trace', async () => {
    const items = await through(
      ['a', { type: 'text', text: 'once' }],
      ['a', { type: 'close' }],
      ['a', { type: 'text', text: 'late\ud834' }],
      ['a', { type: 'open' }],
      ['a', { type: 'text', text: '\udd1e' }],
    )
    expect(items.map(({ kind }) => kind)).toEqual(['tokenized', 'tokenized', 'rejected', 'tokenized', 'tokenized'])
    expect(idsOf(items[2])).toMatch(/^Session "a" is closed; a "text" event arrived\. Send "open" first/)
    // The half character of the refused text is not there: the other half stands alone.
    expect(idsOf(items[4])).toEqual([0xef, 0xbf, 0xbd])
  })

  test('there is nothing to continue before the first token, nor after a reset', async () => {
    const generate = { type: 'generate', requestId: 'r', maxTokens: 1 } as const
    const items = await through(
      ['a', generate],
      ['a', { type: 'text', text: 'x' }],
      ['a', generate],
      ['a', { type: 'boundary', reset: false }],
      ['a', generate],
      ['a', { type: 'boundary', reset: true }],
      ['a', generate],
    )
    expect(items.map(({ kind }) => kind === 'tokenized')).toEqual([false, true, true, true, true, true, false])
    expect(idsOf(items[6])).toMatch(/nothing to continue\. Send text before "generate"\.$/)
  })
})

describe('a tokenizer that begins a context with a token', () => {
  const run = async (...chunks: readonly ChunkInput[]) => {
    const tokenizer = await openFixture(fallback())
    const items = await throughWith(tokenizer, ...chunks.map((chunk) => ['a', chunk] as const))
    return items.map((item) => (item.kind === 'tokenized' ? [...item.ids] : item.reason))
  }
  const text = { type: 'text', text: 'the' } as const
  const generate = { type: 'generate', requestId: 'r', maxTokens: 1 } as const

  test('does so once, also across generations, boundaries and ids', async () => {
    const [, first, , second, , third] = await run(text, generate, text, { type: 'boundary' }, text, { type: 'close' })
    const alone = first as number[]
    expect(alone[0]).toBe(1)
    expect(second).toEqual(alone.slice(1))
    expect(third).toEqual(alone.slice(1))
    const [, afterIds] = await run({ type: 'tokens', tokens: [7] }, text, generate)
    expect(afterIds).toEqual([])
    const [, , flushed] = await run({ type: 'tokens', tokens: [7] }, text, generate)
    expect(flushed).toEqual(alone.slice(1))
  })

  test('and again where the memory is new: after a reset, and after close and open', async () => {
    const reset = await run(text, { type: 'boundary', reset: true }, text, generate)
    expect(reset[3]).toEqual(reset[1])
    const reopened = await run(text, { type: 'close' }, { type: 'open' }, text, generate)
    expect(reopened[4]).toEqual(reopened[1])
    // A boundary before anything was read begins nothing.
    const [, , late] = await run({ type: 'boundary' }, text, generate)
    expect((late as number[])[0]).toBe(1)
  })
})
