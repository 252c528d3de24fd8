/**
 * Topics that others feed, by the command line: what is refused before it can do harm, and what is told where it was
 * done.
 *
 * @module-tag slow
 */
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { RecordIn } from '../../src/streams/log.ts'
import { continuo, json, MODEL, recordsOf, runUntilIdle, temporary, withLog } from './helpers.ts'

const folder = temporary()
const logAt = (name: string): string => `file:${join(folder, `${name}.db`)}`
const line = (text: string, key: string | null = null): RecordIn => ({
  key: key === null ? null : Buffer.from(key),
  value: Buffer.from(text),
})
const topicsOf = (log: string): Promise<string[]> =>
  withLog(log, async (open) => (await open.topics(['lines', 'lnies'])).map(({ name }) => name).sort())

describe('a topic of plain text', () => {
  it('is not created by a typo, asks for tokens by rule, and gets no events', async () => {
    const log = logAt('text')
    await json('topics', 'apply', '--log', log, '--input-topic', 'lines')
    const there = await topicsOf(log)
    await withLog(log, (open) =>
      open.append(
        'lines',
        ['One. ', 'Two. ', 'Three. '].map((text) => line(text)),
      ),
    )

    const typo = await runUntilIdle(log, '--input-topic', 'lnies', '--input-format', 'text')
    expect(typo.code).toBe(2)
    expect(typo.err).toMatch(/has no topic lnies, and a topic that --input-topic names is not created.*topics apply/)
    const feed = ['feed', '--log', log, '--session', 's', '--generate', '3'] as const
    expect(await continuo([...feed, '--input-topic', 'lnies'])).toMatchObject({ code: 2 })
    expect(await topicsOf(log)).toEqual(there)

    // Before a worker has said how the topic is read, its records tell.
    const early = await continuo([...feed, '--input-topic', 'lines'])
    expect(early).toMatchObject({ code: 1, out: '' })
    expect(early.err).toMatch(/lines holds records that are no events, so it looks like a topic of plain text/)

    const rules = ['--session-from', 'partition', '--generate-every', '2', '--generate-request', '{"maxTokens":6}']
    const ended = await runUntilIdle(log, '--input-topic', 'lines', '--input-format', 'text', ...rules)
    expect(ended, ended.err).toMatchObject({ code: 0 })
    expect(await recordsOf(log, 'continuo.tokens')).toHaveLength(1)

    const late = await continuo([...feed, '--input-topic', 'lines'])
    expect(late.err).toMatch(/lines is read with --input-format text: an event as JSON would be read as text/)
    expect(await recordsOf(log, 'lines')).toHaveLength(3)
    // What was chosen is kept: verify needs none of it, and a run that says something else is refused with both.
    const verify = ['verify', '--log', log, '--model', MODEL, '--input-topic', 'lines', '--input-format', 'text']
    expect(await continuo(verify)).toMatchObject({ code: 0 })
    const other = await runUntilIdle(log, '--input-topic', 'lines', '--input-format', 'text')
    expect(other.code).toBe(3)
    expect(other.err).toMatch(/was read with .*--session-from partition .*--generate-every 2 .*and now with .*from key/)
  })
})

describe('a session in two partitions', () => {
  it('is named by sessions and doctor, and export asks which one is meant', async () => {
    const log = logAt('double')
    await json('topics', 'apply', '--log', log, '--partitions', '2')
    await withLog(log, async (open) => {
      for (const partition of [0, 1])
        await open.append('continuo.chunks', [line('{"type":"text","text":"Hi"}', 'user1')], partition)
    })
    expect(await runUntilIdle(log, '--key-partitioner', 'any')).toMatchObject({ code: 0 })
    const told = /Session "user1" stands in partitions 0 and 1, each with a memory of its own.*murmur2_random/s
    expect((await continuo(['sessions', '--log', log])).out).toMatch(told)
    const doctor = await continuo(['doctor', '--log', log])
    expect(doctor.out).toMatch(told)
    const file = join(folder, 'user1.safetensors')
    const exporting = ['export', file, '--log', log, '--session', 'user1']
    const which = await continuo(exporting)
    expect(which.code).toBe(1)
    expect(which.err).toMatch(
      /stands in 2 partitions.*0 \(at pulse 2\), 1 \(at pulse 2\)\. Say which one: --partition N/,
    )
    expect(await continuo([...exporting, '--partition', '1'])).toMatchObject({ code: 0 })
    expect((await continuo([...exporting, '--partition', '7', '--force'])).err).toMatch(
      /no session "user1" in partition 7/,
    )
  })
})

describe('a client of ours', () => {
  it('sends where its worker says, and says so where it was told something else', async () => {
    const log = logAt('crc32')
    await json('topics', 'apply', '--log', log, '--partitions', '8')
    const feed = ['feed', '--log', log, '--session', 'user1', '--surprisal'] as const
    // No worker yet: as it is told.
    expect(await json(...feed, '--key-partitioner', 'crc32')).toMatchObject([{ partition: 5 }])
    expect(await runUntilIdle(log, '--key-partitioner', 'crc32')).toMatchObject({ code: 0 })
    expect(await json(...feed)).toMatchObject([{ partition: 5 }])
    expect(await json('cancel', 'user1', 'r', '--log', log)).toMatchObject([{ partition: 5 }])
    const other = await continuo([...feed, '--key-partitioner', 'murmur2'])
    expect(other.code).toBe(1)
    expect(other.err).toMatch(/is read with --key-partitioner crc32, and not with murmur2/)
  })
})
