/** Probes of a session whose memory lies outside: the session does, tells and counts what it does without them. */
import { expect, test } from 'vitest'
import { codeOf } from '../../src/errors.ts'
import type { MemoryEvent } from '../../topics/observations.ts'
import { open } from '../engine/helpers.ts'
import { randomIds } from '../models/decoder-suite.ts'
import { RETRIEVE, SETTINGS, SUMMARIZE, writeSetting } from '../models/outer-memory/outer-memory-settings.ts'
import { managed } from './helpers.ts'

/** Blocks of 8 tokens, a window of 24: every 8 tokens one is archived. */
const { folder } = writeSetting(SETTINGS[0]!)
const ids = randomIds(110, SUMMARIZE, 4)
ids[45] = RETRIEVE
ids[70] = SUMMARIZE

const told = async (probeEvery: number | null) => {
  const model = await open(folder, { threads: 1, keepPacked: false })
  const pulses: number[] = []
  const manager = managed(
    model,
    probeEvery === null ? {} : { probeEvery, onProbe: ({ pulse }) => void pulses.push(pulse) },
  )
  const session = manager.createSession('s')
  const events: (readonly MemoryEvent[])[] = []
  events.push((await manager.process(session, ids)).events ?? [])
  events.push((await manager.archive(session)).events)
  events.push((await manager.retrieve(session)).events)
  events.push((await manager.retrieve(session, [4, 1])).events)
  await manager.generate(session, { maxTokens: 30, seed: 3 })
  const refused = await manager.retrieve(session, [10_000]).catch(codeOf)
  return { events, head: session.head, pulses, refused }
}

test.each([1, 3])('with a probe at every pulse that %i divides it does, tells and counts the same', async (every) => {
  const [plain, probed] = [await told(null), await told(every)]
  expect(plain.events.map((each) => each.length > 0)).toEqual([true, true, true, true])
  expect(plain.events[0]!.filter(({ type }) => type === 'archive').length).toBeGreaterThan(5)
  expect(probed.events).toEqual(plain.events)
  expect(probed.head).toEqual(plain.head)
  expect(probed.head.archived).toBeGreaterThan(14)
  expect(probed.refused).toBe('INVALID')
  expect(probed.pulses).toEqual(Array.from({ length: Math.ceil(140 / every) }, (_, i) => i * every))
})
