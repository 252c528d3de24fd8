/**
 * continuo delete: nothing of the session is found in the files of the log, or in the topics of a broker; killed on its
 * way, it is called again.
 *
 * @module-tag slow
 */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, inject, test } from 'vitest'
import { openFamily } from '../families.ts'
import { freshPrefix } from '../kafka/broker.ts'
import { continuo, json, type Running, sessionRow, start, temporary, withLog } from './helpers.ts'

const ID = 'zanzibar-7f3c'
const WORD = 'quartzite'
/** As the text of a session lies in its state (held back), in its events, in base64, and in keys. */
const MARKS = [ID, WORD, Buffer.from(`xx${WORD}`).toString('base64').slice(4, 14)]

/** Files below the folder that hold one of the marks. */
const found = (folder: string): string[] =>
  readdirSync(folder, { recursive: true })
    .map((name) => join(folder, String(name)))
    .filter((path) => statSync(path).isFile())
    .flatMap((path) => {
      const bytes = readFileSync(path)
      return MARKS.filter((mark) => bytes.includes(mark)).map((mark) => `${path}: ${mark}`)
    })

/** Records of these topics with one of the marks. */
const recorded = (url: string, topics: readonly string[]): Promise<string[]> =>
  withLog(url, async (log) => {
    const hits: string[] = []
    for (const topic of topics.map((name) => `${log.prefix}.${name}`)) {
      const { begin, end } = await log.bounds(topic, 0)
      for await (const { records } of log.read(topic, 0, begin, { until: end }))
        for (const { key, value, headers, offset } of records) {
          const bytes = Buffer.concat([key ?? Buffer.alloc(0), value ?? Buffer.alloc(0), ...headers.map(([, h]) => h)])
          if (MARKS.some((mark) => bytes.includes(mark))) hits.push(`${topic} ${offset}`)
        }
    }
    return hits
  })

const STATE = ['state', 'snapshots', 'blobs']
const OUTPUTS = ['chunks', 'tokens', 'observations', 'deadletters']

const feed = (log: string, session: string, text: string, ...more: string[]) =>
  continuo(['feed', '-', '--log', log, '--session', session, ...more], { input: text })

const worker = async (log: string, model: string): Promise<Running> => {
  const running = start([
    'run',
    '--log',
    log,
    '--model',
    model,
    '--snapshot-every',
    '40',
    '--log-level',
    'error',
    '--json',
  ])
  await running.saw(/"type":"started"/)
  return running
}

const settled = (log: string, model: string) =>
  continuo([
    'run',
    '--log',
    log,
    '--model',
    model,
    '--snapshot-every',
    '40',
    '--until-idle',
    '50',
    '--log-level',
    'error',
  ])

const { brokers, missing } = inject('kafka')
const LOGS = [
  ['an embedded log', true, (folder: string) => `file:${join(folder, 'log', 'c.db')}`],
  [`Kafka (${missing ?? 'there'})`, brokers !== null, () => `kafka://${brokers}/${freshPrefix()}`],
] as const

describe.each(LOGS)('on %s', (_, isThere, urlIn) => {
  test.skipIf(!isThere)('state, snapshots and blobs hold nothing of the session, and the others go on', async () => {
    const folder = temporary()
    const url = urlIn(folder)
    const { dir: model } = await openFamily('qwen3', folder)
    const text = `The ${WORD} `.repeat(60)
    const asks = ['--generate', '8', '--temperature', '0']
    for (const id of ['before', ID, 'after'])
      expect((await feed(url, id, id === ID ? text : 'Calm. '.repeat(90), ...asks)).code).toBe(0)
    expect((await feed(url, ID, `Held back: ${WORD}`)).code).toBe(0)
    expect(await continuo(['feed', '--log', url, '--session', `${ID}-fork`, '--from', ID])).toMatchObject({ code: 0 })
    expect((await settled(url, model)).code).toBe(0)
    expect(await recorded(url, STATE)).not.toEqual([])
    const before = await sessionRow(url, 'before')

    const running = await worker(url, model)
    const first = start(['delete', ID, '--log', url, '--forks'], { env: { CONTINUO_FAILPOINT: 'commit.sent@1' } })
    expect((await first.done).signal).toBe('SIGKILL')
    const [told] = await json('delete', ID, '--log', url, '--forks')
    expect(told).toMatchObject({ purged: [{ partition: 0, sessions: 2 }], forks: [] })
    expect(await recorded(url, STATE)).toEqual([])
    expect(await json('sessions', '--log', url)).toMatchObject([{ session: 'after' }, { session: 'before' }])
    expect(await sessionRow(url, 'before')).toEqual(before)

    // The worker, from which the partition was taken, claims it again.
    expect((await feed(url, ID, 'Anew.')).code).toBe(0)
    expect((await feed(url, 'before', 'And on.')).code).toBe(0)
    await expect
      .poll(() => sessionRow(url, ID).catch(() => null), { timeout: 60_000 })
      .toMatchObject({ status: 'open' })
    running.child.kill('SIGTERM')
    expect(await running.done).toMatchObject({ code: 0 })
    const verified = await continuo(['verify', '--log', url, '--model', model, '--blobs'])
    expect(verified).toMatchObject({ code: 0 })
    expect(verified.out).toContain('deleted')

    const unwanted = await continuo(['delete', 'typo', '--log', url])
    expect(unwanted).toMatchObject({ code: 0, out: expect.stringContaining('There is no session "typo"') })
    const records = start(['delete', ID, '--log', url, '--records'])
    if (url.startsWith('kafka'))
      expect(await records.done).toMatchObject({ code: 2, err: expect.stringContaining('continuo migrate --drop') })
    else {
      await records.saw(/no worker of group "continuo" reads .* Waiting for it\./)
      expect((await settled(url, model)).code).toBe(0)
      expect(await records.done).toMatchObject({ code: 0, out: expect.stringMatching(/Erased \d+ records/) })
      expect(await continuo(['delete', `${ID}-fork`, '--log', url, '--records'])).toMatchObject({ code: 0 })
      expect(await recorded(url, [...STATE, ...OUTPUTS])).toEqual([])
      expect(found(join(folder, 'log'))).toEqual([])
      expect(await continuo(['verify', '--log', url, '--model', model, '--blobs'])).toMatchObject({ code: 0 })
      expect(await continuo(['doctor', '--log', url])).toMatchObject({ code: 0 })
    }
  })
})
