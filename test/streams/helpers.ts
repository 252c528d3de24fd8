import { expect } from 'vitest'
import { codeOf, type ErrorCode, messageOf } from '../../src/errors.ts'
import type { EventLog, Membership, ReadOptions, RecordIn, StoredRecord } from '../../src/streams/log.ts'

const encoder = new TextEncoder()
const decoder = new TextDecoder()

export const bytes = (text: string): Uint8Array => encoder.encode(text)
export const text = (value: Uint8Array | null): string | null => (value === null ? null : decoder.decode(value))
export const record = (value: string, key: string | null = null): RecordIn => ({
  key: key === null ? null : bytes(key),
  value: bytes(value),
})
export const valuesOf = (records: readonly StoredRecord[]): (string | null)[] => records.map(({ value }) => text(value))

/** Tries until the claim holds; its last failure is the test's. */
export const eventually = async <T>(claim: () => T | Promise<T>, timeout = 20_000): Promise<T> => {
  const deadline = performance.now() + timeout
  for (;;) {
    try {
      return await claim()
    } catch (error) {
      if (performance.now() > deadline) throw error
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }
}

/** Expects a rejection with one of the codes, whose message is a sentence and holds all the parts. */
export const refuses = async (
  call: Promise<unknown>,
  codes: ErrorCode | readonly ErrorCode[],
  ...parts: readonly (string | number)[]
): Promise<void> => {
  const error = await call.then(
    (value) => expect.fail(`expected ${codes}, but the call succeeded with ${JSON.stringify(value)}`),
    (reason: unknown) => reason,
  )
  expect([codes].flat(), messageOf(error)).toContain(codeOf(error))
  expect(messageOf(error)).toMatch(/^\S.* .*$/s)
  for (const part of parts) expect(messageOf(error)).toContain(String(part))
}

/** All that is there from `from` (default: begin) on. */
export const readAll = async (
  log: EventLog,
  topic: string,
  partition = 0,
  options: ReadOptions & { readonly from?: number } = {},
): Promise<StoredRecord[]> => {
  const from = options.from ?? (await log.bounds(topic, partition)).begin
  const records: StoredRecord[] = []
  for await (const batch of log.read(topic, partition, from, options)) records.push(...batch.records)
  return records
}

/** The first `count` records, waiting for them to come. */
export const take = async (log: EventLog, topic: string, partition: number, count: number): Promise<StoredRecord[]> => {
  const { begin } = await log.bounds(topic, partition)
  const records: StoredRecord[] = []
  const signal = AbortSignal.timeout(20_000)
  for await (const batch of log.read(topic, partition, begin, { follow: true, signal })) {
    records.push(...batch.records)
    if (records.length >= count) break
  }
  expect(records.length, `records in ${topic}[${partition}]`).toBe(count)
  return records
}

/** What a member is told, kept. */
export const watch = (
  membership: Membership,
): {
  readonly history: { generation: number; partitions: readonly number[] }[]
  readonly now: () => readonly number[]
} => {
  const history: { generation: number; partitions: readonly number[] }[] = []
  membership.assignments.subscribe({ next: (assignment) => history.push(assignment), error: () => {} })
  return { history, now: () => history.at(-1)?.partitions ?? [] }
}
