/**
 * The whole numbers of an external memory in a file from somebody else. The controller goes by them from token to
 * token, so a state whose numbers contradict each other is refused when it is loaded, by a sentence that names the
 * tensor.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Model } from '../../../src/engine/types.ts'
import { ContinuoError } from '../../../src/errors.ts'
import { openModel } from '../../../src/models/open.ts'
import { clockOf } from '../../../src/operators/advance/session-state.ts'
import { admit } from '../../../src/operators/sessions/admit.ts'
import { SessionManager } from '../../../src/sessions/manager.ts'
import { decodeSnapshot } from '../../../src/state/snapshot.ts'
import { randomIds } from '../../models/decoder-suite.ts'
import { SETTINGS, SUMMARIZE, writeSetting } from '../../models/outer-memory/outer-memory-settings.ts'
import { type ForgedTensors, forged, numbersOf, putNumbers, resize } from '../../sessions/forged.ts'

/** Topics, a Q-Former, a trimmer, and blocks that come a beat later: every table that an external memory can have. */
const { folder, memory } = (() => {
  const setting = SETTINGS.find(({ name }) => name === 'topics of a Q-Former, and a walker, a beat later')!
  return { folder: writeSetting(setting).folder, memory: setting.memory }
})()
const [B, K, A] = [memory.block_size, memory.anchors.tokens, memory.anchors.entries]
/** 16 blocks are whole and 14 archived; the blocks of the retrieval after token 128 come at token 136. */
const TOKENS = 130
const [CLOSED, ARCHIVED] = [16, 14]

const put =
  (name: string, numbers: readonly number[]) =>
  (tensors: ForgedTensors): void =>
    putNumbers(tensors, name, numbers)

/** So many blocks count as archived, and what stands beside them has as many places. */
const archivedAs =
  (archived: number) =>
  (tensors: ForgedTensors): void => {
    for (const name of ['cold', 'graph.member']) resize(tensors, name, archived)
    putNumbers(tensors, 'archived', [archived])
  }

/** The first two numbers of a list. */
const pair = (list: 'injected' | 'pending', numbers: readonly [number, number]) => (tensors: ForgedTensors) => {
  putNumbers(tensors, list === 'injected' ? 'injections' : 'pendings', [2])
  putNumbers(tensors, list, numbers)
}

const changed =
  (name: string, change: (numbers: number[]) => void) =>
  (tensors: ForgedTensors): void => {
    const numbers = numbersOf(tensors.get(name)!)
    change(numbers)
    putNumbers(tensors, name, numbers)
  }

const HOSTILE: readonly (readonly [string, (tensors: ForgedTensors) => void, RegExp])[] = [
  [
    'fewer rows of the index than whole blocks',
    (tensors) => {
      resize(tensors, 'index', CLOSED - 1)
      putNumbers(tensors, 'closed', [CLOSED - 1])
    },
    /"(closed|count|index)"/,
  ],
  [
    'more rows of the index than whole blocks',
    (tensors) => {
      resize(tensors, 'index', CLOSED + 1)
      putNumbers(tensors, 'closed', [CLOSED + 1])
    },
    /"(closed|count|index)"/,
  ],
  ['another number of tokens', put('count', [TOKENS + B]), /"(count|closed)"/],
  ['more archived blocks than closed ones', archivedAs(CLOSED + 1), /"archived"/],
  ['more tokens than the window has', archivedAs(ARCHIVED - 2), /"(archived|count|window\.[kv])"/],
  ...(['injected', 'pending'] as const).flatMap((list): typeof HOSTILE => [
    [`${list} blocks in falling order`, pair(list, [5, 2]), new RegExp(`"${list}"`)],
    [`the same ${list} block twice`, pair(list, [5, 5]), new RegExp(`"${list}"`)],
    [`one ${list} block that is not archived`, pair(list, [5, ARCHIVED]), new RegExp(`"${list}"`)],
    [`one ${list} block before the first`, pair(list, [-1, 5]), new RegExp(`"${list}"`)],
    [`one ${list} block of 2³¹ − 1`, pair(list, [5, 2 ** 31 - 1]), new RegExp(`"${list}"`)],
  ]),
  ['anchors in falling order', changed('anchors.block', (at) => at.reverse()), /"anchors\.block"/],
  ['two anchors of a block', changed('anchors.block', (at) => (at[1] = at[0]!)), /"anchors\.block"/],
  ['an anchor before the first block', put('anchors.block', [-1]), /"anchors\.block"/],
  ['an anchor twice in its block', put('anchors.offsets', [3, 3]), /"anchors\.offsets"/],
  ['tokens of an anchor in falling order', put('anchors.offsets', [5, 2]), /"anchors\.offsets"/],
  ['a token of an anchor behind its block', put('anchors.offsets', [5, B]), /"anchors\.offsets"/],
  ['a token of an anchor before its block', put('anchors.offsets', [-1, 5]), /"anchors\.offsets"/],
  ['more anchors than there are places', put('anchors.entries', [A + 1]), /"anchors\.entries"/],
  ['tombstones that begin behind block 0', put('tombstones.span', [1]), /"tombstones\.span"/],
  ['a gap between tombstones', changed('tombstones.span', (at) => (at[2]! += 1)), /"tombstones\.span"/],
  ['a tombstone of no block', changed('tombstones.span', (at) => (at[1] = 0)), /"tombstones\.span"/],
  [
    'a tombstone that ends before it begins',
    changed('tombstones.span', (at) => ([at[0], at[1]] = [at[1]!, at[0]!])),
    /"tombstones\.span"/,
  ],
  [
    'tombstones that end before the last archived block',
    (tensors) => {
      const [standing] = numbersOf(tensors.get('tombstones')!)
      changed('tombstones.span', (at) => (at[2 * standing! - 1]! -= 1))(tensors)
    },
    /"tombstones\.span"/,
  ],
  [
    'tombstones that end behind the last archived block',
    (tensors) => {
      const [standing] = numbersOf(tensors.get('tombstones')!)
      changed('tombstones.span', (at) => (at[2 * standing! - 1]! += 1))(tensors)
    },
    /"tombstones\.span"/,
  ],
  ['a topic before the first', put('graph.member', [-1]), /"graph\.member"/],
  ['a topic behind the last', put('graph.member', [memory.graph!.max_virtual]), /"graph\.member"/],
  [
    'a topic that is free',
    (tensors) => {
      const [topic] = numbersOf(tensors.get('graph.member')!)
      changed('graph.n', (at) => (at[topic!] = 0))(tensors)
    },
    /"graph\.(member|n)"/,
  ],
]

describe('the state of an external memory', () => {
  let model: Model
  let file: Uint8Array
  beforeAll(async () => {
    model = await openModel(folder, { threads: 1, keepPacked: false })
    const sessions = new SessionManager(model, { verifyWeights: false })
    sessions.createSession('s')
    await sessions.process('s', randomIds(TOKENS, SUMMARIZE, 5))
    expect(await sessions.memory('s')).toMatchObject({ indexed: CLOSED, archived: ARCHIVED })
    file = await sessions.checkpointSession('s')
    await sessions.close()
  })
  afterAll(() => model.close())

  test('has blocks that are pending and brought back, anchors and topics, and is taken as it is', async () => {
    const { head } = await admit(forged(file, { tensors: () => undefined }), model, null)
    expect(head.archived).toBe(ARCHIVED)
    const seen: ForgedTensors[] = []
    forged(file, { tensors: (tensors) => void seen.push(tensors) })
    const first = (name: string): number => numbersOf(seen[0]!.get(name)!)[0]!
    expect([first('injections'), first('pendings'), first('anchors.entries'), first('tombstones')]).toEqual([
      2,
      2,
      A,
      5,
    ])
    expect(K).toBe(2)
  })

  test.each(HOSTILE)('is refused with %s', async (_, tensors, named) => {
    const forgery = forged(file, { tensors })
    const { head, state } = await decodeSnapshot(forgery, model.layout)
    const loaded = await model.openContext(state, clockOf(head)).then(
      (context) => {
        context.close()
        return null
      },
      (error: unknown) => error,
    )
    expect(loaded).toBeInstanceOf(ContinuoError)
    expect((loaded as ContinuoError).code).toMatch(/^(INVALID|REFUSED)$/)
    expect((loaded as ContinuoError).message).toMatch(named)
    await expect(admit(forgery, model, null)).rejects.toMatchObject({ code: 'REFUSED' })
  })
})
