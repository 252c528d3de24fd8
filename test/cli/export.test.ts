// @module-tag slow
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { openPackage } from '../../src/models/open.ts'
import { openLog } from '../../src/streams/open.ts'
import { topicNames } from '../../topics/index.ts'
import type { Generated } from '../../topics/tokens.ts'
import { enormous, plant } from '../operators/planting.ts'
import { forged } from '../sessions/forged.ts'
import {
  continuo,
  DOCUMENT,
  eventually,
  json,
  MODEL,
  recordsOf,
  runUntilIdle,
  sessionRow,
  start,
  temporary,
  valuesOf,
} from './helpers.ts'

const folder = temporary()
let files = 0
const newLog = (): string => `file:${join(folder, `log-${++files}.db`)}`
const newFile = (): string => join(folder, `state-${++files}.safetensors`)
const request = (id: string): string[] => [
  '--generate',
  '60',
  '--request-id',
  id,
  '--temperature',
  '0.7',
  '--seed',
  '11',
]
const textOf = async (log: string, requestId: string): Promise<string> =>
  valuesOf<Generated>(await recordsOf(log, 'continuo.tokens'))
    .filter((event) => event.requestId === requestId)
    .map(({ text }) => text)
    .join('')
const importing = (log: string, session: string, file: string): string[] => [
  ...['import', '--log', log, '--session', session, file, '--model', MODEL],
]

/** A log whose session "s" has read the document; and what it goes on to say. */
const original = async (): Promise<{
  log: string
  file: string
  continuation: () => Promise<{ text: string; chain: string }>
}> => {
  const log = newLog()
  await json('feed', DOCUMENT, '--log', log, '--session', 's')
  expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
  const file = newFile()
  await json('export', '--log', log, '--session', 's', file)
  return {
    log,
    file,
    async continuation() {
      await json('feed', '--log', log, '--session', 's', ...request('next'))
      expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
      return { text: await textOf(log, 'next'), chain: (await sessionRow(log, 's')).chain }
    },
  }
}

describe('continuo export and import', () => {
  it('carry a session into another log, where it goes on with the same bits', async () => {
    const { log, file, continuation } = await original()
    const before = await sessionRow(log, 's')
    const other = newLog()
    const [told] = await json(...importing(other, 'copy', file))
    expect(told).toMatchObject({ session: 'copy', from: 's', pulse: before.pulse, chain: before.chain })
    expect(await sessionRow(other, 'copy')).toMatchObject({
      pulse: before.pulse,
      chain: before.chain,
      tokens: before.tokens,
      snapshotAge: 0,
    })
    await json('feed', '--log', other, '--session', 'copy', ...request('next'))
    expect(await runUntilIdle(other)).toMatchObject({ code: 0 })
    const whole = await continuation()
    expect(await textOf(other, 'next')).toBe(whole.text)
    expect((await sessionRow(other, 'copy')).chain).toBe(whole.chain)
  })

  it('exports what is not at a snapshot by replaying, and says when it needs the model for that', async () => {
    const log = newLog()
    await json('feed', DOCUMENT, '--log', log, '--session', 's', '--chunk-bytes', '20000')
    const killed = await continuo(
      [
        'run',
        '--log',
        log,
        '--model',
        MODEL,
        '--snapshot-every',
        '1000',
        '--commit-interval',
        '10',
        '--until-idle',
        '50',
      ],
      {
        env: { CONTINUO_FAILPOINT: 'snapshot.written' },
      },
    )
    expect(killed.signal).toBe('SIGKILL')
    const half = await sessionRow(log, 's')
    expect(half.pulse).toBeGreaterThan(0)
    expect(half.snapshotAge).toBeNull()
    // The one record of the document is longer than what is read until the first snapshot is written.
    expect(half.complete).toBe(false)
    const file = newFile()
    const without = await continuo(['export', '--log', log, '--session', 's', file])
    expect(without.code).toBe(1)
    expect(without.err).toContain('--model DIR')
    expect(existsSync(file)).toBe(false)
    const [told] = await json('export', '--log', log, '--session', 's', file, '--model', MODEL)
    expect(told).toMatchObject({ pulse: half.pulse, chain: half.chain, complete: false })
    const middle = await continuo(importing(newLog(), 'copy', file))
    expect(middle.code).toBe(1)
    expect(middle.err).toContain('in the middle of the record')
  })

  it('an imported session survives a kill, a close and a new beginning', async () => {
    const { file, continuation } = await original()
    const log = newLog()
    await json(...importing(log, 'copy', file))
    await json('feed', '--log', log, '--session', 'copy', ...request('next'))
    const killed = await continuo(
      ['run', '--log', log, '--model', MODEL, '--session-timeout', '300', '--until-idle', '50'],
      {
        env: { CONTINUO_FAILPOINT: 'commit.noted@2' },
      },
    )
    expect(killed.signal).toBe('SIGKILL')
    expect(await runUntilIdle(log, '--session-timeout', '300')).toMatchObject({ code: 0 })
    const whole = await continuation()
    expect(await textOf(log, 'next')).toBe(whole.text)
    expect((await sessionRow(log, 'copy')).chain).toBe(whole.chain)
    await json('feed', '--log', log, '--session', 'copy', '--close')
    expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
    await json('feed', DOCUMENT, '--log', log, '--session', 'copy', '--surprisal')
    const again = await continuo(
      ['run', '--log', log, '--model', MODEL, '--session-timeout', '300', '--until-idle', '50'],
      {
        env: { CONTINUO_FAILPOINT: 'commit.noted@2' },
      },
    )
    expect(again.signal).toBe('SIGKILL')
    expect(await runUntilIdle(log, '--session-timeout', '300')).toMatchObject({ code: 0, err: '' })
    expect(await sessionRow(log, 'copy')).toMatchObject({ status: 'open', complete: true })
  })

  it('import takes the partition from a running worker for a moment, and the worker goes on with both sessions', async () => {
    const { file, continuation } = await original()
    const log = newLog()
    await json('feed', DOCUMENT, '--log', log, '--session', 'old')
    const running = start(['run', '--log', log, '--model', MODEL])
    await eventually(async () => expect((await sessionRow(log, 'old')).complete).toBe(true))
    await json(...importing(log, 'copy', file))
    await json('feed', '--log', log, '--session', 'old', ...request('old'))
    await json('feed', '--log', log, '--session', 'copy', ...request('next'))
    const whole = await continuation()
    await eventually(async () => expect((await sessionRow(log, 'copy')).chain).toBe(whole.chain))
    await eventually(async () => expect((await sessionRow(log, 'old')).generated).toBe(60))
    expect(await textOf(log, 'next')).toBe(whole.text)
    running.child.kill('SIGTERM')
    expect(await running.done).toMatchObject({ code: 0 })
  })

  it('import refuses a session that exists, a damaged file and a file of another kind', async () => {
    const { log, file } = await original()
    const existing = await continuo(importing(log, 's', file))
    expect(existing).toMatchObject({ code: 1 })
    expect(existing.err).toContain('exists already')
    const bytes = readFileSync(file)
    bytes[bytes.length - 1_000]! ^= 0x40
    const damaged = newFile()
    writeFileSync(damaged, bytes)
    const other = newLog()
    const refused = await continuo(importing(other, 'copy', damaged))
    expect(refused).toMatchObject({ code: 3 })
    expect(refused.err).toContain('fails its checksum')
    const wrong = await continuo(importing(other, 'copy', join(MODEL, 'model.safetensors')))
    expect(wrong).toMatchObject({ code: 1, out: '' })
    expect(wrong.err).toBe(
      `${join(MODEL, 'model.safetensors')} is not a file that continuo export wrote. Nothing was changed.\n`,
    )
    const text = await continuo(importing(other, 'copy', DOCUMENT))
    expect(text).toMatchObject({ code: 1 })
    expect(text.err).toContain('is not a file that continuo export wrote')
    const short = newFile()
    writeFileSync(short, bytes.subarray(0, 1000))
    expect(await continuo(importing(other, 'copy', short))).toMatchObject({ code: 3 })
    const place = await continuo(importing(other, 'copy', folder))
    expect(place).toMatchObject({ code: 2 })
    expect(place.err).toContain('is a folder')
    const missing = await continuo(importing(other, 'copy', join(folder, 'nothing')))
    expect(missing.code).toBe(1)
    expect(existsSync(other.slice('file:'.length))).toBe(false)
    expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
  })

  it('a head that no worker could go on with is refused at the door, and the log stays as it was', async () => {
    const { log, file } = await original()
    const before = await sessionRow(log, 's')
    const forgeries = {
      pulse: forged(readFileSync(file), {
        head: (head) => {
          const end = Number.MAX_SAFE_INTEGER
          return {
            ...head,
            cursor: { ...head.cursor, pulse: end, rng: end },
            conductor: { ...head.conductor, globalStep: end },
          }
        },
      }),
      generation: forged(readFileSync(file), {
        head: (head) => ({ ...head, generation: { index: 16, unfinished: '', tail: '' } }),
      }),
      state: forged(readFileSync(file), { state: enormous }),
    }
    const sentences = {
      pulse: 'may stand at 4503599627370496 (2^52) at most',
      generation: 'a generation is in progress at token 16, and its record is finished',
      state: 'with the next token its state stops being finite',
    }
    for (const [name, bytes] of Object.entries(forgeries)) {
      const hostile = newFile()
      writeFileSync(hostile, bytes)
      const refused = await continuo(importing(log, 'guest', hostile))
      expect([1, 3], name).toContain(refused.code)
      expect(refused.err, name).toContain(sentences[name as keyof typeof sentences])
    }
    await json('feed', '--log', log, '--session', 's', ...request('next'))
    expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
    expect((await sessionRow(log, 's')).pulse).toBe(before.pulse + 60)
    expect((await continuo(['sessions', '--log', log, '--session', 'guest'])).code).toBe(1)
  })

  it('what was set aside is shown by sessions and doctor, and not exported', async () => {
    const { log } = await original()
    const opened = await openLog(log)
    try {
      const { model } = await openPackage(MODEL, { threads: 1 })
      await plant({ log: opened, names: topicNames(opened.prefix), model }, 's', { state: enormous }, 'continuo')
      model.close()
    } finally {
      await opened.close()
    }
    await json('feed', '--log', log, '--session', 's', ...request('next'))
    expect((await runUntilIdle(log)).code).toBe(0)
    expect(await sessionRow(log, 's')).toMatchObject({ status: 'stopped', stopped: { cause: 'computation' } })
    const shown = await continuo(['sessions', '--log', log])
    expect(shown).toMatchObject({
      code: 0,
      out: expect.stringContaining('Session "s" was set aside: its state stopped'),
    })
    const doctor = await continuo(['doctor', '--log', log])
    expect(doctor.out).toMatch(/1 session set aside: Session "s" was set aside/)
    const refused = await continuo(['export', '--log', log, '--session', 's', newFile()])
    expect(refused).toMatchObject({ code: 1, err: expect.stringContaining('There is no memory to export') })
  })

  it('export refuses a session that is not there or closed', async () => {
    const log = newLog()
    const nothing = await continuo(['export', '--log', log, '--session', 's', newFile()])
    expect(nothing).toMatchObject({ code: 1 })
    expect(nothing.err).toContain('There is no log at')
    await json('feed', '--log', log, '--session', 's', '--close')
    expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
    const closed = await continuo(['export', '--log', log, '--session', 's', newFile()])
    expect(closed.code).toBe(1)
    expect(closed.err).toContain('is closed')
    const unknown = await continuo(['export', '--log', log, '--session', 't', newFile()])
    expect(unknown.err).toContain('There is no session "t"')
  })

  it('does not write over a file that is there, unless told to', async () => {
    const { log, file } = await original()
    writeFileSync(file, 'the only copy of something')
    for (const more of [[], ['--json']]) {
      const refused = await continuo(['export', '--log', log, '--session', 's', file, ...more])
      expect([refused.code, refused.err]).toEqual([2, expect.stringContaining('--force')])
      expect(readFileSync(file, 'utf8')).toBe('the only copy of something')
    }
    const [told] = await json('export', '--log', log, '--session', 's', file, '--force')
    expect(told).toMatchObject({ session: 's', bytes: readFileSync(file).length })
  })
})
