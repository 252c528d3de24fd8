/** The door for sessions from outside: what a worker could not go on with does not pass, whoever made its checksums. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ContextBroken } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import { codeOf, messageOf } from '../../../src/errors.ts'
import { openPackage } from '../../../src/models/open.ts'
import type { Tokenizer } from '../../../src/models/tokenizer/types.ts'
import { admit } from '../../../src/operators/sessions/admit.ts'
import { SessionManager } from '../../../src/sessions/manager.ts'
import { type Head, seal } from '../../../src/state/head.ts'
import { LARGEST_IMPORTED_PULSE } from '../../../src/state/head-rules.ts'
import { withoutHistory } from '../../../src/state/history.ts'
import { open } from '../../engine/helpers.ts'
import { randomIds } from '../../models/decoder-suite.ts'
import { SETTINGS, writeSetting } from '../../models/outer-memory/outer-memory-settings.ts'
import { type ForgedTensors, type Forgery, forged, putNumbers } from '../../sessions/forged.ts'
import { demoModel } from '../harness.ts'
import { enormous } from '../planting.ts'

let model: Model
let tokenizer: Tokenizer | null
let manager: SessionManager
let blob: Uint8Array
beforeAll(async () => {
  ;({ model, tokenizer } = await openPackage(demoModel, { threads: 2 }))
  manager = new SessionManager(model, { tokenizer, verifyWeights: false })
  const session = manager.createSession('book')
  await manager.process(session, 'The keeper wrote it down. ')
  await manager.generate(session, { maxTokens: 20, seed: 5 })
  blob = await manager.checkpointSession(session)
})
afterAll(async () => {
  await manager.close()
  model.close()
})

const atPulse =
  (pulse: number) =>
  (head: Head): Head => ({
    ...head,
    cursor: { ...head.cursor, pulse, rng: pulse },
    conductor: { ...head.conductor, globalStep: pulse },
    totals: { ...head.totals, tokens: pulse - head.totals.generated },
    span: { ...head.span, fromPulse: pulse },
  })
const totals = (part: Partial<Head['totals']>): Forgery => ({
  head: (head) => ({ ...head, totals: { ...head.totals, ...part } }),
})
const span = (part: Partial<Head['span']>): Forgery => ({
  head: (head) => ({ ...head, span: { ...head.span, ...part } }),
})
const cursor = (part: Partial<Head['cursor']>): Forgery => ({
  head: (head) => ({ ...head, cursor: { ...head.cursor, ...part } }),
})
const generation = (part: Partial<NonNullable<Head['generation']>>): Forgery => ({
  head: (head) => ({
    ...head,
    cursor: { ...head.cursor, complete: false, token: 40 },
    generation: { index: 16, unfinished: '', tail: '', ...part },
  }),
})

const hostile: Readonly<Record<string, readonly [Forgery, RegExp]>> = {
  'a clock at the end of what JSON can count': [
    { head: atPulse(2 ** 53 - 1) },
    /may stand at 4503599627370496 \(2\^52\)/,
  ],
  'a clock just beyond the bound': [{ head: atPulse(LARGEST_IMPORTED_PULSE + 1) }, /stands at pulse 4503599627370497/],
  'a clock beyond JSON': [{ head: atPulse(2 ** 60) }, /has no readable header/],
  'two pulses': [cursor({ pulse: 5 }), /Stream\/model pulse mismatch: stream at pulse 5/],
  'a draw counter of its own': [cursor({ rng: 5 }), /pulse mismatch/],
  'a generation in a finished record': [
    { head: (head) => ({ ...head, generation: { index: 16, unfinished: '', tail: '' } }) },
    /a generation is in progress at token 16, and its record is finished/,
  ],
  'a generation before its first token': [generation({ index: 0 }), /in progress at token 0/],
  'a generation longer than its record': [generation({ index: 41 }), /at token 41, after 40 tokens of its record/],
  'an unfinished character of a megabyte': [generation({ unfinished: 'AAAA'.repeat(250_000) }), /more than 3 bytes/],
  'a tail longer than any stop string': [generation({ tail: 'AAAA'.repeat(300) }), /longer than any stop string/],
  'sums that do not give the clock': [totals({ tokens: 3 }), /its sums count 3 tokens read and 20 generated/],
  'more predictions than tokens': [totals({ predictions: 10 ** 6 }), /cannot have been predicted/],
  'a surprisal that no tokens can have': [totals({ nats: 1e308 }), /1e\+308 nats cannot be the surprisal of/],
  'an observation of a billion tokens': [
    span({ tokens: 10 ** 9 }),
    /1000000000 tokens is in progress in a finished record/,
  ],
  'a list of surprisals that nobody asked for': [
    span({ surprisal: Array(100_000).fill(1) }),
    /lists the surprisal of 100000/,
  ],
  'held text of 5 MB': [cursor({ held: 'y'.repeat(5_000_000) }), /holds back 5000000 characters/],
  'an origin after the clock': [
    { head: (head) => ({ ...head, conductor: { ...head.conductor, origin: head.conductor.globalStep + 1 } }) },
    /pulse mismatch/,
  ],
  'a session that was set aside': [
    {
      head: (head) => ({
        ...head,
        status: 'stopped',
        stopped: { cause: 'computation', reason: 'It stopped.', offset: 3 },
      }),
    },
    /It stopped\. There is no memory to go on with/,
  ],
  'a status without its reason': [{ head: (head) => ({ ...head, status: 'stopped' }) }, /no memory to go on with/],
  'a state whose next token is not finite': [{ state: enormous }, /with the next token its state stops being finite/],
  'a tensor too many': [
    { header: (header) => ({ ...header, more: { dtype: 'F32', shape: [1], data_offsets: [0, 4] } }) },
    /has a tensor "more", which the model's layout does not know/,
  ],
  'archived blocks that its model cannot have': [
    { head: (head) => ({ ...head, archived: 1 }) },
    /it counts 1 archived blocks, and the model has no external memory/,
  ],
  'a member too many': [{ head: (head) => ({ ...head, evil: 1 }) }, /has no readable header/],
}

describe('a session in a file', () => {
  it('is admitted as it is', async () => {
    expect((await admit(blob, model, tokenizer)).head.session).toBe('book')
    expect((await admit(forged(blob, {}), model, tokenizer)).head.session).toBe('book')
    expect(
      (await admit(forged(blob, { head: atPulse(LARGEST_IMPORTED_PULSE) }), model, tokenizer)).head.cursor.pulse,
    ).toBe(LARGEST_IMPORTED_PULSE)
  })

  it.each(Object.keys(hostile))('is refused with %s', async (name) => {
    const [forgery, sentence] = hostile[name]!
    const refused = await admit(forged(blob, forgery), model, tokenizer).catch((error: unknown) => error)
    expect(messageOf(refused)).toMatch(sentence)
    expect(['REFUSED', 'INVALID']).toContain(codeOf(refused))
    expect(await manager.resumeSession(forged(blob, forgery), { id: 'copy' }).catch(codeOf)).toBe(codeOf(refused))
    expect(manager.listSessions()).toHaveLength(1)
  })

  it('is refused where its held text is more than the tokenizer can read', async () => {
    const held = forged(blob, cursor({ held: '\udc01x' }))
    const broken: Tokenizer = {
      ...tokenizer!,
      flush: () => {
        throw new RangeError('no such mark')
      },
    }
    await expect(admit(held, model, broken)).rejects.toThrow(/cannot read the text that is held back \(no such mark\)/)
    await expect(admit(held, model, null)).rejects.toThrow(/only its tokenizer can read/)
  })
})

describe('a session with an external memory, in a file', () => {
  const archivedAs = (archived: number): Forgery => ({ head: (head) => ({ ...head, archived }) })
  /** A session of 100 tokens in blocks of 8, of which 10 are archived. */
  const use = async (claim: (model: Model, blob: Uint8Array) => Promise<void>): Promise<void> => {
    const outer = await open(writeSetting(SETTINGS[0]!).folder, { threads: 1, keepPacked: false })
    const sessions = new SessionManager(outer, { verifyWeights: false })
    try {
      sessions.createSession('s')
      await sessions.process('s', randomIds(100, 27, 5))
      await claim(outer, await sessions.checkpointSession('s'))
    } finally {
      await sessions.close()
    }
  }

  it('is admitted as it is', () =>
    use(async (outer, file) => {
      expect((await admit(forged(file, archivedAs(10)), outer, null)).head.archived).toBe(10)
    }))

  it.each([
    [12, /it counts 12 archived blocks, and its memory 10/],
    [9, /it counts 9 archived blocks, and its memory 10/],
    [0, /it counts 0 archived blocks, and its memory 10/],
    [1000, /it counts 1000 archived blocks, and the 100 tokens of its context fill 12 at most/],
  ])('is refused where its head counts %i archived blocks', (archived, sentence) =>
    use(async (outer, file) => {
      const refused = await admit(forged(file, archivedAs(archived)), outer, null).catch((error: unknown) => error)
      expect(messageOf(refused)).toMatch(sentence)
      expect(codeOf(refused)).toBe('REFUSED')
    }))

  it.each([0, 99, 101])('is refused where its memory counts %i tokens, and its clock 100', (count) =>
    use(async (outer, file) => {
      const tensors = (all: ForgedTensors): void => putNumbers(all, 'count', [count])
      const refused = await admit(forged(file, { tensors }), outer, null).catch((error: unknown) => error)
      expect(messageOf(refused)).toMatch(`its clock counts 100 tokens in its context, and its memory ${count}`)
      expect(codeOf(refused)).toBe('REFUSED')
    }))
})

describe('the writer', () => {
  it('seals no head that a reader would refuse', async () => {
    const head = withoutHistory((await admit(blob, model, tokenizer)).head)
    expect(seal(head).value.length).toBeGreaterThan(100)
    for (const name of ['a generation in a finished record', 'sums that do not give the clock', 'two pulses']) {
      const forgery = hostile[name]![0].head!(head) as Head
      expect(() => seal(forgery), name).toThrow(/could not be read again/)
    }
    expect(() => seal({ ...head, cursor: { ...head.cursor, pulse: 2 ** 53 } })).toThrow(/could not be read again/)
    expect(() => seal({ ...head, totals: { ...head.totals, nats: Number.NaN } })).toThrow(/could not be read again/)
  })
})

it('a context that breaks says so by its class', async () => {
  const context = model.createContext()
  context.restore(enormous(context.serialize()), { pulse: 4n, origin: 0n, chain: context.chain })
  const failed = await model.submit({ context, tokens: Int32Array.of(1), nats: true }).catch((error: unknown) => error)
  expect(failed).toBeInstanceOf(ContextBroken)
  context.close()
})
