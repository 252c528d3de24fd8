import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect, it } from 'vitest'
import { boardSchema } from '../../src/observe/board.ts'
import type { Generated } from '../../topics/tokens.ts'
import {
  continuo,
  DOCUMENT,
  eventually,
  json,
  MODEL,
  ROOT,
  recordsOf,
  runUntilIdle,
  type SessionRow,
  sessionRow,
  start,
  temporary,
  valuesOf,
  withLog,
} from './helpers.ts'

const folder = temporary()
/** The beginning of the demo's document. */
const PAGE = join(folder, 'page.txt')
writeFileSync(PAGE, readFileSync(DOCUMENT).subarray(0, 3000))
let logs = 0
const newLog = (): string => `file:${join(folder, `run-${++logs}.db`)}`
const feed = (log: string, session: string, ...more: readonly string[]): Promise<unknown> =>
  json('feed', ...more, '--log', log, '--session', session)
const generating = ['--generate', '200', '--request-id', 'r', '--temperature', '0.8', '--seed', '3']

/** What an uninterrupted run makes of the document and one request. */
const reference = async (): Promise<{ row: SessionRow; text: string }> => {
  const log = newLog()
  await feed(log, 's', PAGE, ...generating)
  expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
  return { row: await sessionRow(log, 's'), text: await textOf(log) }
}
const textOf = async (log: string): Promise<string> =>
  valuesOf<Generated>(await recordsOf(log, 'continuo.tokens'))
    .map(({ text }) => text)
    .join('')

describe('continuo run', () => {
  it('reads to the end and ends when idle, telling so in JSON lines', { tags: 'slow' }, async () => {
    const log = newLog()
    await feed(log, 'a', PAGE)
    await feed(log, 'b', PAGE, ...generating)
    const lines = await json('run', '--log', log, '--model', MODEL, '--until-idle', '50', '--log-level', 'silent')
    const size = readFileSync(PAGE).length
    expect(lines[0]).toMatchObject({ type: 'started', partitions: 1, metrics: null })
    expect(lines.at(-1)).toMatchObject({
      type: 'ended',
      ended: 'idle',
      read: 2 * size,
      generated: 200,
      sessions: 2,
      refused: [],
    })
    expect(await sessionRow(log, 'a')).toMatchObject({ pulse: size, complete: true, snapshotAge: 0 })
  })

  it('ends at once when there is nothing to read', async () => {
    expect(await runUntilIdle(newLog())).toMatchObject({ code: 0 })
  })

  const stopsOn = async (signal: NodeJS.Signals): Promise<void> => {
    const log = newLog()
    await feed(log, 's', PAGE, ...generating)
    const running = start(['run', '--log', log, '--model', MODEL, '--commit-interval', '10', '--log-level', 'debug'])
    await running.saw(/"msg":"commit"/)
    running.child.kill(signal)
    const ended = await running.done
    expect(ended).toMatchObject({ code: 0, signal: null })
    expect(ended.err).toContain('Stopping')
    const half = await sessionRow(log, 's')
    expect(half.pulse).toBeGreaterThan(0)
    expect(half.snapshotAge).toBe(0)
    // A single replayed step would kill the second run.
    const resumed = await continuo(['run', '--log', log, '--model', MODEL, '--until-idle', '50'], {
      env: { CONTINUO_FAILPOINT: 'restore.replay' },
    })
    expect(resumed).toMatchObject({ code: 0, signal: null })
    const whole = await reference()
    expect(await sessionRow(log, 's')).toMatchObject({ pulse: whole.row.pulse, chain: whole.row.chain })
    expect(await textOf(log)).toBe(whole.text)
  }
  it('on SIGTERM finishes the step in hand, saves, and resumes with nothing to replay', () => stopsOn('SIGTERM'))
  it.each(['SIGINT', 'SIGHUP'] as const)('so it does on %s', { tags: 'slow' }, stopsOn)

  it('goes on after a kill as if nothing had happened', { tags: 'slow' }, async () => {
    const log = newLog()
    await feed(log, 's', PAGE, ...generating)
    const fast = ['--session-timeout', '300', '--snapshot-every', '1000', '--commit-interval', '5']
    for (const failpoint of ['commit.prepared@2', 'commit.ended@2', 'snapshot.written']) {
      const killed = await continuo(['run', '--log', log, '--model', MODEL, '--until-idle', '50', ...fast], {
        env: { CONTINUO_FAILPOINT: failpoint },
      })
      expect(killed).toMatchObject({ code: null, signal: 'SIGKILL' })
    }
    expect(await runUntilIdle(log, ...fast)).toMatchObject({ code: 0 })
    const whole = await reference()
    expect(await sessionRow(log, 's')).toMatchObject({ pulse: whole.row.pulse, chain: whole.row.chain })
    expect(await textOf(log)).toBe(whole.text)
  })

  it('refuses a log that another model wrote with 3, names both, and changes nothing', { tags: 'slow' }, async () => {
    const log = newLog()
    await feed(log, 's', '--generate', '4')
    await feed(log, 's', PAGE)
    expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
    const other = join(folder, 'other-model')
    cpSync(MODEL, other, { recursive: true })
    const weights = readFileSync(join(other, 'model.safetensors'))
    weights[weights.length - 1]! ^= 1
    writeFileSync(join(other, 'model.safetensors'), weights)
    const before = await recordsOf(log, 'continuo.state')
    await feed(log, 's', PAGE)
    const refused = await continuo(['run', '--log', log, '--model', other, '--log-level', 'silent'])
    expect(refused.code).toBe(3)
    expect(refused.err).toMatch(/was written by model [0-9a-f]{12}…, the loaded model is [0-9a-f]{12}…/)
    expect(await recordsOf(log, 'continuo.state')).toEqual(before)
    expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
  })

  it('makes no log for a model that is not there', async () => {
    const log = newLog()
    const done = await continuo(['run', '--log', log, '--model', join(folder, 'mdoel'), '--until-idle', '0'])
    expect(done).toMatchObject({ code: 1, out: '' })
    expect(done.err).toContain('is not a model package')
    expect(existsSync(log.slice('file:'.length))).toBe(false)
  })

  it('ends with 1 where the file is no log, and with 3 where a log is of a layout it does not know', {
    tags: 'slow',
  }, async () => {
    const text = join(folder, 'text.md')
    writeFileSync(text, '# Not a log\n'.repeat(100))
    const other = join(folder, 'other.db')
    const foreign = new DatabaseSync(other)
    foreign.exec('CREATE TABLE t (x)')
    foreign.close()
    for (const file of [text, other]) {
      const before = readFileSync(file)
      const done = await runUntilIdle(`file:${file}`)
      expect(done).toMatchObject({ code: 1, out: '' })
      expect(done.err.toLowerCase()).toContain('choose another path')
      expect(readFileSync(file).equals(before)).toBe(true)
    }
    const log = newLog()
    await json('topics', 'apply', '--log', log)
    const newer = new DatabaseSync(log.slice('file:'.length))
    newer.exec('PRAGMA user_version = 999')
    newer.close()
    const refused = await runUntilIdle(log)
    expect(refused).toMatchObject({ code: 3 })
    expect(refused.err).toContain('has layout version 999')
  })

  it('reads a topic of plain text', async () => {
    const log = newLog()
    await json('topics', 'apply', '--log', log, '--input-topic', 'harbour')
    await withLog(log, async (open) => {
      const key = Buffer.from('s')
      await open.append('harbour', [
        { key, value: Buffer.from('{"type":"close"}') },
        { key, value: Buffer.from([0xff, 0x61]) },
        { key, value: null },
      ])
    })
    const ended = await runUntilIdle(log, '--input-topic', 'harbour', '--input-format', 'text')
    expect(ended).toMatchObject({ code: 0 })
    const [row] = await json<SessionRow>('sessions', '--log', log, '--input-topic', 'harbour')
    expect(row).toMatchObject({ session: 's', status: 'open', pulse: 18 })
  })

  it('serves metrics, health and readiness', { tags: 'slow' }, async () => {
    const log = newLog()
    await feed(log, 's', PAGE, ...generating)
    await continuo(['feed', '--log', log, '--session', 'empty', '--generate', '3'])
    const running = start([
      'run',
      '--log',
      log,
      '--model',
      MODEL,
      '--metrics-port',
      '0',
      '--json',
      '--log-level',
      'silent',
    ])
    const [, url] = await running.saw(/"metrics":"(http:[^"]+)"/)
    const size = readFileSync(PAGE).length
    expect((await fetch(`${url}/healthz`)).status).toBe(200)
    await eventually(async () => expect((await fetch(`${url}/readyz`)).status).toBe(200))
    const metrics = await eventually(async () => {
      const text = await (await fetch(`${url}/metrics`)).text()
      expect(text).toContain('continuo_tokens_generated_total 200\n')
      expect(text).toContain('continuo_dead_letters_total 1\n')
      expect(text).toContain('continuo_lag_records{partition="0"} 0\n')
      return text
    })
    expect(metrics).toContain(`continuo_tokens_read_total ${size}\n`)
    expect(metrics).toContain('continuo_task_state{partition="0",state="running"} 1\n')
    expect(metrics).not.toContain('state="restoring"')
    expect(metrics).toContain('continuo_sessions{partition="0"} 1\n')
    expect(metrics).toContain('continuo_live_contexts{partition="0"} 1\n')
    expect(metrics).toMatch(/continuo_context_bytes\{partition="0"\} [1-9]\d{3,}\n/)
    expect(metrics).toMatch(/^continuo_commit_seconds_count [1-9]/m)
    expect(metrics).toMatch(/^continuo_engine_items_total [1-9]/m)
    const board = boardSchema.parse(await (await fetch(`${url}/board`)).json())
    expect(board.partitions).toMatchObject([{ partition: 0, state: 'running', sessions: 1, records: 0 }])
    expect(board.events.map(({ state }) => state)).toContain('running')
    const newer = boardSchema.parse(await (await fetch(`${url}/board?event=${board.events.at(-1)!.seq}`)).json())
    expect(newer).toMatchObject({ instance: board.instance, events: [] })
    expect((await fetch(`${url}/nothing`)).status).toBe(404)
    expect((await fetch(`${url}/metrics`, { method: 'POST' })).status).toBe(405)
    running.child.kill('SIGTERM')
    expect(await running.done).toMatchObject({ code: 0 })
  })

  it('is not ready while the state of one partition refuses, runs the others, and ends with 3 on SIGTERM and when idle', {
    tags: 'slow',
  }, async () => {
    const log = newLog()
    await json('topics', 'apply', '--log', log, '--partitions', '2')
    await withLog(log, async (open) => {
      await open.append('continuo.state', [{ key: Buffer.from('s'), value: Buffer.from('{}') }], 1)
      await open.append(
        'continuo.chunks',
        [{ key: Buffer.from('a'), value: Buffer.from('{"type":"text","text":"abc"}') }],
        0,
      )
    })
    const running = start([
      'run',
      '--log',
      log,
      '--model',
      MODEL,
      '--metrics-port',
      '0',
      '--json',
      '--log-level',
      'silent',
    ])
    const [, url] = await running.saw(/"metrics":"(http:[^"]+)"/)
    const state = await eventually(async () => {
      const answer = await fetch(`${url}/readyz`)
      const body = (await answer.json()) as { partitions: { state: string }[] }
      expect(body.partitions.map((partition) => partition.state)).toEqual(['running', 'refused'])
      expect(answer.status).toBe(503)
      return body
    })
    expect(state).toMatchObject({
      ready: false,
      reason: expect.stringMatching(
        /^Partition 1 is refused: The state record at continuo\.state, partition 1, offset 0 /,
      ),
    })
    running.child.kill('SIGTERM')
    expect(await running.done).toMatchObject({ code: 3, signal: null })
    const ended = await runUntilIdle(log)
    expect(ended.code).toBe(3)
    expect(ended.err).toContain('continuo.state, partition 1, offset 0')
    const seen = await continuo(['sessions', '--log', log])
    expect(seen.code).toBe(1)
    expect(seen.out).toMatch(/^a .* 3 /m)
    expect(seen.err).toContain('continuo.state, partition 1, offset 0')
  })

  it('does not take a port that is in use for granted', { tags: 'slow' }, async () => {
    const log = newLog()
    const first = start([
      'run',
      '--log',
      log,
      '--model',
      MODEL,
      '--metrics-port',
      '0',
      '--json',
      '--log-level',
      'silent',
    ])
    const [, url] = await first.saw(/"metrics":"(http:[^"]+)"/)
    const second = await runUntilIdle(newLog(), '--metrics-port', new URL(url!).port)
    expect(second.code).toBe(1)
    expect(second.err).toContain('Choose another --metrics-port')
    first.child.kill('SIGTERM')
    expect(await first.done).toMatchObject({ code: 0 })
  })

  it('ends in order, too, when only the npm that started it hears the SIGTERM', { tags: 'slow' }, async () => {
    const log = newLog()
    await feed(log, 's', PAGE)
    const npm = spawn('npm', ['run', '--silent', 'continuo', '--', 'run', '--log', log, '--model', MODEL, '--json'], {
      cwd: ROOT,
      stdio: ['ignore', 'pipe', 'ignore'],
    })
    // Its end is the worker's: npm itself dies at once.
    const ended = once(npm.stdout, 'end')
    await eventually(async () => expect((await sessionRow(log, 's')).complete).toBe(true))
    npm.stdout.resume()
    npm.kill('SIGTERM')
    await ended
    expect((await sessionRow(log, 's')).snapshotAge).toBe(0)
  })
})
