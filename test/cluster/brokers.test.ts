/** Brokers that die, that are restarted in turn, and that are too few: it costs time and nothing else. */
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { eventually } from '../streams/helpers.ts'
import { type Cluster, type Node, PATIENCE, startCluster } from './cluster.ts'
import { openStream, stop } from './stream.ts'

let cluster: Cluster
beforeAll(async () => {
  cluster = await startCluster()
})
afterAll(() => cluster?.close())
afterEach(() => cluster.mend())

test('leaders that are killed in the middle, and a rolling restart: outputs and chains of an undisturbed run', async () => {
  const stream = await openStream(cluster, 'leaders')
  const worker = await stream.worker()
  /** In the middle of work: what was fed is more than is done when the broker goes, and the rest is done without it. */
  const without = async (node: Node, gone: () => Promise<void>): Promise<void> => {
    expect(await stream.unfinished()).toBeGreaterThan(0)
    await gone()
    await stream.progress()
    await cluster.start(node)
    await cluster.whole()
  }
  for (const partition of [0, 1, 2]) {
    await stream.feed(40)
    await stream.progress()
    const node = await cluster.leader(stream.names.state, partition)
    await without(node, async () => {
      await cluster.kill(node)
      // The others take over before it comes back.
      await eventually(async () => expect(await cluster.leader(stream.names.state, partition)).not.toBe(node), PATIENCE)
    })
  }
  for (const node of [1, 2, 3] as const) {
    await stream.feed(40)
    await stream.progress()
    await without(node, () => cluster.stop(node))
  }
  await stream.finished()
  await stop(worker)
  const judged = await stream.judge()
  console.log('leaders killed 3, brokers restarted 3, tasks lost', worker.lost, judged)
})

test('fewer replicas than must be in sync: the worker waits and says why, loses nothing, and goes on', async () => {
  const stream = await openStream(cluster, 'few', { seed: 43 })
  const worker = await stream.worker('--metrics-port', '0')
  const readiness = async (): Promise<{ status: number; reason: string }> => {
    const answer = await fetch(`${worker.metrics}/readyz`)
    return { status: answer.status, reason: ((await answer.json()) as { reason?: string }).reason ?? '' }
  }
  /**
   * Takes the brokers away in the middle of work; the worker says that and why it waits, and goes on when they are
   * back.
   */
  const without = async (nodes: readonly Node[], why: RegExp): Promise<void> => {
    await stream.feed(30)
    await stream.progress()
    expect(await stream.unfinished()).toBeGreaterThan(0)
    await Promise.all(nodes.map((node) => cluster.kill(node)))
    worker.forget()
    await eventually(async () => {
      const { status, reason } = await readiness()
      expect(status).toBe(503)
      expect(reason).toMatch(why)
    }, PATIENCE)
    await eventually(() => expect(worker.log).toMatch(/Trying again in \d+ ms/), PATIENCE)
    expect(worker.log).toMatch(why)
    expect(worker.child.exitCode).toBeNull()
    await cluster.start(...nodes)
    await cluster.whole()
    await stream.finished()
    await eventually(async () => expect(await readiness()).toEqual({ status: 200, reason: '' }), PATIENCE)
  }
  // Two of three gone: nobody can lead, nobody can decide who leads.
  await without([1, 2], /Kafka could not do it now|Cannot reach/)
  // One of three gone, where all three must have what was written.
  const topics = await stream.log.topics()
  await cluster.admin((admin) =>
    admin.alterConfigs({
      validateOnly: false,
      resources: topics.map(({ name, config }) => ({
        type: 2,
        name,
        configEntries: Object.entries({ ...config, 'min.insync.replicas': '3' }).map(([key, value]) => ({
          name: key,
          value,
        })),
      })),
    }),
  )
  await without([3], /fewer in-sync replicas than required|fewer replicas in sync than min\.insync\.replicas/)
  await stop(worker)
  console.log('too few brokers twice, tasks lost', worker.lost, await stream.judge())
})
