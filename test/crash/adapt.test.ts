/**
 * One adaptation, and a worker that is killed in each of its phases: before it read the event, before the engine knows
 * of it, while the engine learns, behind that, in the commit and behind it. What is committed is all of the step or
 * nothing, and the next worker comes to the same.
 *
 * @module-tag slow
 */
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Failpoint } from '../../src/failpoint.ts'
import { openLog } from '../../src/streams/open.ts'
import type { ChunkInput } from '../../topics/chunks.ts'
import { type OpenedFamily, openFamily } from '../families.ts'
import { event } from '../operators/harness.ts'
import { eventually } from '../streams/helpers.ts'
import { collect, type Result } from './judge.ts'
import { appendAll, createCrashTopics, finish, runWorker } from './life.ts'
import { expectSame, expectVerified } from './suite.ts'

const dir = mkdtempSync(join(tmpdir(), 'continuo-adapt-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const START: readonly ChunkInput[] = [
  { type: 'open', perspectives: true },
  { type: 'text', text: 'The harbour froze in the first week of January.\ud83d' },
]
/** It reads half a surrogate pair first, which was held back. */
const ADAPT: ChunkInput = { type: 'adapt', evaluations: 60, seed: 3 }
const END: readonly ChunkInput[] = [{ type: 'generate', requestId: 'r', maxTokens: 20, seed: 5 }]
const ADAPT_OFFSET = START.length

let family: OpenedFamily
let logs = 0
const append = (url: string, all: readonly ChunkInput[]): Promise<void> =>
  appendAll(
    url,
    all.map((each) => ({ ...event('s', each), timestamp: 1_700_000_000_000 + each.type.length })),
  )
/** A copy of the log whose session has read what it is to learn from, with this adaptation behind that. */
const asked = async (adapt: ChunkInput): Promise<string> => {
  const path = join(dir, `${logs++}.db`)
  copyFileSync(join(dir, 'begun.db'), path)
  await append(`file:${path}`, [adapt])
  return `file:${path}`
}
/** What the log holds after the events behind the adaptation. */
const ended = async (url: string): Promise<Result> => {
  await append(url, END)
  await finish(url, family)
  const found = await collect(url)
  expect(adaptations(found)).toHaveLength(1)
  return found
}
const adaptations = ({ outputs }: Result): readonly string[] =>
  (outputs.observations.s ?? []).filter((text) => text.includes('"type":"adapted"'))

let undisturbed: Result
beforeAll(async () => {
  family = await openFamily('perspective', dir)
  const url = `file:${join(dir, 'begun.db')}`
  const log = await openLog(url)
  await createCrashTopics(log)
  await log.close()
  await append(url, START)
  await finish(url, family)
  undisturbed = await ended(await asked(ADAPT))
})

const PHASES: readonly { readonly point: Failpoint; readonly committed: boolean }[] = [
  { point: 'claim.done', committed: false },
  { point: 'restore.read', committed: false },
  { point: 'restore.snapshot', committed: false },
  { point: 'adapt.begun', committed: false },
  { point: 'adapt.running', committed: false },
  { point: 'adapt.done', committed: false },
  { point: 'commit.prepared', committed: false },
  { point: 'commit.sent', committed: false },
  { point: 'commit.offsets', committed: false },
  { point: 'commit.ended', committed: true },
  { point: 'commit.noted', committed: true },
]

const about = 'all of the step is in the log or nothing, and the next worker comes to the same'

for (const { point, committed } of PHASES)
  test(`killed at ${point}, ${about}`, async () => {
    const url = await asked(ADAPT)
    const { signal, stderr } = await runWorker(url, family, ['--until-idle', '150'], point).over
    expect(signal, stderr).toBe('SIGKILL')
    const left = await collect(url)
    expect(adaptations(left)).toHaveLength(committed ? 1 : 0)
    expect(left.heads.get('s')!.cursor.offset).toBe(committed ? ADAPT_OFFSET : ADAPT_OFFSET - 1)
    expectSame(await ended(url), undisturbed)
    await expectVerified(url, family)
  })

/** Clock ticks that the process computed, in all its threads. */
const ticksOf = (pid: number): number => {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) /s, '')
  return Number(stat.split(' ')[11])
}

test.skipIf(process.platform !== 'linux')('killed deep inside a long adaptation, it begins again', async () => {
  const long: ChunkInput = { type: 'adapt', evaluations: 1200, seed: 4 }
  const [url, other] = [await asked(long), await asked(long)]
  const worker = runWorker(url, family, ['--until-idle', '150'], 'adapt.running:stop')
  const pid = worker.child.pid!
  await eventually(() => expect(readFileSync(`/proc/${pid}/stat`, 'utf8')).toMatch(/\) T /), 60_000)
  const before = ticksOf(pid)
  worker.child.kill('SIGCONT')
  // Nothing but the engine has anything to do.
  await eventually(() => expect(ticksOf(pid)).toBeGreaterThan(before + 20), 60_000)
  worker.child.kill('SIGKILL')
  expect((await worker.over).signal).toBe('SIGKILL')
  const left = await collect(url)
  expect(adaptations(left)).toEqual([])
  expect(left.heads.get('s')!.cursor.offset).toBe(ADAPT_OFFSET - 1)
  expectSame(await ended(url), await ended(other))
})
