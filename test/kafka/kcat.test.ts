/**
 * kcat, which is librdkafka on the command line, before and behind a worker: as in docs/streams.md.
 *
 * @module-tag slow
 */
import { spawnSync } from 'node:child_process'
import { describe, expect, inject, test } from 'vitest'
import type { Generated } from '../../topics/tokens.ts'
import { continuo, json, MODEL, ROOT } from '../cli/helpers.ts'
import { freshPrefix } from './broker.ts'

const { brokers, missing } = inject('kafka')
const installed = spawnSync('kcat', ['-V']).status === 0
const why = brokers === null ? `no Kafka here: ${missing}` : 'kcat is not installed'

const kcat = (args: readonly string[], input = ''): string => {
  const { status, stdout, stderr } = spawnSync('kcat', ['-b', brokers!, ...args], { input, encoding: 'utf8' })
  if (status !== 0) throw new Error(`kcat ${args.join(' ')} ended with ${status}: ${stderr}`)
  return stdout
}
const produce = (topic: string, lines: readonly string[], ...args: readonly string[]): string =>
  kcat(['-P', '-t', topic, ...args], lines.map((each) => `${each}\n`).join(''))
const consume = (topic: string, format: string): readonly string[] =>
  kcat(['-C', '-t', topic, '-o', 'beginning', '-e', '-q', '-X', 'isolation.level=read_committed', '-f', `${format}\n`])
    .split('\n')
    .filter((each) => each !== '')

const newLog = async (partitions: number, ...more: readonly string[]) => {
  const prefix = freshPrefix()
  const log = `kafka://${brokers}/${prefix}`
  const applied = await continuo(['topics', 'apply', '--log', log, '--partitions', String(partitions), ...more])
  // A port that was left out is one that somebody has to see.
  expect(applied.out).toContain(` each, in ${log}.`)
  return { prefix, log }
}
const run = async (log: string, ...more: readonly string[]): Promise<void> => {
  const group = ['--group', log.split('/').at(-1)!, '--until-idle', '50', '--log-level', 'silent']
  const { code, err, out } = await continuo(['run', '--log', log, '--model', MODEL, ...group, ...more])
  expect(code, err + out).toBe(0)
}

const TEXT = 'user1:{"type":"text","text":"The harbour was quiet. "}'
const ASK = 'user1:{"type":"generate","requestId":"r1","maxTokens":20,"temperature":0}'

describe.skipIf(brokers === null || !installed)(`kcat${brokers === null || !installed ? ` (${why})` : ''}`, () => {
  test('with either partitioner feeds one memory of a name, and reads what came of it', async () => {
    // As kcat comes: the worker is told so, and feed finds the same session.
    const { prefix, log } = await newLog(8)
    produce(`${prefix}.chunks`, [TEXT], '-K:')
    await run(log, '--key-partitioner', 'crc32')
    await json(
      'feed',
      '--log',
      log,
      '--session',
      'user1',
      '--generate',
      '20',
      '--request-id',
      'r1',
      '--temperature',
      '0',
    )
    await run(log, '--key-partitioner', 'crc32')
    const texts = consume(`${prefix}.tokens`, '%p %k %s').map((each) => each.split(' ', 2).join(' '))
    expect(new Set(texts)).toEqual(new Set(['5 user1']))
    const said = (topic: string): string =>
      consume(topic, '%s')
        .map((each) => (JSON.parse(each) as Generated).text)
        .join('')
    const first = said(`${prefix}.tokens`)

    // Told to do as Java does, it needs nothing of the worker; as it comes, its record is refused in a sentence.
    const java = await newLog(8)
    produce(`${java.prefix}.chunks`, [TEXT, ASK], '-K:', '-X', 'partitioner=murmur2_random')
    produce(`${java.prefix}.chunks`, [TEXT], '-K:')
    await run(java.log)
    expect(said(`${java.prefix}.tokens`)).toBe(first)
    expect(await json('sessions', '--log', java.log)).toMatchObject([{ session: 'user1', partition: 2 }])
    const [reason] = consume(`${java.prefix}.deadletters`, '%h')
    expect(reason).toMatch(/continuo-reason=Session "user1" belongs to partition 2 .* set partitioner=murmur2_random/)
    for (const each of [log, java.log])
      expect(await continuo(['verify', '--log', each, '--model', MODEL])).toMatchObject({ code: 0 })
  })

  test('runs the example', () => {
    const env = { ...process.env, CONTINUO: `${process.execPath} src/cli/main.ts`, MODEL }
    const done = spawnSync('sh', ['examples/kcat.sh', brokers!], { cwd: ROOT, env, encoding: 'utf8' })
    expect(done.status, done.stderr).toBe(0)
    for (const name of ['ann', 'bob'])
      expect(done.stdout).toMatch(new RegExp(`^${name} .*"requestId":"${name}-1","index":16,.*"finish":"length"`, 'm'))
    expect(done.stderr).not.toContain('dead letter')
  })

  test('feeds a topic of plain text without keys, and CloudEvents in, and gets CloudEvents out', async () => {
    const topic = `${freshPrefix()}-lines`
    const { prefix, log } = await newLog(1, '--input-topic', topic)
    const attributes = { specversion: '1.0', id: 'e-1', source: '/logs', type: 'log.line' }
    const headers = Object.entries(attributes).flatMap(([name, value]) => ['-H', `ce_${name}=${value}`])
    produce(topic, ['All quiet.'], ...headers, '-H', 'traceparent=00-1')
    produce(topic, ['Still quiet.'], ...headers, '-H', 'continuo-generate={"maxTokens":4,"temperature":0}')
    const rules = ['--input-format', 'text', '--session-from', 'constant:harbour', '--cloudevents']
    await run(log, '--input-topic', topic, ...rules, '--generate-header', 'continuo-generate')
    const [token] = consume(`${prefix}.tokens`, '%k %h')
    expect(token).toMatch(
      /^harbour continuo-generate=.*,ce_specversion=1\.0,ce_id=[0-9a-f]{64},ce_source=urn:continuo:topic:/,
    )
    const all = [...consume(`${prefix}.tokens`, '%h'), ...consume(`${prefix}.observations`, '%h')]
    expect(all.length).toBeGreaterThan(3)
    const identities = all.map((each) => /ce_id=([^,]*).*ce_source=([^,]*)/.exec(each)!.slice(1).join(' '))
    expect(new Set(identities).size).toBe(all.length)
    expect(identities.join()).not.toContain('e-1 ')
    expect(all.filter((each) => each.startsWith('traceparent=00-1,')).length).toBeGreaterThan(0)
  })
})
