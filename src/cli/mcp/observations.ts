/** Lines that stand out, for a client that asks again and again: each answer says where the next one goes on. */
import type { TopicNames } from '../../../topics/index.ts'
import { observation } from '../../../topics/observations.ts'
import { eventIn } from '../../client/records.ts'
import { ContinuoError } from '../../errors.ts'
import type { EventLog } from '../../streams/log.ts'
import { foundAsJson, foundIn } from '../standing-out.ts'

/** Records of the topic that one call reads at most. */
const MOST_RECORDS = 20_000

export interface Place {
  readonly log: EventLog
  readonly names: TopicNames
  readonly partitions: number
}

export interface Asked {
  readonly session?: string | undefined
  readonly top: number
  readonly limit: number
  /** `partition:offset` of the last record that was read, for each partition that was. */
  readonly after: readonly string[]
}

const startsOf = (after: readonly string[], partitions: number): ReadonlyMap<number, number> =>
  new Map(
    after.map((position) => {
      const [partition = -1, offset = -1] = position.split(':').map(Number)
      if (partition >= partitions)
        throw new ContinuoError(
          'INVALID',
          `"after" names partition ${partition}, and this log has ${partitions}. Give what "next" of an earlier answer says.`,
        )
      return [partition, offset + 1] as const
    }),
  )

export const readObservations = async (
  { log, names, partitions }: Place,
  { session, top, limit, after }: Asked,
  signal: AbortSignal,
) => {
  const starts = startsOf(after, partitions)
  const key = session === undefined ? null : Buffer.from(session)
  const wanted =
    key === null
      ? Array.from({ length: partitions }, (_, partition) => partition)
      : [await log.partitionOf(names.chunks, key)]
  const next = new Map([...starts].map(([partition, start]) => [partition, start - 1]))
  const lines: (ReturnType<typeof foundAsJson> & { readonly position: string })[] = []
  let [read, records, more] = [0, 0, false]
  for (const partition of wanted) {
    const { begin, end } = await log.bounds(names.observations, partition)
    const from = Math.max(begin, starts.get(partition) ?? begin)
    if (from >= end) continue
    for await (const batch of log.read(names.observations, partition, from, {
      until: end,
      undecodable: true,
      signal,
    })) {
      for (const record of batch.records) {
        if (lines.length >= limit || records >= MOST_RECORDS) {
          more = true
          break
        }
        records += 1
        next.set(partition, record.offset)
        if (key !== null && (record.key === null || !key.equals(record.key))) continue
        const event = eventIn(observation, record)
        if (event?.type !== 'observed') continue
        read += event.lines?.length ?? 0
        const position = `${partition}:${record.offset}`
        for (const found of foundIn(event, top)) lines.push({ ...foundAsJson(found), position })
      }
      if (more) break
    }
    if (more) break
  }
  return { lines, read, next: [...next].map(([partition, offset]) => `${partition}:${offset}`), more }
}
