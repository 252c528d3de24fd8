/**
 * Whether the partitions of a log can be gone on with where their cursors stand, and how far behind the input they are.
 */
import type { TopicNames } from '../../../topics/index.ts'
import { codeOf } from '../../errors.ts'
import type { PartitionCursor } from '../../state/head.ts'
import type { EventLog } from '../../streams/log.ts'
import { partitionsOf, stateOf } from '../common.ts'
import { plural } from '../output.ts'
import { type Check, fail, ok, warn } from './check.ts'

/** Partitions named at most. */
const MOST_NAMED = 5

const cursorOf = async (log: EventLog, names: TopicNames, partition: number): Promise<PartitionCursor | null> =>
  (await stateOf(log, names, partition)).cursor

/** Why a worker would refuse to go on from the cursor, with what to do; null: it would go on. */
const faultOf = async (
  log: EventLog,
  names: TopicNames,
  partition: number,
  cursor: PartitionCursor,
): Promise<readonly [what: string, remedy: string] | null> => {
  const [committed, topicId, { begin, end }] = await Promise.all([
    log.committed(cursor.group, names.chunks, partition),
    log.topicId(names.chunks),
    log.bounds(names.chunks, partition),
  ])
  if (cursor.topicId !== undefined && topicId !== null && cursor.topicId !== topicId)
    return [`the input topic ${names.chunks} was deleted and made anew`, 'Begin anew with another group and prefix.']
  if (cursor.offset < begin || cursor.offset > end)
    return [
      `the cursor stands at offset ${cursor.offset} and the input holds ${begin} to ${end}`,
      'Restore the input; or begin anew with another group and prefix.',
    ]
  if (committed === null || committed === cursor.offset) return null
  // A worker may have committed between the two looks.
  if ((await cursorOf(log, names, partition))?.offset !== cursor.offset) return null
  return [
    `group "${cursor.group}" has committed offset ${committed}, the cursor says ${cursor.offset}`,
    `Somebody reset the group's offsets: set them back to ${cursor.offset}.`,
  ]
}

export const checkProgress = async (log: EventLog, names: TopicNames): Promise<readonly Check[]> => {
  const refused: Check[] = []
  const behind: (readonly [partition: number, offsets: number])[] = []
  let unknown = 0
  for (let partition = 0; partition < (await partitionsOf(log, names)); partition += 1) {
    try {
      const cursor = await cursorOf(log, names, partition)
      const { begin, end } = await log.bounds(names.chunks, partition)
      const fault = cursor === null ? null : await faultOf(log, names, partition, cursor)
      if (fault !== null)
        refused.push(
          fail('resume', `partition ${partition}: ${fault[0]}`, `${fault[1]} See "When it refuses" in operations.md.`),
        )
      const offsets = end - (cursor?.offset ?? begin)
      if (offsets > 0) behind.push([partition, offsets])
    } catch (error) {
      if (codeOf(error) === 'DENIED')
        return [warn('resume', 'this user may not see the group', 'Ask again as one who may describe it.')]
      // State that cannot be read is another check's to tell.
      if (codeOf(error) !== 'REFUSED') throw error
      unknown += 1
    }
  }
  if (behind.length === 0) return unknown > 0 ? refused : [...refused, ok('lag', 'every event of the input was read')]
  const total = behind.reduce((sum, [, offsets]) => sum + offsets, 0)
  const named = behind
    .toSorted(([, a], [, b]) => b - a)
    .slice(0, MOST_NAMED)
    .map(([partition, offsets]) => `partition ${partition}: ${offsets}`)
  const more = behind.length > MOST_NAMED ? ', …' : ''
  return [...refused, ok('lag', `${plural(total, 'offset')} to read (${named.join(', ')}${more})`)]
}
