import { ContinuoError, codeOf } from '../../errors.ts'
import { failpoint } from '../../failpoint.ts'
import type { EventLog, OutRecord, PartitionWriter } from '../log.ts'
import type { Bulk, Owner } from './bulk.ts'
import type { Database } from './database.ts'
import { checkRecord, type Placed, type Records } from './records.ts'
import type { Topics } from './topics.ts'

export type Claims = Pick<EventLog, 'claim' | 'committed'>

type State = 'open' | 'fenced' | 'broken' | 'closed'

/** A fault of the input is found before anything is written, so the writer may go on after it. */
const isHarmless = (error: unknown): boolean => codeOf(error) === 'INVALID'

/** Writes records, and an input offset where there is one, for the owner of a partition; inside a transaction. */
export type Transactions = (owner: Owner, outs: readonly OutRecord[], inputOffset: number | null) => number[]

const fencedBy = (
  { group, topic, partition, epoch }: Owner,
  by?: { readonly epoch: number; readonly owner: string },
): ContinuoError =>
  new ContinuoError(
    'FENCED',
    `A newer owner holds ${group}/${topic}[${partition}]${by === undefined ? '' : ` (epoch ${by.epoch}, ${by.owner})`}; this writer has epoch ${epoch}. Nothing was written.`,
  )

const CURRENT_EPOCH = 'SELECT epoch, owner FROM claims WHERE group_id = ? AND topic = ? AND partition = ?'

/** Topics whose records a run reads when it needs them, and computes again where they are damaged. */
const RECOMPUTED = /\.(snapshots|blobs)$/

export const openTransactions = (db: Database, topics: Topics, records: Records): Transactions => {
  const currentEpoch = db.prepare<{ epoch: number; owner: string }>(CURRENT_EPOCH)
  const putOffset = db.prepare(
    `INSERT INTO offsets (group_id, topic, partition, "offset") VALUES (?, ?, ?, ?)
     ON CONFLICT DO UPDATE SET "offset" = excluded."offset"`,
  )
  /** The claim is checked, and the records and the offset written, under the one write lock: that is the atom. */
  return (owner, outs, inputOffset) => {
    const { group, topic, partition, epoch } = owner
    const claim = currentEpoch.get(group, topic, partition)
    if (claim?.epoch !== epoch) throw fencedBy(owner, claim)
    const placed: Placed[] = outs.map((record) => {
      const out = topics.findPartition(record.topic, partition)
      checkRecord(out, record)
      return { topic: out, partition, record }
    })
    const offsets = records.insert(placed)
    if (inputOffset !== null) {
      failpoint('commit.sent')
      putOffset.run(group, topic, partition, inputOffset)
      failpoint('commit.offsets')
    }
    return offsets
  }
}

export const openClaims = (db: Database, topics: Topics, records: Records, bulk: Bulk): Claims => {
  const raiseEpoch = db.prepare<{ epoch: number }>(
    `INSERT INTO claims (group_id, topic, partition, epoch, owner) VALUES (?, ?, ?, 1, ?)
     ON CONFLICT DO UPDATE SET epoch = epoch + 1, owner = excluded.owner RETURNING epoch`,
  )
  const currentEpoch = db.prepare<{ epoch: number; owner: string }>(CURRENT_EPOCH)
  const write = openTransactions(db, topics, records)
  const getOffset = db.prepare<{ offset: number }>(
    'SELECT "offset" FROM offsets WHERE group_id = ? AND topic = ? AND partition = ?',
  )

  const writerOf = (group: string, topic: string, partition: number, epoch: number): PartitionWriter => {
    const name = `${group}/${topic}[${partition}]`
    const owner: Owner = { group, topic, partition, epoch }
    let state: State = 'open'
    let underWay: Promise<unknown> | null = null

    const refuse = (): ContinuoError | null => {
      if (state === 'closed')
        return new ContinuoError('MISUSE', `The writer of ${name} is closed. Claim the partition again.`)
      if (state === 'fenced') return fencedBy(owner)
      if (state === 'broken')
        return new ContinuoError(
          'MISUSE',
          `The writer of ${name} failed before and its outcome is unknown. Claim the partition again and read the cursor.`,
        )
      if (underWay !== null)
        return new ContinuoError('MISUSE', `The writer of ${name} is busy. Wait for its last call before the next one.`)
      return null
    }

    const call = async (outs: readonly OutRecord[], inputOffset: number | null): Promise<readonly number[]> => {
      const refusal = refuse()
      if (refusal !== null) throw refusal
      if (inputOffset !== null && !(Number.isSafeInteger(inputOffset) && inputOffset >= 0))
        throw new ContinuoError('INVALID', `An input offset is a whole number from 0 on, ${inputOffset} is not.`)
      const running = bulk.takes(outs)
        ? bulk.write(owner, outs, inputOffset)
        : db.write(`committing for ${name}`, () => write(owner, outs, inputOffset))
      underWay = running
      try {
        return await running
      } catch (error) {
        if (state === 'open' && !isHarmless(error)) state = codeOf(error) === 'FENCED' ? 'fenced' : 'broken'
        throw error
      } finally {
        underWay = null
      }
    }

    return {
      partition,
      epoch,
      commit: (outs, inputOffset) => call(outs, inputOffset),
      append: (outs) => call(outs, null),
      confirm: () =>
        db.read(`looking for the owner of ${name}`, () => {
          const claim = currentEpoch.get(group, topic, partition)
          if (claim?.epoch !== epoch) throw fencedBy(owner, claim)
        }),
      close: async () => {
        state = 'closed'
        try {
          await underWay
        } catch {
          // Its caller hears of it.
        }
      },
    }
  }

  return {
    claim: async (group, topic, partition) => {
      if (group === '') throw new ContinuoError('INVALID', "A group's name is not empty.")
      const owner = `process ${process.pid} since ${new Date().toISOString()}`
      const epoch = await db.write(`claiming ${topic}[${partition}] for ${group}`, () => {
        topics.findPartition(topic, partition)
        // A new owner looks at the ends of all that it will write behind, which nobody else of a run reads.
        for (const name of topics.ours()) {
          if (RECOMPUTED.test(name)) continue
          const found = topics.find(name)
          if (partition < found.partitions) records.checkEnd(found, partition)
        }
        return raiseEpoch.get(group, topic, partition, owner)!.epoch
      })
      return writerOf(group, topic, partition, epoch)
    },
    committed: (group, topic, partition) =>
      db.read(`reading the offset of ${group}/${topic}[${partition}]`, () => {
        topics.findPartition(topic, partition)
        return getOffset.get(group, topic, partition)?.offset ?? null
      }),
  }
}
