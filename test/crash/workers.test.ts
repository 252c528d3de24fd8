/**
 * Several workers on one stream, and one that hangs: whoever owns a partition, the stream is one.
 *
 * @module-tag slow
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, inject, test } from 'vitest'
import { openLog } from '../../src/streams/open.ts'
import { topicNames } from '../../topics/index.ts'
import { FAMILIES, type FamilyKey, type OpenedFamily, openFamily } from '../families.ts'
import { ownBroker } from '../kafka/broker.ts'
import { eventually } from '../streams/helpers.ts'
import { collect } from './judge.ts'
import { appendAll, createCrashTopics, finish, runWorker, unfinished as unfinishedOf, type WorkerRun } from './life.ts'
import { adapting, greed, remembering, scenario } from './scenario.ts'
import { dozensWith, expectSame } from './suite.ts'

const dir = mkdtempSync(join(tmpdir(), 'continuo-workers-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const rounds = scenario(24, 23)
/** What workers read that join and leave. */
const roundsOf = (key: FamilyKey): typeof rounds =>
  key === 'memory' ? remembering(24) : key === 'perspective' ? adapting(24) : rounds
const rwkv7 = await openFamily('rwkv7', dir)
let runs = 0

/** Committed heads and cursors so far: grows with every commit of whoever commits. */
const commits = async (url: string): Promise<number> => {
  const log = await openLog(url)
  try {
    const { state } = topicNames(log.prefix)
    return (await log.bounds(state, 0)).end + (await log.bounds(state, 1)).end
  } finally {
    await log.close()
  }
}

const moreCommits = async (url: string): Promise<void> => {
  const before = await commits(url)
  await eventually(async () => expect(await commits(url)).toBeGreaterThan(before), 60_000)
}

const freshLog = async (base: string): Promise<string> => {
  const url = base.startsWith('file:') ? `${base}/${runs++}.db` : `${base}/workers-${Date.now().toString(36)}-${runs++}`
  const log = await openLog(url)
  await createCrashTopics(log)
  await log.close()
  return url
}

const judges = new Map<string, ReturnType<typeof collect>>()
/**
 * What one worker leaves that nobody disturbs, by what it reads. The embedded log serves as judge of Kafka too: a
 * stream is the same on both.
 */
const undisturbed = (family: OpenedFamily, read = rounds): ReturnType<typeof collect> => {
  const compute = async () => {
    const url = await freshLog(`file:${dir}`)
    await appendAll(url, read.flat())
    await finish(url, family)
    return collect(url)
  }
  if (read !== rounds) return compute()
  const known = judges.get(family.key) ?? compute()
  judges.set(family.key, known)
  return known
}

/** Everything is finished. A slow machine may take its time; a minute in which nothing was finished is an error. */
const drained = async (url: string): Promise<void> => {
  for (let left = await unfinished(url); left > 0; ) {
    const before = left
    await eventually(async () => {
      left = await unfinished(url)
      expect(left).toBeLessThan(before)
    }, 60_000)
  }
}

/**
 * Of a worker that stands still at a failpoint: it writes no snapshots and compacts nothing, which a thread of its own
 * does in the embedded log. What stands still in such a transaction has SQLite's one lock, and nobody else writes
 * meanwhile.
 */
const ALONE = ['--snapshot-every', '100000000', '--max-contexts', '64', '--compact-floor', '100000000']

/** One letter; T is a process that stands still. */
const stateOf = (pid: number): string =>
  process.platform === 'linux'
    ? readFileSync(`/proc/${pid}/stat`, 'utf8')
        .replace(/^.*\) /s, '')
        .charAt(0)
    : execFileSync('ps', ['-o', 'state=', '-p', String(pid)], { encoding: 'utf8' }).charAt(0)

const stopped = ({ child }: WorkerRun): Promise<void> => eventually(() => expect(stateOf(child.pid!)).toBe('T'), 60_000)

/** It left by itself. One that lost a partition while it drained may say so (1); what the log holds is the judge. */
const ended = async (worker: WorkerRun): Promise<void> => {
  const { code, signal, stderr } = await worker.over
  expect([0, 1], `${signal} ${stderr}`).toContain(code)
  if (code === 1) expect(stderr).toContain('While stopping: ')
}

/** Asks it to stop once it listens: one that is still being loaded would be ended by the signal itself. */
const stop = async (worker: WorkerRun): Promise<void> => {
  await worker.started
  worker.child.kill('SIGTERM')
  await ended(worker)
}

const onLog = (name: string, base: string, without: readonly FamilyKey[]) =>
  describe(`workers on ${name}`, { timeout: 600_000 }, () => {
    test('one that was stopped past its session time-out is fenced, writes nothing more, and the stream is whole', async () => {
      const url = await freshLog(base)
      await appendAll(url, rounds.slice(0, 8).flat())
      // In the middle of its work, with a transaction put together that it will try to send when it wakes.
      const stale = runWorker(url, rwkv7, ALONE, 'commit.prepared@10:stop')
      await stopped(stale)
      await appendAll(url, rounds.slice(8, 16).flat())
      const fresh = runWorker(url, rwkv7)
      // The fresh one has everything to itself once it has finished what came while the other slept.
      await drained(url)
      stale.child.kill('SIGCONT')
      await appendAll(url, rounds.slice(16).flat())
      await drained(url)
      await Promise.all([stop(stale), stop(fresh)])
      // Where the others took so long that a request ran out of time while it slept, it is told of that first.
      expect((await stale.over).stderr).toMatch(/"state":"(migrated","code":"FENCED|lost","code":"UNAVAILABLE)"/)
      expectSame(await collect(url), await undisturbed(rwkv7))
    })

    /** Workers come and go while these rounds are read, `each` of them at a time. */
    const joinAndLeave = async (family: OpenedFamily, read: typeof rounds, each: number): Promise<void> => {
      const url = await freshLog(base)
      let workers = [runWorker(url, family)]
      for (let at = 0; at < read.length; at += each) {
        await appendAll(url, read.slice(at, at + each).flat())
        await eventually(async () => expect(await commits(url)).toBeGreaterThan(0), 60_000)
        workers.push(runWorker(url, family))
        await moreCommits(url)
        const [oldest, ...others] = workers
        if (workers.length > 2) {
          await stop(oldest!)
          workers = others
        }
      }
      await drained(url)
      await Promise.all(workers.map(stop))
      expectSame(await collect(url), await undisturbed(family, read))
    }

    const families = FAMILIES.filter(({ key }) => !without.includes(key))
    for (const { key, name } of families)
      test(
        `that join and leave while streams run leave one whole stream, with ${name}`,
        {
          tags: dozensWith(key),
        },
        async () => joinAndLeave(await openFamily(key, dir), roundsOf(key), 4),
      )
    test(
      'that join and leave beside sessions that ask for far more than can be worked off',
      {
        tags: ['slow', 'long'],
      },
      async () => joinAndLeave(rwkv7, greed(12), 2),
    )
  })

const unfinished = async (url: string): Promise<number> => {
  const log = await openLog(url)
  try {
    return await unfinishedOf(log)
  } finally {
    await log.close()
  }
}

const { brokers, missing } = inject('kafka')
// As in the crash suites: GPT-2 refuses what does not fit on one log, and has a window on the other.
onLog('the embedded log', `file:${dir}`, ['gpt2-window', 'rwkv7-q8'])

if (brokers === null) test.skip(`workers on Kafka (no Kafka here: ${missing})`, () => undefined)
else onLog('Kafka', `kafka://${brokers}`, ['gpt2-refuse', 'rwkv7-q8'])

const { kafka: mortal } = await ownBroker()

describe.skipIf(mortal === undefined)('a broker', { timeout: 300_000 }, () => {
  afterAll(() => mortal?.stop())

  test('that is killed and started again in the middle of commits costs time and nothing else', async () => {
    const base = `kafka://${mortal!.brokers}`
    const url = await freshLog(base)
    const points = ['commit.prepared', 'commit.sent', 'commit.offsets', 'commit.ended'] as const
    const each = rounds.length / points.length
    for (const [n, point] of points.entries()) {
      await appendAll(url, rounds.slice(n * each, (n + 1) * each).flat())
      // Stands still inside a commit while the broker dies and comes back, then goes on.
      const worker = runWorker(url, rwkv7, [], `${point}@${3 + n}:stop`)
      await stopped(worker)
      await mortal!.kill()
      await mortal!.restart()
      worker.child.kill('SIGCONT')
      await eventually(async () => expect(await unfinished(url)).toBe(0), 120_000)
      await stop(worker)
    }
    expectSame(await collect(url), await undisturbed(rwkv7))
  })
})
