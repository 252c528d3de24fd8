/**
 * A prompt that begins as another one did is read from where they part, with the answer that reading all of it gives;
 * and what is kept for that stays bounded.
 */
import { afterAll, describe, expect, test } from 'vitest'
import { chunkRecord } from '../../src/client/chunks.ts'
import type { SessionView } from '../../src/gateway/sessions-view.ts'
import { continuo, MODEL, type Running, recordsOf, start, temporary, withLog } from '../cli/helpers.ts'
import { random } from '../crash/scenario.ts'
import { FAMILIES, openFamily, slowWith } from '../families.ts'
import { ask, endWithTest, inSession, logIn, type Refused, type Serving, serving, servingAll } from './helpers.ts'

interface Completion {
  readonly id: string
  readonly choices: readonly { readonly text: string; readonly logprobs: unknown }[]
  readonly usage: {
    readonly prompt_tokens: number
    readonly prompt_tokens_details: { readonly cached_tokens: number }
  }
}

/** Ids of a text, as a model of bytes has them, drawn by a seed. */
const idsOf = (seed: number, count: number): number[] => {
  const dice = random(seed)
  return Array.from({ length: count }, () => 32 + Math.floor(dice() * 95))
}

const complete = async (
  { url }: Pick<Serving, 'url'>,
  prompt: string | readonly number[],
  more: object = {},
  headers: Readonly<Record<string, string>> = {},
): Promise<Completion> => {
  const body = { model: 'm', prompt, max_tokens: 9, seed: 5, temperature: 0.9, logprobs: 2, ...more }
  const told = await ask<Completion>(`${url}/v1/completions`, body, headers)
  expect(told.body).toMatchObject({ choices: [{ index: 0 }] })
  return told.body
}
const cachedOf = ({ usage }: Completion): number => usage.prompt_tokens_details.cached_tokens

let sessions = 0
/** The same answer from a session that read all of the prompt. */
const whole = (gateway: Pick<Serving, 'url'>, prompt: string | readonly number[], more: object = {}) =>
  complete(gateway, prompt, more, inSession(`whole-${sessions++}`).headers)

const keptIn = async ({ url }: Pick<Serving, 'url'>): Promise<readonly SessionView[]> => {
  const { body } = await ask<{ sessions: SessionView[] }>(`${url}/v1/sessions?limit=1000`)
  return body.sessions.filter(({ session }) => session.startsWith('prefix-'))
}

const agrees = async (log: string, model: string, ...more: readonly string[]): Promise<void> => {
  const { code, out } = await continuo(['verify', '--log', log, '--model', model, ...more])
  expect(out).toContain('Everything agrees.')
  expect(code).toBe(0)
}

describe('a prompt that begins like one before', () => {
  // The contexts of the one that refuses hold fewer ids than the shortest prefix that is kept.
  for (const { key, name } of FAMILIES.filter((family) => family.key !== 'gpt2-refuse')) {
    const options = key === 'rwkv7' || key === 'memory' ? {} : { tags: slowWith(key) }
    test(`has the answer of one that is read whole: ${name}`, options, async () => {
      const folder = temporary()
      const family = await openFamily(key, folder)
      const log = logIn(folder)
      const flags = [...family.flags, '--model-name', 'm', '--threads', '1', '--commit-interval', '5']
      const gateway = await serving(log, '--with-worker', ...flags)
      endWithTest(gateway)
      const base = idsOf(1, 600)
      const cases: readonly (readonly [ids: readonly number[], cached: number])[] = [
        [base, 0],
        // All of it was read.
        [base, 600],
        // Two that part from it at 391: the second knows that others do.
        [[...base.slice(0, 391), ...idsOf(2, 200)], 256],
        [[...base.slice(0, 391), ...idsOf(3, 200)], 391],
        [[...base, ...idsOf(4, 80)], 600],
        [idsOf(5, 300), 0],
      ]
      for (const [ids, cached] of cases) {
        const [alike, alone] = [await complete(gateway, ids), await whole(gateway, ids)]
        expect(alike.choices).toEqual(alone.choices)
        expect([cachedOf(alike), cachedOf(alone)]).toEqual([cached, 0])
        expect(alike.usage.prompt_tokens).toBe(ids.length)
      }
      gateway.child.kill('SIGTERM')
      await gateway.done
      await agrees(log, family.dir, ...(family.overflow === 'refuse' ? [] : ['--overflow', family.overflow]))
    })
  }
})

describe('with guesses, grammars and streams', () => {
  let gateway: Serving
  const begun = servingAll((end) => afterAll(end), '--model-name', 'm', '--speculate', '4,always').then((all) => {
    gateway = all
  })

  test('a conversation that is sent again goes on behind the last answer', { tags: 'slow' }, async () => {
    await begun
    const text = 'The harbour of the old town lies under the hill. '.repeat(14)
    const messages: { role: string; content: string }[] = [{ role: 'user', content: text }]
    const chat = async (headers: Readonly<Record<string, string>> = {}, asked = messages) => {
      const body = { model: 'm', messages: asked, max_tokens: 30, seed: 3, temperature: 0 }
      const { body: told } = await ask<{
        choices: readonly { message: { role: string; content: string } }[]
        usage: Completion['usage']
      }>(`${gateway.url}/v1/chat/completions`, body, headers)
      return told
    }
    let before = 0
    for (const question of ['Who lives there?', 'And who rules the town?', 'Why?']) {
      const [told, alone] = [await chat(), await chat(inSession(`chat-${sessions++}`).headers)]
      expect(told.choices).toEqual(alone.choices)
      expect(told.usage.prompt_tokens).toBe(alone.usage.prompt_tokens)
      // What is short is read again: this form strips answers, so sessions behind them are not found.
      expect(told.usage.prompt_tokens_details.cached_tokens).toBeGreaterThanOrEqual(before)
      before = text.length
      messages.push(told.choices[0]!.message, { role: 'user', content: question })
    }
  })

  test('a prompt that goes on behind an answer, an answer of a form, and one in pieces, are those of a prompt that is read whole', async () => {
    await begun
    const text = 'A ship came in from the north with timber and tar, and nobody knew her name. '.repeat(5)
    const form = { grammar: 'root ::= " " [a-z]+ "."', max_tokens: 60, temperature: 1 }
    const first = await complete(gateway, text)
    const behind = `${text}${first.choices[0]!.text}`
    expect(cachedOf(await complete(gateway, `${behind} And then`))).toBe(behind.length)
    for (const more of [form, { presence_penalty: 1.5 }, { repetition_penalty: 1.3, repeat_last_n: 300 }]) {
      const alike = await complete(gateway, `${text}So it was.`, more)
      expect(cachedOf(alike)).toBeGreaterThanOrEqual(text.length)
      expect(alike.choices).toEqual((await whole(gateway, `${text}So it was.`, more)).choices)
    }
    const body = { model: 'm', prompt: `${text}So`, max_tokens: 12, seed: 5, temperature: 0.9, stream: true }
    const response = await fetch(`${gateway.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ...body, stream_options: { include_usage: true } }),
    })
    const pieces = (await response.text())
      .split('\n\n')
      .filter((event) => event.startsWith('data: {'))
      .map((event) => JSON.parse(event.slice(6)) as Completion)
    const { choices } = await whole(gateway, `${text}So`, { max_tokens: 12 })
    expect(pieces.map((piece) => piece.choices[0]?.text ?? '').join('')).toBe(choices[0]!.text)
    expect(pieces.at(-1)!.usage).toMatchObject({ prompt_tokens: text.length + 2 })
    expect(cachedOf(pieces.at(-1)!)).toBe(text.length)
  })

  test('responses and Anthropic messages say what was read before, also when they are read again', async () => {
    await begun
    const input = 'Of the winds that blow in the sound, the one from the east is the worst. '.repeat(6)
    const create = async () => {
      const body = { model: 'm', input, max_output_tokens: 8, temperature: 0 }
      return (await ask<{ id: string; usage: object }>(`${gateway.url}/v1/responses`, body)).body
    }
    const [first, second] = [await create(), await create()]
    expect(first.usage).toMatchObject({ input_tokens_details: { cached_tokens: 0 } })
    const { input_tokens: read, input_tokens_details: details } = second.usage as Record<string, unknown>
    expect(details).toEqual({ cached_tokens: read })
    expect((await ask<{ usage: object }>(`${gateway.url}/v1/responses/${second.id}`)).body.usage).toEqual(second.usage)
    const body = { model: 'm', max_tokens: 8, messages: [{ role: 'user', content: input }] }
    const { body: told } = await ask<{ usage: object }>(`${gateway.url}/v1/messages`, body)
    expect(told.usage).toMatchObject({ input_tokens: 0, cache_read_input_tokens: read })
  })

  test('requests at one time read what they share once', async () => {
    await begun
    const shared = idsOf(70, 700)
    const all = await Promise.all(
      Array.from({ length: 12 }, (_, at) => complete(gateway, [...shared, ...idsOf(71 + at, 90)], { seed: at })),
    )
    expect(all.filter((each) => cachedOf(each) === 0)).toHaveLength(1)
    expect(all.filter((each) => cachedOf(each) >= 512)).toHaveLength(11)
    for (const at of [3, 11])
      expect(all[at]!.choices).toEqual((await whole(gateway, [...shared, ...idsOf(71 + at, 90)], { seed: at })).choices)
  })

  test('no request feeds what others begin with', async () => {
    await begun
    const [kept] = await keptIn(gateway)
    const name = kept!.session
    for (const [path, body, headers] of [
      [`/v1/sessions/${name}/chunks`, { type: 'text', text: 'x' }, {}],
      ['/v1/completions', { model: 'm', prompt: 'x' }, inSession(name).headers],
      [`/v1/sessions/${name}/fork`, { session: 'prefix-mine' }, {}],
    ] as const) {
      const { status, body: told } = await ask<Refused>(`${gateway.url}${path}`, body, headers)
      expect(status).toBe(400)
      expect(told.error.message).toContain('begin with "prefix-" are the gateway\'s own, and take nothing more')
    }
  })

  test('the metrics count what was read and what was not', async () => {
    await begun
    const counted = async () => {
      const text = await (await fetch(`${gateway.url}/metrics`)).text()
      const of = (kind: string): number =>
        Number(
          new RegExp(
            `^continuo_gateway_prompt_tokens_total\\{route="/v1/completions",kind="${kind}"\\} (\\d+)$`,
            'm',
          ).exec(text)?.[1] ?? 0,
        )
      return { cached: of('cached'), read: of('read') }
    }
    const before = await counted()
    const prompt = idsOf(90, 600)
    for (let time = 0; time < 2; time += 1) await complete(gateway, prompt, { seed: time })
    const { cached, read } = await counted()
    expect([cached - before.cached, read - before.read]).toEqual([600, 600])
  })
})

test('a prompt that no context holds is refused with its length, and leaves nothing', { tags: 'slow' }, async () => {
  const folder = temporary()
  const family = await openFamily('qwen3', folder)
  const gateway = await serving(logIn(folder), '--with-worker', ...family.flags, '--model-name', 'm')
  endWithTest(gateway)
  const { body: models } = await ask(`${gateway.url}/v1/models`)
  expect(models).toMatchObject({ data: [{ max_model_len: 2048 }] })
  const body = { model: 'm', prompt: idsOf(1, 3000), max_tokens: 9 }
  const { body: told } = await ask<Refused>(`${gateway.url}/v1/completions`, body)
  expect(told.error).toMatchObject({
    code: 'context_length_exceeded',
    message: expect.stringContaining('makes it 3000'),
  })
  expect(await keptIn(gateway)).toEqual([])
})

test('two gateways that go on behind one answer at one time both give the answer of the whole', {
  tags: 'slow',
}, async () => {
  const log = logIn(temporary())
  const flags = ['--model-name', 'm', '--rate-limit', '0']
  const one = await serving(log, '--with-worker', '--threads', '1', '--commit-interval', '5', ...flags)
  const two = await serving(log, ...flags)
  endWithTest(one, two)
  const text = 'In the third winter the ice came early, and the ferry lay at the quay. '.repeat(5)
  const first = await complete(one, text)
  const behind = `${text}${first.choices[0]!.text}`
  // The second gateway has seen the same answer, so both know where its session stands.
  await complete(two, text)
  const [a, b] = await Promise.all([complete(one, `${behind} Then came`), complete(two, `${behind} But nobody`)])
  expect(a.choices).toEqual((await whole(one, `${behind} Then came`)).choices)
  expect(b.choices).toEqual((await whole(one, `${behind} But nobody`)).choices)
  const again = await complete(one, `${behind} Then came${a.choices[0]!.text} at last`)
  expect(again.choices).toEqual((await whole(two, `${behind} Then came${a.choices[0]!.text} at last`)).choices)
  expect(cachedOf(again)).toBeGreaterThanOrEqual(text.length)
  for (const { child, done } of [one, two]) {
    child.kill('SIGTERM')
    await done
  }
  await agrees(log, MODEL)
})

/** Less often than requests of an address are limited. */
const polled = { timeout: 60_000, interval: 200 }

test('what is kept is bounded, goes by its use, and outlives the gateway', { tags: 'slow' }, async () => {
  const log = logIn(temporary())
  const flags = ['--with-worker', '--model-name', 'm', '--threads', '1', '--commit-interval', '5']
  const first = await serving(log, ...flags, '--prefix-sessions', '6')
  endWithTest(first)
  const used = idsOf(1, 300)
  for (let at = 0; at < 8; at += 1) {
    await complete(first, used)
    await complete(first, idsOf(100 + at, 300))
  }
  await expect.poll(() => keptIn(first), polled).toHaveLength(6)
  expect(cachedOf(await complete(first, used))).toBe(300)
  // It was used last so long ago that others took its place.
  expect(cachedOf(await complete(first, idsOf(100, 300)))).toBe(0)
  first.child.kill('SIGKILL')
  await first.done

  const second = await serving(log, ...flags, '--prefix-sessions', '6')
  endWithTest(second)
  await expect.poll(async () => (await fetch(`${second.url}/readyz`)).status, polled).toBe(200)
  expect(cachedOf(await complete(second, used))).toBe(300)
  second.child.kill('SIGTERM')
  await second.done

  const none = await serving(log, ...flags, '--prefix-sessions', '0')
  endWithTest(none)
  await expect.poll(() => keptIn(none), polled).toHaveLength(0)
  none.child.kill('SIGTERM')
  await none.done
  await agrees(log, MODEL)
  expect((await recordsOf(log, 'continuo.deadletters')).map(({ value }) => value)).toEqual([])
})

test('a prompt is read whole where what it would have begun with is gone when its turn comes', {
  tags: 'slow',
}, async () => {
  const log = logIn(temporary())
  const worker = (): Running =>
    start(['run', '--log', log, '--model', MODEL, '--threads', '1', '--commit-interval', '5'])
  const one = worker()
  await one.saw(/"state":"running"/)
  const gateway = await serving(log, '--model-name', 'm')
  endWithTest(one, gateway)
  const ids = idsOf(1, 400)
  await complete(gateway, ids)
  one.child.kill('SIGTERM')
  await one.done
  // By another producer of the topic, and nobody reads it yet.
  const kept = await keptIn(gateway)
  await withLog(log, (open) =>
    open.append(
      'continuo.chunks',
      kept.map(({ session }) => chunkRecord(session, { type: 'text', text: ' ' })),
    ),
  )
  const longer = [...ids, ...idsOf(2, 100)]
  const asked = complete(gateway, longer)
  const streamed = complete(gateway, longer, { seed: 6 })
  const two = worker()
  endWithTest(two)
  await two.saw(/"state":"running"/)
  const alone = await whole(gateway, longer)
  expect((await asked).choices).toEqual(alone.choices)
  expect((await streamed).choices).toEqual((await whole(gateway, longer, { seed: 6 })).choices)
  expect(cachedOf(await asked)).toBe(0)
})
