/**
 * Brokers that are cut off from the worker, or from each other, or stand still: silence, and late deliveries at its
 * end.
 */
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

test('a broker that falls silent on open connections is given up, and the others are asked', async () => {
  const { log, names } = await openStream(cluster, 'silence', { partitions: 1 })
  for (const node of [1, 2, 3] as const) {
    // Connections to whoever is asked first are open.
    await log.topics()
    cluster.freeze(node)
    await eventually(async () => {
      expect((await log.topics()).length).toBeGreaterThan(0)
      expect(await log.bounds(names.chunks, 0)).toEqual({ begin: 0, end: 0 })
    }, PATIENCE)
    cluster.thaw(node)
    await cluster.whole()
  }
})

test('brokers cut off from clients, from each other, or frozen: outputs and chains of an undisturbed run', async () => {
  const stream = await openStream(cluster, 'cuts', { seed: 47 })
  const worker = await stream.worker()
  const { chunks, state } = stream.names

  /** In the middle of work: feeding rests, so that nothing but the worker's requests is under way. */
  const meanwhile = async (fault: (leader: Node, partition: number) => Promise<void>, partition: number) => {
    await stream.feed(30)
    await stream.progress()
    expect(await stream.unfinished()).toBeGreaterThan(0)
    await fault(await cluster.leader(state, partition), partition)
    await stream.finished()
  }

  // Healthy for everybody else, so it goes on leading; whoever needs it waits until it can be reached again.
  await meanwhile(async (leader) => {
    const before = worker.lost
    cluster.wires.darken(leader, 'clients')
    await eventually(() => expect(worker.lost).toBeGreaterThan(before), PATIENCE)
    cluster.wires.light()
  }, 0)

  // Reachable for clients, but the others and their controllers do not hear of it: it may not go on as a leader.
  await meanwhile(async (leader, partition) => {
    cluster.wires.darken(leader, 'brokers')
    await eventually(async () => expect(await cluster.leader(chunks, partition)).not.toBe(leader), PATIENCE)
    await eventually(async () => expect(await cluster.leader(state, partition)).not.toBe(leader), PATIENCE)
    cluster.wires.light()
    await cluster.whole()
  }, 1)

  // Cut off from everybody; what it held is delivered when others have long taken over.
  await meanwhile(async (leader, partition) => {
    cluster.wires.darken(leader, 'brokers')
    cluster.wires.darken(leader, 'clients')
    await eventually(async () => expect(await cluster.leader(state, partition)).not.toBe(leader), PATIENCE)
    await stream.progress()
    cluster.wires.light()
    await cluster.whole()
  }, 2)

  await meanwhile(async (leader, partition) => {
    cluster.freeze(leader)
    await eventually(async () => expect(await cluster.leader(state, partition)).not.toBe(leader), PATIENCE)
    await stream.progress()
    cluster.thaw(leader)
    await cluster.whole()
  }, 0)

  await stop(worker)
  console.log('brokers cut off 3 times and frozen once, tasks lost', worker.lost, await stream.judge())
})
