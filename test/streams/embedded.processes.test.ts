/** Several processes at one file. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { processName } from '../../src/process-name.ts'
import { openEmbeddedLog } from '../../src/streams/embedded/log.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { eventually, readAll, record, watch } from './helpers.ts'

describe('several processes at one file', { timeout: 60_000 }, () => {
  const script = fileURLToPath(new URL('./child.ts', import.meta.url))
  let folder = ''
  let url = ''
  let log: EventLog
  const children: ChildProcess[] = []
  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'continuo-processes-'))
    url = `file:${join(folder, 'log.db')}?prefix=p`
    log = await openEmbeddedLog(url, { sessionTimeout: 500 })
    await log.createTopics(['in', 'a', 'b'].map((name) => ({ name: `p.${name}`, partitions: 6, config: {} })))
  })
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
    await log.close()
    rmSync(folder, { recursive: true })
  })

  const start = (role: string, sessionTimeout = 500) => {
    const child = fork(script, [role, url, 'g', 'p', String(sessionTimeout)], { execArgv: [] })
    children.push(child)
    const messages: { committed?: number; assignment?: { partitions: number[] } }[] = []
    child.on('message', (message) => messages.push(message as (typeof messages)[number]))
    return { child, messages }
  }

  test('see a transaction in all its topics at the same moment', async () => {
    const { messages } = start('committer')
    let looks = 0
    while ((messages.at(-1)?.committed ?? 0) < 150) {
      // Both ends move in one step, so whatever lies between two looks at a, b lies between them too.
      const before = (await log.bounds('p.a', 0)).end
      const between = (await log.bounds('p.b', 0)).end
      const offset = ((await log.committed('g', 'p.in', 0)) ?? 0) * 20
      const after = (await log.bounds('p.a', 0)).end
      expect(before).toBeLessThanOrEqual(between)
      expect(between).toBeLessThanOrEqual(offset)
      expect(offset).toBeLessThanOrEqual(after)
      expect(between % 20).toBe(0)
      if (++looks % 5 === 0) await new Promise((resolve) => setImmediate(resolve))
    }
    expect(looks).toBeGreaterThan(100)
  })

  test('wait for each other: nothing is lost, nothing is twice, and partitions do not mix', async () => {
    const { messages } = start('committer')
    await eventually(() => expect(messages.length).toBeGreaterThan(0))
    for (let n = 0; n < 100; n++) {
      await log.append('p.a', [record(`mine ${n}`)], n % 2) // Also into the partition of the child.
      await new Promise((resolve) => setImmediate(resolve))
    }
    const target = messages.length + 3
    await eventually(() => expect(messages.length).toBeGreaterThan(target))
    const numbers = async (partition: number, mine: boolean) =>
      (await readAll(log, 'p.a', partition))
        .map(({ value }) => Buffer.from(value!).toString())
        .filter((value) => value.startsWith('mine') === mine)
        .map((value) => Number.parseInt(value.replace('mine ', ''), 10))
    expect(await numbers(0, true)).toEqual(Array.from({ length: 50 }, (_, i) => 2 * i))
    expect(await numbers(1, true)).toEqual(Array.from({ length: 50 }, (_, i) => 2 * i + 1))
    const theirs = await numbers(0, false)
    expect(theirs).toEqual(theirs.map((_, i) => 1 + Math.floor(i / 20)))
  })

  test('share the partitions of a group, whoever comes, leaves or is killed', { tags: 'slow' }, async () => {
    const mine = watch(await log.join('g', 'p.in'))
    const workers = [start('member'), start('member'), start('member')]
    const all = [0, 1, 2, 3, 4, 5]
    const covered = (living: typeof workers, share: readonly number[]): Promise<void> =>
      eventually(() => {
        const lists = [mine.now(), ...living.map(({ messages }) => messages.at(-1)?.assignment?.partitions ?? [])]
        expect(lists.flat().sort()).toEqual(all)
        expect(lists.map((list) => list.length).sort()).toEqual(share)
      })
    await covered(workers, [1, 1, 2, 2])
    workers[0]!.child.kill('SIGKILL')
    await covered(workers.slice(1), [2, 2, 2])
    workers[1]!.child.kill('SIGKILL')
    workers[2]!.child.kill('SIGKILL')
    await covered([], [6])
    await covered([start('member')], [3, 3])
  })

  test.runIf(processName() !== null)('do not wait for the lease of a process that was killed', async () => {
    const hour = 3_600_000
    const { child, messages } = start('member', hour)
    await eventually(() => expect(messages.at(-1)?.assignment?.partitions.length).toBe(6))
    child.kill('SIGKILL')
    await once(child, 'exit')
    const patient = await openEmbeddedLog(url, { sessionTimeout: hour })
    const membership = await patient.join('g', 'p.in')
    expect(watch(membership).now()).toEqual([0, 1, 2, 3, 4, 5])
    await patient.close()
  })
})
