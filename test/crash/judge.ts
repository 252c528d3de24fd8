/**
 * The judge of the crash suites: what a run left in its log, and where that of a disturbed run differs from that of an
 * undisturbed one.
 */
import { readPartitionState } from '../../src/operators/worker/partition-state.ts'
import { headDifference, sameHead } from '../../src/state/head.ts'
import { openLog } from '../../src/streams/open.ts'
import { topicNames } from '../../topics/index.ts'
import { PARTITIONS } from './life.ts'

export const OUTPUTS = ['tokens', 'observations', 'deadletters'] as const
export type Output = (typeof OUTPUTS)[number]

export interface Result {
  /** Values of each output topic by session, in order. */
  readonly outputs: Readonly<Record<Output, Readonly<Record<string, readonly string[]>>>>
  readonly heads: Awaited<ReturnType<typeof readPartitionState>>['heads']
}

/** Everything a run left in the log. */
export const collect = async (url: string, partitions = PARTITIONS): Promise<Result> => {
  const log = await openLog(url)
  try {
    const names = topicNames(log.prefix)
    // The two logs may differ in their prefix alone.
    const unprefixed = (text: string): string => text.replaceAll(`${log.prefix}.`, '<p>.')
    const outputs: Record<Output, Record<string, string[]>> = { tokens: {}, observations: {}, deadletters: {} }
    const heads: Result['heads'] = new Map()
    for (const topic of OUTPUTS) {
      const bySession = outputs[topic]
      for (let partition = 0; partition < partitions; partition += 1) {
        const { begin, end } = await log.bounds(names[topic], partition)
        for await (const batch of log.read(names[topic], partition, begin, { until: end })) {
          for (const { key, value, headers, timestamp } of batch.records) {
            const session = Buffer.from(key ?? []).toString()
            const told = headers.map(([name, bytes]) => `${name}=${Buffer.from(bytes).toString()}`).join(';')
            bySession[session] ??= []
            bySession[session].push(unprefixed(`${timestamp} ${told} ${Buffer.from(value ?? []).toString()}`))
          }
        }
      }
    }
    for (let partition = 0; partition < partitions; partition += 1) {
      const state = await readPartitionState(log, names, partition, 1 << 30)
      for (const [id, head] of state.heads) heads.set(id, JSON.parse(unprefixed(JSON.stringify(head))))
    }
    return { outputs, heads }
  } finally {
    await log.close()
  }
}

/** Sessions that stand in the middle of a generation, by what is committed. */
export const generating = async (url: string): Promise<number> => {
  const log = await openLog(url)
  try {
    const names = topicNames(log.prefix)
    let found = 0
    for (let partition = 0; partition < PARTITIONS; partition += 1) {
      const { heads } = await readPartitionState(log, names, partition, 1 << 30)
      found += [...heads.values()].filter(({ generation }) => generation !== null).length
    }
    return found
  } finally {
    await log.close()
  }
}

/**
 * Sessions whose external memory has chosen blocks that are not in its list yet, by what they were told and what is
 * committed.
 */
export const retrieving = async (url: string): Promise<number> => {
  const { outputs } = await collect(url)
  const isPending = (told: readonly string[]): boolean => {
    const events = told.flatMap((text) =>
      [...text.matchAll(/"type":"(retrieve|inject|opened)"/g)].map(([, type]) => type),
    )
    return events.at(-1) === 'retrieve'
  }
  return Object.values(outputs.observations).filter(isPending).length
}

/** The first difference as a sentence; null where there is none. */
export const differenceOf = (disturbed: Result, undisturbed: Result): string | null => {
  const list = (names: Iterable<string>): string => [...names].sort().join(', ')
  for (const topic of OUTPUTS) {
    const sessions = undisturbed.outputs[topic]
    const found = disturbed.outputs[topic]
    if (list(Object.keys(found)) !== list(Object.keys(sessions)))
      return `${topic}: the disturbed run has sessions ${list(Object.keys(found))}; the undisturbed one ${list(Object.keys(sessions))}.`
    for (const [session, values] of Object.entries(sessions)) {
      const others = found[session]!
      const at = values.findIndex((value, index) => value !== others[index])
      if (at >= 0)
        return `${topic} of ${session}, event ${at}: the disturbed run has ${others[at]}; the undisturbed one ${values[at]}.`
      if (others.length !== values.length)
        return `${topic} of ${session}: the disturbed run has ${others.length} events, the undisturbed one ${values.length}; the first beyond is ${others[values.length]}.`
    }
  }
  if (list(disturbed.heads.keys()) !== list(undisturbed.heads.keys()))
    return `The disturbed run has heads of ${list(disturbed.heads.keys())}; the undisturbed one of ${list(undisturbed.heads.keys())}.`
  for (const [id, head] of undisturbed.heads) {
    const found = disturbed.heads.get(id)!
    if (!sameHead(found, head))
      return `The head of ${id}, disturbed against undisturbed: ${headDifference(found, head)}.`
  }
  return null
}
