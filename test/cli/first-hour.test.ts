/**
 * What a worker and doctor say of themselves before anybody asks: a model without text, a partition that refuses, how
 * much is left to read, and whom a new worker waits for.
 *
 * @module-tag slow
 */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, inject, test } from 'vitest'
import { namesOf } from '../../src/client/topics.ts'
import { safetensors, writePackageTo } from '../engine/safetensors.ts'
import { freshPrefix } from '../kafka/broker.ts'
import { BASE, randomDecoder } from '../models/decoders.ts'
import { continuo, json, MODEL, runUntilIdle, start, temporary, withLog } from './helpers.ts'

interface Told {
  readonly name: string
  readonly status: string
  readonly detail: string
}

test('doctor says how much is left to read, and that a partition would refuse to go on', async () => {
  const folder = temporary()
  const log = `file:${join(folder, 'log.db')}`
  const looked = async (): Promise<{ readonly code: number | null; readonly checks: readonly Told[] }> => {
    const { code, out } = await continuo(['doctor', '--log', log, '--json'])
    const { checks } = JSON.parse(out) as { readonly checks: readonly Told[] }
    return { code, checks }
  }
  const named = (checks: readonly Told[], name: string) => checks.filter((check) => check.name === name)
  const feed = (text: string) => continuo(['feed', '-', '--log', log, '--session', 'tale'], { input: text })
  expect((await feed('One.')).code).toBe(0)
  expect(named((await looked()).checks, 'lag')).toMatchObject([
    { status: 'ok', detail: '1 offset to read (partition 0: 1)' },
  ])
  expect((await runUntilIdle(log)).code).toBe(0)
  const well = await looked()
  expect(named(well.checks, 'lag')).toMatchObject([{ status: 'ok', detail: 'every event of the input was read' }])
  expect(named(well.checks, 'resume')).toEqual([])

  expect((await feed('Two.')).code).toBe(0)
  await withLog(log, async (opened) => opened.trim(namesOf(opened).chunks, 0, 2))
  const broken = await looked()
  expect(broken.code).toBe(1)
  expect(named(broken.checks, 'resume')).toMatchObject([
    { status: 'fail', detail: 'partition 0: the cursor stands at offset 1 and the input holds 2 to 2' },
  ])
  // As a worker says it.
  expect((await runUntilIdle(log)).code).toBe(3)
})

test('run says at its start that a model has no text', async () => {
  const folder = temporary()
  const log = `file:${join(folder, 'log.db')}`
  expect((await runUntilIdle(log)).err).not.toContain('has no text')
  const model = join(folder, 'model')
  mkdirSync(model)
  writePackageTo(model, BASE, safetensors(randomDecoder(12, BASE), 'BF16'))
  const { code, err } = await continuo([
    'run',
    '--log',
    `${log}2`,
    '--model',
    model,
    '--until-idle',
    '50',
    '--log-level',
    'warn',
  ])
  expect(code).toBe(0)
  expect(err).toContain('This model has no text')
})

const { brokers, missing } = inject('kafka')
test.skipIf(brokers === null)(
  `after a kill the next worker says whom it waits for (Kafka: ${missing ?? 'there'})`,
  async () => {
    const log = `kafka://${brokers}/${freshPrefix()}`
    const run = ['run', '--log', log, '--model', MODEL, '--group', 'killed', '--json']
    const first = start(run)
    await first.saw(/partition 0 running/)
    first.child.kill('SIGKILL')
    await first.done
    const second = start([...run, '--until-idle', '50'])
    await second.saw(/waiting for group \\?"killed\\?" to give out its partitions/)
    expect((await second.done).code).toBe(0)
    expect(await json('sessions', '--log', log)).toEqual([])
  },
)
