/**
 * The crash suite: one worker is killed again and again, at named failpoints and at random moments, while events keep
 * coming; another reads the same events undisturbed. The judge is the undisturbed one: same tokens once each, same
 * observations and dead letters, same chains. Then verify recomputes what the disturbed ones left.
 */
import { join } from 'node:path'
import { expect } from 'vitest'
import type { Failpoint } from '../../src/failpoint.ts'
import { openPackage } from '../../src/models/open.ts'
import { verifyLog } from '../../src/operators/verify/verify.ts'
import type { RecordIn } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { topicNames } from '../../topics/index.ts'
import { temporaryFolder } from '../engine/packages.ts'
import type { FamilyKey, OpenedFamily } from '../families.ts'
import { collect, differenceOf, generating, type Result, retrieving } from './judge.ts'
import { appendAll, createCrashTopics, finish, PARTITIONS, runWorker } from './life.ts'
import { ADAPT_POINTS, BLOB_POINTS, PLAIN_POINTS, TOPIC_POINTS } from './points.ts'
import {
  adapting,
  continuations,
  forks,
  greed,
  random,
  remembering,
  residents,
  scenario,
  turnovers,
} from './scenario.ts'

export const expectSame = (disturbed: Result, undisturbed: Result): void => {
  expect(differenceOf(disturbed, undisturbed)).toBeNull()
}

/** Recomputes everything that the log holds, from its first event on. */
export const expectVerified = async (url: string, { dir, overflow, blobStore }: OpenedFamily): Promise<void> => {
  const { model, tokenizer } = await openPackage(dir, { threads: 2, device: 'cpu', overflow })
  const log = await openLog(url, blobStore === undefined ? {} : { blobStore })
  try {
    const found = await verifyLog({ log, names: topicNames(log.prefix), model, tokenizer, format: 'json' })
    expect(found.findings).toEqual([])
    expect(found.tokensCompared).toBeGreaterThan(0)
    expect(found.headsCompared).toBeGreaterThan(0)
  } finally {
    await log.close()
    model.close()
  }
}

export interface CrashReport {
  readonly kills: number
  /** Those that left a session in the middle of a generation. */
  readonly inside: number
  /** Those that left one with blocks that are still to come. */
  readonly retrieving: number
  readonly fired: ReadonlySet<Failpoint>
  /** Rounds of events that the log was given. */
  readonly rounds: number
}

export interface CrashPlan {
  /** Workers killed, at least. */
  readonly kills: number
  /** Each of them kills one at least. */
  readonly points?: readonly Failpoint[]
  /** At which pass a point kills that has not killed yet; 1 by default. Later up to two passes later. */
  readonly pass?: number
  /** Workers that may be started at most, each with a round of events of its own. */
  readonly lives?: number
  /** Rounds of events; default: the scenario of all kinds of events. */
  readonly rounds?: (count: number) => readonly (readonly RecordIn[])[]
  /**
   * Whether a kill must fall inside a generation that was committed in part. Default: yes. Plans about blobs and forks
   * have few.
   */
  readonly inGeneration?: boolean
  /**
   * Whether a kill must leave a session whose external memory has chosen blocks that are not in its list yet. Default:
   * no.
   */
  readonly whileRetrieving?: boolean
}

/** Once, inside the transaction of a commit, while every session generates. */
const ONCE: CrashPlan = { kills: 1, points: ['commit.sent'], pass: 9, lives: 3, rounds: continuations }

/**
 * Inside a commit and right behind it: a quick look where the whole list takes minutes. The first commit of a life
 * holds little.
 */
export const QUICK: CrashPlan = {
  kills: 3,
  points: ['commit.sent', 'commit.offsets', 'commit.ended'],
  pass: 3,
  lives: 10,
  rounds: (count) => scenario(count, 7, 4),
}

/** Between a blob and the commit that names it. */
export const QUICK_BLOBS: CrashPlan = {
  inGeneration: false,
  kills: 3,
  points: ['blobs.put', 'blobs.written', 'snapshot.written'],
  lives: 12,
}

/** The same with a family whose states have no block of 256 positions: nothing of them goes into the store. */
const QUICK_WHOLE: CrashPlan = { ...QUICK_BLOBS, points: ['snapshot.captured', 'snapshot.written', 'commit.ended'] }

/** With an external memory whose blocks sleep, are brought back, archived and forked. */
export const REMEMBERING: CrashPlan = {
  inGeneration: false,
  whileRetrieving: true,
  kills: 4,
  points: ['commit.sent', 'blobs.written', 'snapshot.written', 'restore.snapshot'],
  lives: 14,
  rounds: remembering,
}

/** The same, at every failpoint, and at random. */
export const REMEMBERING_LONG: CrashPlan = {
  ...REMEMBERING,
  inGeneration: true,
  kills: 24,
  points: [...PLAIN_POINTS, 'blobs.put', 'blobs.written'],
  lives: 70,
}

/**
 * A model that adapts: before a worker has read the event, in each phase of the adaptation, before its commit and
 * behind it.
 */
export const ADAPTING: CrashPlan = {
  inGeneration: false,
  kills: 6,
  points: ['restore.read', ...ADAPT_POINTS, 'commit.sent', 'commit.ended'],
  lives: 12,
  rounds: adapting,
}

/** The same, at every failpoint, and at random. */
export const ADAPTING_LONG: CrashPlan = {
  ...ADAPTING,
  inGeneration: true,
  kills: 27,
  points: [...PLAIN_POINTS, ...ADAPT_POINTS],
  lives: 80,
}

const FULL_BLOCKS: readonly FamilyKey[] = ['gpt2-window', 'qwen3', 'qwen35', 'qwen3moe']

/** What every family goes through with a folder or S3 as its store of blobs. */
export const inStore = (key: FamilyKey): CrashPlan => {
  if (key === 'memory') return REMEMBERING
  return FULL_BLOCKS.includes(key) ? QUICK_BLOBS : QUICK_WHOLE
}

/** On the way of a blob from its writing to its removal, while sessions begin anew all the time. */
export const BLOBS: CrashPlan = {
  inGeneration: false,
  kills: 16,
  points: [...BLOB_POINTS, 'restore.snapshot', 'snapshot.written', 'commit.sent', 'commit.ended'],
  lives: 60,
  rounds: turnovers,
}

const forking = (count: number) => forks(count, PARTITIONS)

/** Between the birth of a fork and the commit that names its first snapshot, and right behind that. */
export const QUICK_FORKS: CrashPlan = {
  inGeneration: false,
  kills: 3,
  points: ['snapshot.captured', 'snapshot.written', 'commit.ended'],
  pass: 5,
  lives: 10,
  rounds: forking,
}

/** The same, more often and also where sessions are rebuilt and snapshots removed. */
export const FORKS: CrashPlan = {
  inGeneration: false,
  kills: 12,
  points: [
    'snapshot.captured',
    'snapshot.part',
    'snapshot.written',
    'commit.prepared',
    'commit.sent',
    'commit.offsets',
    'commit.ended',
    'restore.snapshot',
    'restore.done',
  ],
  lives: 60,
  rounds: forking,
}

/**
 * Sessions that ask for far more than can be worked off, and make room for each other, beside some that ask for little.
 */
export const GREED: CrashPlan = {
  inGeneration: true,
  kills: 8,
  points: ['snapshot.captured', 'snapshot.written', 'commit.sent', 'commit.ended', 'restore.snapshot', 'restore.done'],
  pass: 2,
  lives: 16,
  rounds: greed,
}

/** The same, twenty times and more. */
export const GREED_LONG: CrashPlan = { ...GREED, kills: 24, lives: 60 }

/**
 * From the writing of a blob in the log to its removal. Some that live long are in the way of a trim, and are moved.
 */
export const BLOBS_IN_TOPIC: CrashPlan = {
  inGeneration: false,
  kills: 10,
  points: [...TOPIC_POINTS, 'restore.snapshot', 'commit.ended'],
  lives: 14,
  rounds: residents,
}

/** Two dozen; one in `.ci/run`, which does it for each change. */
const KILLS = process.env.CONTINUO_TURNS === 'on' ? 12 : 24

/** At every failpoint and at random. */
export const dozens = (key: FamilyKey): CrashPlan =>
  key === 'memory' ? REMEMBERING_LONG : key === 'perspective' ? ADAPTING_LONG : { kills: KILLS }

/** What each is killed with besides the dozens. */
export const once = (key: FamilyKey): CrashPlan =>
  key === 'memory' ? REMEMBERING : key === 'perspective' ? ADAPTING : ONCE

/** Tags of the test with `dozens`: many minutes each, so one family does for `.ci/run`. */
export const dozensWith = (key: FamilyKey): string[] => (key === 'rwkv7' ? ['slow'] : ['slow', 'long'])

/** Rounds of events behind the last kill: what it left goes on, and meets new events. */
const ROUNDS_BEHIND = 2

/**
 * Kills workers as planned, with a round of events before each life, and appends a few rounds more. Rounds that the
 * plan did not need are not read by anybody: a worker that nobody disturbs would only compute them for minutes.
 */
export const crashUntil = async (
  url: string,
  family: OpenedFamily,
  rounds: readonly (readonly RecordIn[])[],
  { kills, points = PLAIN_POINTS, pass = 1, inGeneration = true, whileRetrieving = false }: CrashPlan,
  seed = 11,
): Promise<CrashReport> => {
  const next = random(seed)
  const fired = new Set<Failpoint>()
  let died = 0
  let inside = 0
  let pending = 0
  let life = 0
  const isOver = (): boolean =>
    died >= kills && fired.size >= points.length && (!inGeneration || inside > 0) && (!whileRetrieving || pending > 0)
  for (; life < rounds.length && !isOver(); life += 1) {
    await appendAll(url, rounds[life]!)
    const named = life % 4 !== 3
    // Those that have not fired yet come first, with a small count so that they do.
    const missing = points.filter((name) => !fired.has(name))
    const name = missing[life % Math.max(1, missing.length)] ?? points[Math.floor(next() * points.length)]!
    const point = named ? `${name}@${pass + (missing.length > 0 ? 0 : Math.floor(next() * 3))}` : undefined
    const worker = runWorker(url, family, ['--until-idle', '150'], point)
    const timer = named ? undefined : setTimeout(() => worker.child.kill('SIGKILL'), 300 + next() * 700)
    const { code, signal, stderr } = await worker.over
    clearTimeout(timer)
    if (signal === 'SIGKILL') {
      died += 1
      if ((await generating(url)) > 0) inside += 1
      if (whileRetrieving && (await retrieving(url)) > 0) pending += 1
      if (named) fired.add(name)
    } else if (code !== 0)
      throw new Error(`life ${life} (${point ?? 'random'}) ended with code ${code}, signal ${signal}:\n${stderr}`)
  }
  const behind = rounds.slice(life, life + ROUNDS_BEHIND)
  await appendAll(url, behind.flat())
  return { kills: died, inside, retrieving: pending, fired, rounds: life + behind.length }
}

/**
 * A log that is disturbed as planned, of the URL that `fresh` makes of a name, and an embedded one that is not, and the
 * comparison: a stream is the same on every log.
 */
export const crash = async (family: OpenedFamily, fresh: (name: string) => string, plan: CrashPlan): Promise<void> => {
  const { kills, points = PLAIN_POINTS, lives = 120, inGeneration = true, whileRetrieving = false } = plan
  const rounds = (plan.rounds ?? scenario)(lives)
  const disturbed = fresh('disturbed')
  const undisturbed = `file:${join(temporaryFolder(), 'undisturbed.db')}`
  for (const url of [disturbed, undisturbed]) {
    const log = await openLog(url)
    await createCrashTopics(log)
    await log.close()
  }
  const report = await crashUntil(disturbed, family, rounds, plan)
  await finish(disturbed, family)
  await appendAll(undisturbed, rounds.slice(0, report.rounds).flat())
  await finish(undisturbed, family)

  expectSame(await collect(disturbed), await collect(undisturbed))
  expect(report.kills).toBeGreaterThanOrEqual(kills)
  if (inGeneration) expect(report.inside, 'kills inside a generation').toBeGreaterThan(0)
  if (whileRetrieving) expect(report.retrieving, 'kills while blocks are still to come').toBeGreaterThan(0)
  expect(points.filter((name) => !report.fired.has(name))).toEqual([])
  await expectVerified(disturbed, family)
}
