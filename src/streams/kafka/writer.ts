/**
 * The transactional writer of an input partition, over kafkajs's connections.
 *
 * kafkajs's own transactional producer is not used: it asks for the coordinator before each of its nine requests,
 * retries the wrong errors or none, and cannot say whether a failed commit happened. Here a commit is
 *
 *   AddPartitionsToTxn ─┬─ Produce, once for each ≤ 900 kB ──────┬─ EndTxn
 *                       └─ AddOffsetsToTxn ─ TxnOffsetCommit ────┘
 *
 * each of which may be sent again after an error without harm: Produce by its sequence, the others by the transaction's
 * state at the coordinator. EndTxn, too: a transaction that was committed before says so.
 *
 * The lock is the epoch. InitProducerId gives this writer a new one, ends what the former owner left open, and answers
 * only when its markers are written; from then on Kafka refuses the former owner with error 47, and this writer ends
 * the same way when a newer one comes. It never initialises itself again.
 */
import { ContinuoError } from '../../errors.ts'
import { failpoint } from '../../failpoint.ts'
import type { OutRecord, PartitionWriter } from '../log.ts'
import { explain, faultOf, isFenced } from './faults.ts'
import type { Broker } from './kafkajs.ts'
import type { Network, Node } from './network.ts'
import { createProducer, cut, encodeFor, type PartitionRecords, produceProtocol } from './produce.ts'
import type { Prepared } from './record-batch.ts'
import type { Topics } from './topics.ts'

/** Kafka aborts a transaction that stays open longer, so that a dead worker's does not hold up readers for ever. */
const TRANSACTION_TIMEOUT = 30_000
/** Claims wait for the former owner's transaction to end. */
const CLAIM_PATIENCE = 40_000
const STEP_PATIENCE = 10_000
/** A transaction can begin when the markers of the one before are written: some ms after its commit. */
const FIRST_PAUSE = 2

export interface Claim {
  readonly network: Network
  readonly topics: Topics
  readonly group: string
  readonly topic: string
  readonly partition: number
}

type State = 'open' | 'busy' | 'fenced' | 'broken' | 'closed'

export const claimPartition = async ({ network, topics, group, topic, partition }: Claim): Promise<PartitionWriter> => {
  const what = `partition ${partition} of ${topic} for group ${group}`
  await network.retry(`claiming ${what}`, () => network.leader(topic, partition))
  const transactionalId = `${group}-${topic}-${partition}`
  const lane = network.lane()

  const step = <T>(doing: string, work: () => Promise<T>, patience = STEP_PATIENCE): Promise<T> =>
    network.retry(`${doing} ${what}`, work, { lane, patience, pause: FIRST_PAUSE })
  const coordinator = async (of: 'group' | 'transaction'): Promise<Broker> =>
    lane.to(await network.coordinator(of, of === 'group' ? group : transactionalId))

  const identity = await network
    .retry(
      // By the name that a right is given on.
      `claiming ${what} as transactional id ${transactionalId}`,
      async () =>
        (await coordinator('transaction')).initProducerId({ transactionalId, transactionTimeout: TRANSACTION_TIMEOUT }),
      { lane, patience: CLAIM_PATIENCE, pause: FIRST_PAUSE },
    )
    .catch(async (error: unknown) => {
      await lane.close()
      throw error
    })
  const producer = createProducer(transactionalId, identity)
  const { producerEpoch } = identity
  const transaction = { transactionalId, producerId: Number(identity.producerId), producerEpoch }

  /** All topics that one broker leads go into one request. */
  const produce = async (parts: readonly PartitionRecords[]): Promise<Map<string, number>> => {
    const encoded = encodeFor(producer, parts)
    const offsets = new Map<string, number>()
    await step('writing to', async () => {
      const byLeader = new Map<Node, (typeof encoded)[number][]>()
      for (const one of encoded) {
        const leader = await network.leader(one.topic, one.partition)
        const same = [...byLeader.keys()].find(({ host, port }) => host === leader.host && port === leader.port)
        byLeader.set(same ?? leader, [...(byLeader.get(same ?? leader) ?? []), one])
      }
      const sent = [...byLeader].map(([node, batches]) => lane.send(node, produceProtocol(transactionalId, batches)))
      for (const settled of await Promise.allSettled(sent)) {
        if (settled.status === 'rejected') throw settled.reason
        for (const answer of settled.value.answers) offsets.set(answer.topic, answer.baseOffset)
      }
    })
    return offsets
  }

  /** Sends every topic's n-th piece together; returns the offsets by topic, in order. */
  const produceAll = async (records: ReadonlyMap<string, readonly Prepared[]>): Promise<Map<string, number[]>> => {
    const pieces = new Map(
      await Promise.all([...records].map(async ([name, all]) => [name, cut(all, await topics.limit(name))] as const)),
    )
    const offsets = new Map([...records.keys()].map((name): [string, number[]] => [name, []]))
    const rounds = Math.max(0, ...[...pieces.values()].map(({ length }) => length))
    for (let round = 0; round < rounds; round++) {
      const parts = [...pieces].flatMap(([name, all]) => {
        const piece = all[round]
        return piece === undefined ? [] : [{ topic: name, partition, records: piece }]
      })
      const bases = await produce(parts)
      for (const part of parts) {
        const base = bases.get(part.topic)
        if (base === undefined || base < 0)
          throw new ContinuoError('INTERNAL', `Kafka did not say where the records of ${part.topic} went (${base}).`)
        for (let i = 0; i < part.records.length; i++) offsets.get(part.topic)?.push(base + i)
      }
    }
    return offsets
  }

  const sendOffset = async (offset: number): Promise<void> => {
    await step('adding the offset of', async () =>
      (await coordinator('transaction')).addOffsetsToTxn({ ...transaction, groupId: group }),
    )
    const positions = [{ topic, partitions: [{ partition, offset: String(offset) }] }]
    await step('writing the offset of', async () =>
      (await coordinator('group')).txnOffsetCommit({ ...transaction, groupId: group, topics: positions }),
    )
  }

  const end = (transactionResult: boolean): Promise<unknown> =>
    step(transactionResult ? 'committing to' : 'aborting', async () =>
      (await coordinator('transaction')).endTxn({ ...transaction, transactionResult }),
    )

  let state: State = 'open'

  const refusal = (): ContinuoError | undefined => {
    switch (state) {
      case 'open':
        return undefined
      case 'fenced':
        return fenced()
      case 'busy':
        return new ContinuoError('MISUSE', `The writer of ${what} is busy: await its last call before the next.`)
      case 'broken':
        return new ContinuoError('MISUSE', `The writer of ${what} failed before: claim the partition again.`)
      case 'closed':
        return new ContinuoError('MISUSE', `The writer of ${what} is closed: claim the partition again.`)
    }
  }

  const fenced = (cause?: unknown): ContinuoError =>
    new ContinuoError('FENCED', `A newer owner holds ${what}: write nothing more, and wait for a new assignment.`, {
      cause,
    })

  const verdict = (error: unknown): ContinuoError => {
    if (isFenced(faultOf(error))) return fenced(error)
    const told = explain(network.brokers, `writing to ${what}`, error)
    if (told.code !== 'UNAVAILABLE') return told
    const message = `${told.message}. Whether the transaction was committed is unknown: claim the partition again and read its cursor.`
    return new ContinuoError('UNAVAILABLE', message, { cause: error })
  }

  let underWay: Promise<unknown> = Promise.resolve()
  const transact = (records: readonly OutRecord[], offset: number | undefined): Promise<readonly number[]> => {
    const call = attempt(records, offset)
    // One that is refused because another is under way is over at once and must not hide the other.
    underWay = Promise.allSettled([underWay, call]).then(() => {})
    return call
  }

  /** Aborting where nothing is open does nothing, and Kafka compares the epochs first. */
  const confirm = async (): Promise<void> => {
    await underWay
    try {
      await network.retry(`asking for the owner of ${what}`, async () => {
        const broker = await network.common.to(await network.coordinator('transaction', transactionalId))
        await broker.endTxn({ ...transaction, transactionResult: false })
      })
    } catch (error) {
      const fault = faultOf(error)
      if (fault.type === 'INVALID_TXN_STATE') return
      throw isFenced(fault) ? fenced(error) : error
    }
  }

  const attempt = async (records: readonly OutRecord[], offset: number | undefined): Promise<readonly number[]> => {
    const refused = refusal()
    if (refused !== undefined) throw refused
    state = 'busy'
    let begun = false
    let ending = false
    try {
      // Everything that can be refused is refused before the transaction begins; the writer stays usable.
      const byTopic = new Map<string, Prepared[]>()
      const slots: { readonly topic: string; readonly index: number }[] = []
      for (const record of records) {
        const list = byTopic.get(record.topic) ?? []
        byTopic.set(record.topic, list)
        slots.push({ topic: record.topic, index: list.length })
        list.push(await topics.check(record.topic, partition, record))
      }
      if (records.length === 0 && offset === undefined) return []

      begun = true
      if (byTopic.size > 0) {
        const partitions = [...byTopic.keys()].map((name) => ({ topic: name, partitions: [partition] }))
        // By name: where a right on one of them is missing, Kafka does not say on which.
        await step(`beginning a transaction that writes to ${[...byTopic.keys()].join(', ')}, of`, async () =>
          (await coordinator('transaction')).addPartitionsToTxn({ ...transaction, topics: partitions }),
        )
      }
      const [produced, offsetSent] = await Promise.allSettled([
        produceAll(byTopic).finally(() => {
          if (offset !== undefined) failpoint('commit.sent')
        }),
        offset === undefined ? undefined : sendOffset(offset),
      ])
      if (produced.status === 'rejected') throw produced.reason
      if (offsetSent.status === 'rejected') throw offsetSent.reason
      if (offset !== undefined) failpoint('commit.offsets')
      ending = true
      await end(true)
      return slots.map(({ topic: name, index }) => produced.value.get(name)![index]!)
    } catch (error) {
      const told = verdict(error)
      if (begun || told.code !== 'INVALID') {
        state = told.code === 'FENCED' ? 'fenced' : 'broken'
        // Readers behind an open transaction wait for its end; its outcome is not ours to decide once a commit was
        // sent.
        const last = begun && !ending && told.code !== 'FENCED' ? end(false) : Promise.resolve()
        void last.catch(() => {}).finally(() => lane.close())
      }
      throw told
    } finally {
      if (state === 'busy') state = 'open'
    }
  }

  return {
    partition,
    epoch: transaction.producerId * 2 ** 15 + producerEpoch,
    commit: async (records, inputOffset) => {
      if (!Number.isSafeInteger(inputOffset) || inputOffset < 0)
        throw new ContinuoError('INVALID', `An input offset is a whole number from 0 on, ${inputOffset} is not.`)
      return transact(records, inputOffset)
    },
    append: (records) => transact(records, undefined),
    confirm,
    close: async () => {
      if (state === 'closed') return
      state = 'closed'
      await lane.close()
      // Its next request finds the lane closed.
      await underWay
    },
  }
}
