/** The commands that look: tail, sessions, topics, doctor, verify. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { TOPICS } from '../../topics/index.ts'
import {
  continuo,
  DOCUMENT,
  eventually,
  json,
  MODEL,
  runUntilIdle,
  sessionRow,
  start,
  temporary,
  withLog,
} from './helpers.ts'

const folder = temporary()
const log = `file:${join(folder, 'look.db')}`
const all = ['--from-beginning', '--until-idle', '0']

beforeAll(async () => {
  await json('feed', DOCUMENT, '--log', log, '--session', 'one', '--generate', '40', '--request-id', 'r', '--close')
  await json('feed', DOCUMENT, '--log', log, '--session', 'two', '--generate', '20', '--request-id', 'q')
  await json('feed', '--log', log, '--session', 'three', '--generate', '5')
  await withLog(log, (open) =>
    open.append('continuo.chunks', [{ key: Buffer.from('four'), value: Buffer.from([0x1b, 0xff]) }], 0),
  )
  const ended = await runUntilIdle(log)
  if (ended.code !== 0) throw new Error(ended.err)
})

describe('continuo tail', () => {
  it('prints the generated text of one session and nothing else', async () => {
    const [told] = await json('tail', '--log', log, '--session', 'two', ...all)
    expect(told).toMatchObject({ partition: 0, session: 'two', value: { requestId: 'q', index: 0 } })
    const texts = (await json<{ value: { text: string } }>('tail', '--log', log, '--session', 'two', ...all)).map(
      ({ value }) => value.text,
    )
    const { out } = await continuo(['tail', '--log', log, '--session', 'two', ...all])
    expect(out.replace(/\n$/, '')).toBe(texts.join('').replace(/\n$/, ''))
  })

  it('heads the texts of several sessions', async () => {
    const { out } = await continuo(['tail', '--log', log, ...all])
    expect(new Set(out.match(/^── .*$/gm))).toEqual(new Set(['── one / r', '── two / q']))
  })

  it('prints observations one a line', async () => {
    const { out } = await continuo(['tail', '--log', log, '--session', 'one', '--topic', 'observations', ...all])
    expect(out).toMatch(
      /^one {2}opened at pulse 0\none {2}pulses 0 to \d+ {2}[\d.]+ nats {2}[\d.]+ bits per byte\none {2}closed at pulse \d+ {2}[\d,]+ tokens read, 40 generated\n$/,
    )
  })

  it('prints dead letters with reason and preview', async () => {
    const { out } = await continuo(['tail', '--log', log, '--topic', 'deadletters', ...all])
    // Letters of different sessions stand in any order.
    expect(out).toMatch(
      /^three {2}partition 0, offset \d+ {2}Session "three" has read nothing yet.*\{\\"type\\":\\"generate\\"/m,
    )
    expect(out).toMatch(/^four .*are not JSON.*"\\u001b/m)
    const letters = await json<{ session: string }>('tail', '--log', log, '--topic', 'deadletters', ...all)
    expect(letters.find(({ session }) => session === 'four')).toMatchObject({
      session: 'four',
      valueBase64: 'G/8=',
      headers: { 'continuo-topic': 'continuo.chunks' },
    })
  })

  it('follows what comes, and ends well on SIGINT', { tags: 'slow' }, async () => {
    const tail = start(['tail', '--log', log, '--topic', 'chunks', '--session', 'late', '--from-beginning'])
    await json('feed', '--log', log, '--session', 'late', '--boundary')
    await tail.saw(/late .*boundary/)
    tail.child.kill('SIGINT')
    expect(await tail.done).toMatchObject({ code: 0, signal: null, err: '' })
    await runUntilIdle(log)
  })
})

describe('continuo sessions', () => {
  it('shows where every session stands', async () => {
    const { code, out } = await continuo(['sessions', '--log', log])
    expect(code).toBe(0)
    expect(out).toMatch(/^session +partition +status/)
    expect(out).toMatch(/^one +0 +closed +12,894 +12,854 +40 +\d+ +[0-9a-f]{12} +-$/m)
    expect(out).toMatch(/^two +0 +open +12,874 +12,854 +20 +\d+ +[0-9a-f]{12} +0$/m)
  })

  it('measures the memory in the newest snapshot, as the engine would', { tags: 'slow' }, async () => {
    const { code, out } = await continuo(['sessions', '--log', log, '--session', 'two', '--health'])
    expect(code).toBe(0)
    expect(out).toMatch(/^two +12,874 +att\.S +\d +[\d.]+ +[\d.]+$/m)
    // Its model has no memory levels, and that is no reason to deny the norms.
    expect(out).not.toContain('No snapshot yet')
    const [row] = await json<{ health: { name: string; layer: number; norm: number; max: number }[] }>(
      ...['sessions', '--log', log, '--session', 'two', '--health'],
    )
    const file = join(folder, 'health.safetensors')
    expect((await continuo(['export', '--log', log, '--session', 'two', file])).code).toBe(0)
    const bytes = readFileSync(file)
    const length = Number(bytes.readBigUInt64LE(0))
    const { shape, data_offsets: at } = JSON.parse(bytes.toString('utf8', 8, 8 + length))['att.S']
    const [layers] = shape as number[]
    const values = new Float32Array(Uint8Array.from(bytes.subarray(8 + length + at[0], 8 + length + at[1])).buffer)
    const each = values.length / layers!
    expect(row!.health.filter(({ name }) => name === 'att.S')).toEqual(
      Array.from({ length: layers! }, (_, layer) => {
        const part = values.subarray(layer * each, (layer + 1) * each)
        const norm = expect.closeTo(Math.hypot(...part), 8)
        return { name: 'att.S', layer, level: null, norm, max: Math.max(...part.map(Math.abs)) }
      }),
    )
    const closed = await continuo(['sessions', '--log', log, '--session', 'one', '--health'])
    expect(closed.out).toContain('No snapshot yet')
  })

  it('fails for a session or a log that is not there, and makes no log', async () => {
    expect(await continuo(['sessions', '--log', log, '--session', 'none'])).toMatchObject({ code: 1 })
    for (let turn = 0; turn < 2; turn += 1) {
      const missing = await continuo(['sessions', '--log', `file:${join(folder, 'typo.db')}`])
      expect(missing).toMatchObject({ code: 1, out: '' })
      expect(missing.err).toContain('There is no log at')
    }
    const gone = join(folder, 'gone')
    const nowhere = await continuo(['sessions', '--log', `file:${join(gone, 'x.db')}`])
    expect(nowhere.err).toBe(`There is no log at ${join(gone, 'x.db')}, and no folder ${gone}. Check --log.\n`)
    const noBroker = await continuo(['sessions', '--log', 'kafka://'])
    expect(noBroker).toMatchObject({ code: 2, out: '' })
    expect(noBroker.err).toContain('no brokers are named. Try kafka://127.0.0.1:9092/continuo.')
  })
})

describe('continuo topics', () => {
  it('prints a JSON Schema of every topic, and each example fits', async () => {
    const schemas = await json<{ topic: string; schema: { $schema?: string } | null }>('topics', 'schema')
    expect(schemas.map(({ topic }) => topic)).toEqual(TOPICS.map(({ name }) => name))
    expect(schemas.filter(({ schema }) => schema !== null).map(({ schema }) => schema?.$schema)).toContain(
      'https://json-schema.org/draft/2020-12/schema',
    )
    for (const { value, examples } of TOPICS)
      for (const example of examples) expect(value?.parse(example)).toBeDefined()
    const { out } = await continuo(['topics', 'schema', 'tokens'])
    expect(JSON.parse(out)).toMatchObject({ topic: 'tokens' })
  })

  it('creates what is missing, once, with one partition count', { tags: 'slow' }, async () => {
    const fresh = `file:${join(folder, 'topics.db')}`
    const [first] = await json<{ created: string[] }>('topics', 'apply', '--log', fresh, '--partitions', '3')
    expect(first).toMatchObject({ partitions: 3 })
    expect(first?.created).toHaveLength(TOPICS.filter(({ isOptional }) => !isOptional).length)
    expect(await json('topics', 'apply', '--log', fresh)).toEqual([{ log: fresh, partitions: 3, created: [] }])
    const other = await continuo(['topics', 'apply', '--log', fresh, '--partitions', '4'])
    expect(other.code).toBe(1)
    expect(other.err).toMatch(/3 partitions.*4/)
    const single = `file:${join(folder, 'single.db')}`
    await json('topics', 'apply', '--log', single)
    const two = await continuo(['topics', 'apply', '--log', single, '--partitions', '2'])
    expect(two).toMatchObject({ code: 1, out: '' })
    expect(two.err).toContain('Topic continuo.chunks has 1 partition, expected 2:')
    const listed = await json<{ name: string; partitions: number; config: Record<string, string> }>(
      'topics',
      'list',
      '--log',
      fresh,
    )
    expect(listed).toHaveLength(TOPICS.filter(({ isOptional }) => !isOptional).length)
    for (const { partitions, config } of listed) {
      expect(partitions).toBe(3)
      expect(config).toMatchObject({ 'cleanup.policy': 'delete', 'retention.ms': '-1' })
    }
  })
})

describe('continuo doctor', () => {
  it('finds nothing wrong with a good setup', async () => {
    const { code, out } = await continuo(['doctor', '--log', log, '--model', MODEL])
    expect(code, out).toBe(0)
    expect(out).not.toContain('FAIL')
    for (const name of [
      'node',
      'sqlite',
      'cpu',
      'threads',
      'engine',
      'cuda',
      'compiler',
      'cmake',
      'model',
      'log',
      'topics',
    ]) {
      expect(out).toMatch(new RegExp(`^(ok|warn) {2,}${name} `, 'm'))
    }
  })

  it('names each fault with its remedy', { tags: 'slow' }, async () => {
    const bad = `file:${join(folder, 'bad.db')}`
    await withLog(bad, (open) =>
      open.createTopics([
        { name: 'continuo.chunks', partitions: 2, config: {} },
        { name: 'continuo.tokens', partitions: 1, config: {} },
        { name: 'continuo.state', partitions: 2, config: { 'cleanup.policy': 'compact', 'retention.ms': '1000' } },
      ]),
    )
    const { code, out } = await continuo(['doctor', '--log', bad, '--model', folder])
    expect(code).toBe(1)
    expect(out).toMatch(/FAIL {2}model .*is not a model package/)
    expect(out).toMatch(/FAIL {2}partitions .*continuo\.tokens has 1, the input topic continuo\.chunks has 2/)
    expect(out).toMatch(/FAIL {2}settings .*cleanup\.policy=compact/)
    expect(out).toMatch(/FAIL {2}settings .*retention\.ms=1000/)
    expect(out).toMatch(
      /warn {2}topics .*missing: continuo\.observations, continuo\.snapshots, continuo\.blobs, continuo\.deadletters/,
    )
    const faults = out.split('\n').filter((line) => /^(FAIL|warn)/.test(line)).length
    expect(out.match(/^ +→ ./gm)).toHaveLength(faults)
    const [told] = await json('doctor').catch(() => [{ ok: false }])
    expect(told).toMatchObject({ ok: true })
  })

  it('says what stands where the log should be', { tags: 'slow' }, async () => {
    const file = join(folder, 'text.db')
    writeFileSync(
      file,
      'this is no database, and it is longer than a header of SQLite has to be, so that it is read. '.repeat(3),
    )
    const { code, out } = await continuo(['doctor', '--log', `file:${file}`])
    expect(code).toBe(1)
    expect(out).toMatch(/FAIL {2}log /)
    const missing = await continuo(['doctor', '--log', `file:${join(folder, 'none.db')}`])
    expect(missing).toMatchObject({ code: 0 })
    expect(missing.out).toMatch(/warn {2}log .*nothing at/)
  })
})

describe('continuo verify', () => {
  it('recomputes a log that agrees, and finds what was added', { tags: 'slow' }, async () => {
    const copy = `file:${join(folder, 'verify.db')}`
    await json('feed', DOCUMENT, '--log', copy, '--session', 's', '--generate', '20')
    expect(await runUntilIdle(copy)).toMatchObject({ code: 0 })
    const [good] = await json('verify', '--log', copy, '--model', MODEL)
    expect(good).toMatchObject({ ok: true, moved: false, sessions: 1, tokensCompared: 20, findings: [] })
    await withLog(copy, async (open) => {
      for await (const { records } of open.read('continuo.tokens', 0, 0)) {
        const { key, value } = records[0]!
        await open.append('continuo.tokens', [{ key, value }], 0)
        break
      }
    })
    const bad = await continuo(['verify', '--log', copy, '--model', MODEL])
    expect(bad.code).toBe(1)
    expect(bad.out).toContain('1 finding.')
    expect(await eventually(() => sessionRow(copy, 's'))).toMatchObject({ generated: 20 })
  })

  it('fails for a session that is not there', { tags: 'slow' }, async () => {
    const lost = ['verify', '--log', log, '--model', MODEL, '--session', 'nope']
    expect(await continuo(lost)).toEqual({
      code: 1,
      signal: null,
      out: '',
      err: `There is no session "nope" in ${log}.\n`,
    })
    const { code, out } = await continuo([...lost, '--json'])
    expect(code).toBe(1)
    expect(JSON.parse(out)).toMatchObject({ ok: false, sessions: 0 })
    expect(await continuo(['verify', '--log', log, '--model', MODEL, '--session', 'one'])).toMatchObject({ code: 0 })
  })

  it('names the sessions whose first events are gone, with the pulse it began at', { tags: 'slow' }, async () => {
    const trimmed = `file:${join(folder, 'trimmed.db')}`
    await json('topics', 'apply', '--log', trimmed)
    await withLog(trimmed, (open) => {
      const value = Buffer.from('{"type":"text","text":"abc"}')
      const sessions = Array.from({ length: 24 }, (_, at) => ({ key: Buffer.from(`s${at % 12}`), value }))
      return open.append('continuo.chunks', sessions, 0)
    })
    expect(await runUntilIdle(trimmed)).toMatchObject({ code: 0 })
    await withLog(trimmed, (open) => open.trim('continuo.chunks', 0, 12))
    const { code, out } = await continuo(['verify', '--log', trimmed, '--model', MODEL])
    expect(code, out).toBe(0)
    expect(out).toContain('Session "s0" was recomputed from pulse 6 on: its first events are not in the log.\n')
    expect(out.match(/^Session /gm)).toHaveLength(10)
    expect(out).toContain('\nand 2 more.\n')
    const [told] = await json<{ partial: unknown[] }>('verify', '--log', trimmed, '--model', MODEL)
    expect(told!.partial).toHaveLength(12)
  })

  it('says of a log that moves that it must rest, and nothing of its contents', { tags: 'slow' }, async () => {
    const moving = `file:${join(folder, 'moving.db')}`
    await json('feed', DOCUMENT, '--log', moving, '--session', 's', '--generate', '1000000')
    const worker = start(['run', '--log', moving, '--model', MODEL, '--commit-interval', '1', '--log-level', 'debug'])
    try {
      await worker.saw(/"msg":"commit"/)
      // On a busy machine the worker may happen to rest while it is looked at.
      const look = async (...more: string[]) => {
        for (let tries = 1; ; tries += 1) {
          const done = await continuo(['verify', '--log', moving, '--model', MODEL, ...more])
          if (done.code !== 0 || tries === 5) return done
        }
      }
      const looked = await look()
      expect(looked).toMatchObject({ code: 1, out: '' })
      expect(looked.err).toMatch(/^A worker was writing to .*stop the workers and verify again\.$/m)
      const asJson = await look('--json')
      expect(asJson.code).toBe(1)
      expect(JSON.parse(asJson.out)).toMatchObject({ ok: false, moved: true, findings: [] })
    } finally {
      worker.child.kill('SIGTERM')
      await worker.done
    }
    const [rested] = await json('verify', '--log', moving, '--model', MODEL)
    expect(rested).toMatchObject({ ok: true, moved: false })
  })
})
