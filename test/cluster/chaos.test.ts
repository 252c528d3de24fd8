/**
 * Three workers on a cluster, and a hand that kills, stops and asks them to leave at random, and kills a broker. The
 * seed and the time come from CONTINUO_CHAOS_SEED and CONTINUO_CHAOS_SECONDS.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Cluster, startCluster } from './cluster.ts'
import { openStream, type Reader, random, stop } from './stream.ts'

const SEED = Number(process.env.CONTINUO_CHAOS_SEED ?? 1)
const SECONDS = Number(process.env.CONTINUO_CHAOS_SECONDS ?? 180)
const WORKERS = 3

let cluster: Cluster
beforeAll(async () => {
  cluster = await startCluster()
})
afterAll(() => cluster?.close())

test('workers that are killed, frozen and stopped at random beside a dying broker: outputs and chains of an undisturbed run', {
  timeout: SECONDS * 1000 + 900_000,
}, async () => {
  const stream = await openStream(cluster, 'chaos', { partitions: 6, copies: 4, seed: 53, rounds: 1000 })
  const next = random(SEED)
  const done = { started: 0, SIGKILL: 0, SIGSTOP: 0, SIGTERM: 0, broker: 0 }
  const all: Reader[] = []
  const begin = async (): Promise<Reader> => {
    const worker = await stream.worker()
    done.started++
    all.push(worker)
    return worker
  }
  const workers = await Promise.all(Array.from({ length: WORKERS }, begin))
  const enough = new AbortController()
  const feeding = stream.feedUntil(enough.signal)

  /** What happens to a worker, and who takes its place. */
  const disturb = async (at: number): Promise<void> => {
    const worker = workers[at]!
    const dice = next()
    expect(worker.child.exitCode, (await Promise.race([worker.over, null]))?.stderr).toBeNull()
    if (dice < 0.5) {
      worker.child.kill('SIGKILL')
      await worker.over
      done.SIGKILL++
    } else if (dice < 0.75) {
      worker.child.kill('SIGSTOP')
      await pause(500 + next() * 12_000)
      worker.child.kill('SIGCONT')
      done.SIGSTOP++
      return
    } else {
      await stop(worker)
      done.SIGTERM++
    }
    workers[at] = await begin()
  }

  const until = performance.now() + SECONDS * 1000
  const half = performance.now() + SECONDS * 500
  try {
    while (performance.now() < until) {
      await disturb(Math.floor(next() * WORKERS))
      if (done.broker === 0 && performance.now() > half) {
        const node = await cluster.leader(stream.names.chunks, Math.floor(next() * 6))
        await cluster.kill(node)
        done.broker++
        await disturb(Math.floor(next() * WORKERS))
        await cluster.start(node)
      }
      await pause(1000 + next() * 5000)
    }
  } finally {
    enough.abort()
    await feeding
  }
  await stream.finished()
  await Promise.all(workers.map(stop))
  await cluster.whole()
  const lost = all.reduce((sum, worker) => sum + worker.lost, 0)
  console.log(`seed ${SEED}, ${SECONDS} s:`, { ...done, lost, ...(await stream.judge()) })
  expect(done.SIGKILL).toBeGreaterThan(0)
  expect(done.broker).toBe(1)
})
