/** Dead letters go into the input again as they were. The letters are those that the pipeline writes (emit.ts). */
import { expect, test } from 'vitest'
import { replayDeadLetter } from '../../src/client/replay.ts'
import { ensureTopics, namesOf } from '../../src/client/topics.ts'
import { encodeOutput } from '../../src/operators/emit.ts'
import type { StoredRecord } from '../../src/streams/log.ts'
import { readAll, refuses } from '../streams/helpers.ts'
import { temporaryLog } from './helpers.ts'

const PARTITION = 1

const setting = async (about: Partial<StoredRecord>) => {
  const log = await temporaryLog()
  const names = namesOf(log)
  await ensureTopics(log, names, 2)
  const record: StoredRecord = {
    ...{ topic: names.chunks, partition: PARTITION, offset: 7, timestamp: 1_700_000_000_000 },
    ...{ key: Buffer.from('s'), value: Buffer.from('{"type":'), headers: [] },
    ...about,
  }
  const letters = encodeOutput({ to: 'deadletters', reason: 'It is wrong.' }, record, names)
  // Another letter before and behind, so that parts are told apart.
  const other = encodeOutput({ to: 'deadletters', reason: 'Other.' }, { ...record, offset: 6 }, names)
  const placed = await log.append(
    names.deadletters,
    [...other.slice(0, 1), ...letters, ...other.slice(0, 1)],
    PARTITION,
  )
  const at = (index: number) => placed[1 + index]!
  return { log, names, record, letters, at }
}

const cases: readonly (readonly [string, Partial<StoredRecord>])[] = [
  [
    'a small one',
    {
      headers: [
        ['trace', Buffer.from('a')],
        ['trace', Buffer.from('b')],
      ],
    },
  ],
  ['a letter without a key', { key: null }],
  ['a letter without a value', { value: null }],
  ['a large one, in parts,', { value: Buffer.alloc(1_000_000, 'x') }],
  ['a letter whose headers are large, in an envelope,', { headers: [['big', Buffer.alloc(70_000, 1)]] }],
]

test.each(cases)('the record of %s is appended with its bytes, key, headers, time and partition', async (_, about) => {
  const { log, names, record, letters, at } = await setting(about)
  expect(letters.length).toBe((about.value?.length ?? 0) > 900_000 ? 2 : 1)
  // Whichever of the parts is named.
  const placed = await replayDeadLetter(log, names, at(letters.length - 1))
  expect(placed.partition).toBe(PARTITION)
  const [back] = await readAll(log, names.chunks, PARTITION)
  const bytes = (value: Uint8Array | null) => (value === null ? null : Buffer.from(value).toString('base64'))
  const plain = ({ key, value, headers, timestamp }: StoredRecord) => ({
    ...{ key: bytes(key), value: bytes(value), timestamp },
    headers: headers.map(([name, content]) => [name, bytes(content)]),
  })
  expect(plain(back!)).toEqual(plain(record))
})

test('what is no single event, or is gone, is refused, and nothing is appended', async () => {
  const { log, names, at } = await setting({ undecodable: { next: 12, reason: 'no records' } })
  await refuses(replayDeadLetter(log, names, at(0)), 'INVALID', '7-11', 'whole batch')
  await refuses(replayDeadLetter(log, names, { partition: PARTITION, offset: 99 }), 'INVALID', 99)
  await log.trim(names.deadletters, PARTITION, at(0).offset + 1)
  await refuses(replayDeadLetter(log, names, at(0)), 'INVALID', 'no dead letter')
  expect(await readAll(log, names.chunks, PARTITION)).toEqual([])
})

test('a letter of which a part was trimmed is refused', async () => {
  const { log, names, at, letters } = await setting({ value: Buffer.alloc(1_000_000, 'x') })
  await log.trim(names.deadletters, PARTITION, at(1).offset)
  await refuses(replayDeadLetter(log, names, at(letters.length - 1)), 'INVALID', 'Not all 2 parts')
})
