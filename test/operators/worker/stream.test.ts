import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { FEED_SLICE } from '../../../src/operators/advance/advance.ts'
import type { Headers } from '../../../src/streams/log.ts'
import { MAX_RUN } from '../../../topics/chunks.ts'
import type { Observed } from '../../../topics/observations.ts'
import { eventually } from '../../streams/helpers.ts'
import { benches, event, verified } from '../harness.ts'

const document = readFileSync(new URL('../../../docs/demo/harbour-log.txt', import.meta.url), 'utf8')

const { open, use } = benches()

describe('a stream', () => {
  test('how a document was cut into chunks changes neither chain nor surprisal nor what is generated', async () => {
    await use(async (bench) => {
      const text = document.slice(0, 3000)
      const cuts = fc.sample(
        fc.uniqueArray(fc.integer({ min: 1, max: text.length - 1 }), { minLength: 1, maxLength: 12 }),
        { numRuns: 6, seed: 5 },
      )
      const generate = {
        type: 'generate',
        requestId: 'r',
        maxTokens: 40,
        temperature: 0.8,
        topP: 0.9,
        seed: 3,
      } as const
      for (const [n, list] of [[], ...cuts].entries()) {
        const places = [0, ...list.sort((a, b) => a - b), text.length]
        for (let at = 1; at < places.length; at += 1) {
          await bench.feed(event(`s${n}`, { type: 'text', text: text.slice(places[at - 1], places[at]) }))
        }
        await bench.feed(event(`s${n}`, generate))
      }
      await bench.settle()
      const heads = await bench.heads()
      const first = heads.get('s0')!
      expect(first.totals.tokens).toBe(Buffer.byteLength(text))
      const told = (await bench.generated('s0')).map(({ ids, text: shown, logprobs }) => ({ ids, shown, logprobs }))
      for (let n = 1; n <= cuts.length; n += 1) {
        const head = heads.get(`s${n}`)!
        expect(head.chain).toBe(first.chain)
        expect(head.totals).toEqual(first.totals)
        expect(
          (await bench.generated(`s${n}`)).map(({ ids, text: shown, logprobs }) => ({ ids, shown, logprobs })),
        ).toEqual(told)
      }
      await verified(bench)
    })
  })

  test('bytes cut inside a character, and a surrogate pair cut in two, are the same text', async () => {
    await use(async (bench) => {
      const text = 'Élan vital — “naïve”, 𝄞 and é.'
      const bytes = Buffer.from(text)
      await bench.feed(event('whole', { type: 'text', text }))
      for (const byte of bytes)
        await bench.feed(event('bytes', { type: 'text', bytes: Buffer.of(byte).toString('base64') }))
      for (const unit of text.split('')) await bench.feed(event('units', { type: 'text', text: unit }))
      await bench.settle()
      const heads = await bench.heads()
      expect(heads.get('bytes')!.chain).toBe(heads.get('whole')!.chain)
      expect(heads.get('units')!.chain).toBe(heads.get('whole')!.chain)
      await verified(bench)
    })
  })

  test('bad events become dead letters with reason, bytes and headers; the stream goes on', async () => {
    await use(async (bench) => {
      const bad = [
        '{"type":"text"',
        '{"type":"shout"}',
        '{"type":"tokens","tokens":[256]}',
        '{"type":"text","text":1}',
        '\u0000\u0001',
      ]
      await bench.feed(event('s', { type: 'text', text: 'before ' }))
      for (const value of bad)
        await bench.log.append(bench.names.chunks, [{ ...event('s', value), headers: [['trace', Buffer.from('t1')]] }])
      await bench.log.append(bench.names.chunks, [{ key: null, value: Buffer.from('{"type":"close"}') }])
      await bench.feed(event('empty', { type: 'generate', requestId: 'r', maxTokens: 1 }))
      await bench.feed(
        event('s', { type: 'text', text: 'after' }),
        event('s', { type: 'close' }),
        event('s', { type: 'text', text: 'late' }),
      )
      await bench.settle()
      // Sessions do not wait for each other; sort by the place of the original.
      const offsetOf = ({ headers }: { headers: Headers }) =>
        Number(Buffer.from(headers.find(([name]) => name === 'continuo-offset')![1]).toString())
      const letters = [...(await bench.records('deadletters'))].sort((a, b) => offsetOf(a) - offsetOf(b))
      expect(letters.map(({ value }) => Buffer.from(value!).toString())).toEqual([
        ...bad,
        '{"type":"close"}',
        '{"type":"generate","requestId":"r","maxTokens":1}',
        '{"type":"text","text":"late"}',
      ])
      const header = (n: number, name: string) =>
        Buffer.from(letters[n]!.headers.find(([key]) => key === name)![1]).toString()
      expect(header(0, 'trace')).toBe('t1')
      expect(header(1, 'continuo-reason')).toContain('Expected an event type of open, text')
      expect(header(1, 'continuo-offset')).toBe('2')
      expect(header(6, 'continuo-reason')).toContain('nothing to continue')
      expect(header(7, 'continuo-reason')).toContain('Session "s" is closed')
      const reference = await open()
      await reference.feed(event('s', { type: 'text', text: 'before after' }))
      await reference.settle()
      expect((await bench.heads()).get('s')!.chain).toBe((await reference.heads()).get('s')!.chain)
      await reference.close()
      await verified(bench)
    })
  })

  test('a long record and a long generation commit midway: the offset stays, the token position moves', {
    tags: 'slow',
  }, async () => {
    await use(async (bench) => {
      await bench.feed(
        event('s', { type: 'text', text: document }),
        event('s', { type: 'generate', requestId: 'r', maxTokens: 3200, ignoreEnd: true }),
      )
      const { commits } = await bench.settle({ commitInterval: 1 })
      const heads = commits.flatMap(({ offset, steps }) =>
        steps.map(({ head }) => ({ offset, token: head!.cursor.token, complete: head!.cursor.complete })),
      )
      const inText = heads.filter(({ offset, complete }) => offset === 0 && !complete)
      expect(inText.length).toBeGreaterThan(10)
      expect(inText.every(({ token }) => token % FEED_SLICE === 0)).toBe(true)
      const inGeneration = heads.filter(({ offset, complete }) => offset === 1 && !complete)
      expect(inGeneration.length).toBeGreaterThan(3)
      expect(inGeneration.every(({ token }) => token % MAX_RUN === 0)).toBe(true)
      const generated = await bench.generated()
      expect(generated.flatMap(({ ids }) => ids)).toHaveLength(3200)
      expect(generated.map(({ index }) => index)).toEqual(generated.map((_, n) => n * MAX_RUN))
      expect(generated.map(({ finish }) => finish)).toEqual([...generated.slice(1).map(() => null), 'length'])
    })
  })

  test('records of generated tokens end where the request says; the tokens are the same, and verify agrees', {
    tags: 'slow',
  }, async () => {
    await use(async (bench) => {
      const request = { type: 'generate', maxTokens: 45, seed: 5 } as const
      const runs = [1, 3, 16, undefined]
      for (const [at, run] of runs.entries()) {
        await bench.feed(event(`s${at}`, { type: 'text', text: document.slice(0, 300) }))
        await bench.feed(event(`s${at}`, { ...request, requestId: `r${at}`, ...(run !== undefined && { run }) }))
      }
      await bench.settle()
      const generated = await bench.generated()
      const of = (at: number) => generated.filter(({ requestId }) => requestId === `r${at}`)
      for (const [at, run] of runs.entries()) {
        const length = run ?? MAX_RUN
        expect(of(at).flatMap(({ ids }) => ids)).toEqual(of(0).flatMap(({ ids }) => ids))
        expect(of(at).map(({ index }) => index)).toEqual(
          Array.from({ length: Math.ceil(45 / length) }, (_, n) => n * length),
        )
      }
      await verified(bench)
    })
  })

  test('a boundary with reset begins a new context on the same clock; without, nothing changes', {
    tags: 'slow',
  }, async () => {
    await use(async (bench) => {
      const text = document.slice(0, 700)
      await bench.feed(
        event('plain', { type: 'text', text }),
        event('plain', { type: 'boundary' }),
        event('plain', { type: 'text', text }),
        event('reset', { type: 'text', text }),
        event('reset', { type: 'boundary', reset: true }),
        event('reset', { type: 'text', text }),
        event('twice', { type: 'text', text: text + text }),
      )
      await bench.settle()
      const heads = await bench.heads()
      expect(heads.get('plain')!.chain).toBe(heads.get('twice')!.chain)
      const reset = heads.get('reset')!
      const bytes = Buffer.byteLength(text)
      expect(reset.conductor).toEqual({ globalStep: 2 * bytes, phase: 'stream', origin: bytes })
      const observed = (await bench.observations('reset')).filter((each): each is Observed => each.type === 'observed')
      expect(observed.map(({ nats, predictions }) => [nats, predictions])).toEqual([
        [observed[0]!.nats, bytes - 1],
        [observed[0]!.nats, bytes - 1],
      ])
      await verified(bench)
    })
  })

  test('a stop string ends a generation right behind it, wherever slices fall', { tags: 'slow' }, async () => {
    await use(async (bench) => {
      await bench.feed(
        event('free', { type: 'text', text: document }),
        event('free', { type: 'generate', requestId: 'r', maxTokens: 120, seed: 9 }),
      )
      await bench.settle()
      const whole = Buffer.from((await bench.generated('free')).flatMap(({ ids }) => ids)).toString('latin1')
      for (const length of [1, 2, 5]) {
        const stop = whole.slice(40, 40 + length)
        if (!/^[\x20-\x7e]+$/.test(stop)) continue
        const session = `stop-${length}`
        await bench.feed(
          event(session, { type: 'text', text: document }),
          event(session, { type: 'generate', requestId: 'r', maxTokens: 120, seed: 9, stop: [stop] }),
        )
        await bench.settle()
        const events = await bench.generated(session)
        const got = Buffer.from(events.flatMap(({ ids }) => ids)).toString('latin1')
        expect(got).toBe(whole.slice(0, whole.indexOf(stop) + stop.length))
        expect(events.at(-1)!.finish).toBe('stop')
        expect((await bench.heads()).get(session)!.conductor.globalStep).toBe(Buffer.byteLength(document) + got.length)
      }
      await verified(bench)
    })
  })

  test('surprisal is told token by token when asked for, and sums to the nats', { tags: 'slow' }, async () => {
    await use(async (bench) => {
      await bench.feed(
        event('s', { type: 'open', surprisal: true }),
        event('s', { type: 'text', text: document.slice(0, 9000) }),
      )
      await bench.settle()
      const observed = (await bench.observations('s')).filter((each): each is Observed => each.type === 'observed')
      expect(observed.map(({ last, tokens }) => [last, tokens])).toEqual([
        [false, 4096],
        [false, 4096],
        [true, Buffer.byteLength(document.slice(0, 9000)) - 8192],
      ])
      expect(observed[0]!.surprisal![0]).toBeNull()
      for (const { surprisal, nats } of observed)
        expect(surprisal!.reduce<number>((sum, each) => sum + (each ?? 0), 0)).toBeCloseTo(nats, 6)
    })
  })

  test('text in a topic of plain text is read as it is', async () => {
    await use(async (bench) => {
      await bench.feed(event('s', document.slice(0, 500)), event('s', Uint8Array.of(0xff, 0xfe, 0x41)))
      await bench.settle({ format: 'text' })
      expect((await bench.heads()).get('s')!.totals.tokens).toBe(Buffer.byteLength(document.slice(0, 500)) + 3)
    })
  })

  test('what several sessions have ready shares steps of the engine, and each gets what it gets alone', {
    tags: 'slow',
  }, async () => {
    await use(async (bench) => {
      const sessions = Array.from({ length: 12 }, (_, n) => n)
      await bench.feed(
        ...sessions.map((n) => event(`s${n}`, { type: 'text', text: document.slice(n * 50, n * 50 + 500) })),
      )
      const running = await bench.start()
      await running.idle()
      const before = bench.model.stats
      const request = { type: 'generate', requestId: 'r', maxTokens: 160 } as const
      await bench.feed(...sessions.map((n) => event(`s${n}`, { ...request, seed: n })))
      await running.idle()
      await running.worker.stop()
      const { steps, tokens, items } = bench.model.stats
      expect(tokens - before.tokens).toBe(12 * 160)
      expect(items - before.items).toBe(12 * 10)
      expect(steps - before.steps).toBeLessThan(12 * 160)
      await verified(bench)
    }, 3)
  })

  test('contexts beyond the limit are saved and given back; their sessions go on exactly', {
    tags: 'slow',
  }, async () => {
    await use(async (bench) => {
      const parts = [0, 1, 2].map((n) => document.slice(n * 900, n * 900 + 900))
      for (const part of parts)
        for (let n = 0; n < 6; n += 1) await bench.feed(event(`s${n}`, { type: 'text', text: part }))
      const running = await bench.start({ maxContexts: 2 })
      await running.idle()
      await bench.feed(...[0, 1, 2, 3, 4, 5].map((n) => event(`s${n}`, { type: 'text', text: 'And so on.' })))
      await running.idle()
      await bench.feed(event('s0', { type: 'boundary' }))
      await eventually(() => expect(running.worker.tasks.get(0)!.liveContexts).toBeLessThanOrEqual(2))
      await running.worker.stop()
      await bench.settle({ maxContexts: 2 })
      expect(new Set([...(await bench.heads()).values()].map(({ chain }) => chain)).size).toBe(1)
      await verified(bench)
    })
  })
})

describe('resume', () => {
  test('after a clean stop nothing is replayed and the stream goes on as if it had never stopped', {
    tags: 'slow',
  }, async () => {
    await use(async (bench) => {
      const half = document.slice(0, 5000)
      await bench.feed(event('s', { type: 'text', text: half }))
      await bench.settle()
      const saved = (await bench.heads()).get('s')!
      expect(saved.snapshot!.pulse).toBe(saved.conductor.globalStep)
      await bench.feed(
        event('s', { type: 'text', text: document.slice(5000) }),
        event('s', { type: 'generate', requestId: 'r', maxTokens: 50 }),
      )
      const { restored } = await bench.settle()
      expect(restored).toEqual(['s'])
      await verified(bench)
    })
  })

  test('a stop in the middle of a long record resumes inside it', { tags: 'slow' }, async () => {
    await use(async (bench) => {
      await bench.feed(event('s', { type: 'text', text: document.repeat(3) }))
      const running = await bench.start()
      await eventually(() => expect(running.commits.length).toBeGreaterThan(3))
      await running.worker.stop()
      const middle = (await bench.heads()).get('s')!
      expect(middle.cursor.complete).toBe(false)
      await bench.settle()
      expect((await bench.heads()).get('s')!.totals.tokens).toBe(3 * Buffer.byteLength(document))
      await verified(bench)
    })
  })

  test('a restart that finds much dead state trims it, and does not write the living anew', {
    tags: 'slow',
  }, async () => {
    await use(async (bench) => {
      const sessions = ['a', 'b', 'c', 'd', 'e', 'f']
      for (const text of ['One. ', 'Two. ', 'Three. ']) {
        await bench.feed(...sessions.map((session) => event(session, { type: 'text', text })))
        await bench.settle({ compactFloor: 1 << 30 })
      }
      const before = await bench.log.bounds(bench.names.snapshots, 0)
      expect(before).toEqual({ begin: 0, end: 18 })
      await bench.feed(event('a', { type: 'text', text: 'Four.' }))
      await bench.settle({ compactFloor: 100_000 })
      const after = await bench.log.bounds(bench.names.snapshots, 0)
      expect(after.begin).toBeGreaterThanOrEqual(12)
      expect(after.end).toBeLessThanOrEqual(20)
      await verified(bench)
    })
  })

  test('dead state is compacted and trimmed: the log of state does not grow with history', {
    tags: 'slow',
  }, async () => {
    await use(async (bench) => {
      await bench.feed(event('idle', { type: 'text', text: 'I wait.' }))
      await bench.settle()
      for (let n = 0; n < 60; n += 1)
        await bench.feed(event('busy', { type: 'text', text: document.slice(n * 100, n * 100 + 300) }))
      await bench.settle({ commitInterval: 0, compactFloor: 20_000, snapshotEvery: 200 })
      const state = await bench.log.bounds(bench.names.state, 0)
      const snapshots = await bench.log.bounds(bench.names.snapshots, 0)
      expect(state.begin).toBeGreaterThan(0)
      expect(snapshots.begin).toBeGreaterThan(0)
      expect(snapshots.end - snapshots.begin).toBeLessThan(12)
      await bench.feed(
        event('idle', { type: 'text', text: ' And wake.' }),
        event('busy', { type: 'generate', requestId: 'r', maxTokens: 5 }),
      )
      const { restored } = await bench.settle()
      expect([...restored].sort()).toEqual(['busy', 'idle'])
      await verified(bench)
    })
  })
})
