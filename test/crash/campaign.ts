/**
 * A campaign: a pair of fresh logs that get the same events, one for workers that are killed again and again, one for a
 * worker that nobody disturbs, and the comparison. What is killed where follows from a seed: at named failpoints,
 * passed for the first to the fourth time, and at random moments of each phase of a life; sometimes the next worker
 * dies as well, before it could commit anything.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { codeOf } from '../../src/errors.ts'
import type { Failpoint } from '../../src/failpoint.ts'
import { murmur2 } from '../../src/streams/murmur2.ts'
import { openLog } from '../../src/streams/open.ts'
import { topicNames } from '../../topics/index.ts'
import type { OpenedFamily } from '../families.ts'
import { collect, differenceOf, type Output } from './judge.ts'
import { createCrashTopics, finish, runWorker, unfinished, type WorkerRun } from './life.ts'
import { PHASES, type Phase, type Phases, watchPhases } from './phases.ts'
import { PLAIN_POINTS } from './points.ts'
import { random, rounds } from './scenario.ts'

/** A failpoint's name, or the phase in which a random moment fell. */
export type Place = Failpoint | Phase
export const PLACES: readonly Place[] = [...PLAIN_POINTS, ...PHASES]

export interface CampaignOptions {
  readonly family: OpenedFamily
  readonly disturbed: string
  readonly undisturbed: string
  readonly seed: number
  readonly kills: number
  /** Of the workers: campaigns that share brokers have their own. */
  readonly group: string
  /** Flags of `continuo run` beside the family's, and what its environment has beside ours. */
  readonly flags: readonly string[]
  readonly env: NodeJS.ProcessEnv
  /** Ends the campaign with its reason. */
  readonly signal: AbortSignal
  /** `again`: the worker before it was killed too, and no event came between. */
  readonly onKill: (place: Place, again: boolean) => void
}

export interface Compared {
  /** Records of each output topic. */
  readonly events: Readonly<Record<Output, number>>
  readonly chains: number
  /** Workers that were started on the disturbed log. */
  readonly lives: number
}

/** Small rounds: most of a life should be what is tested, not the reading of much text. */
const ROUND = { events: 3, tail: 120 }
/** Unread records beyond which a worker gets no more before it has worked some off. */
const BACKLOG = 40
/** How often a failpoint is passed before it kills, at most. */
const PASSES = 4
/** Lives a kill: some end in peace, because the worker was done before its moment came. */
const LIVES = 6
/** No life takes minutes: one that does hangs. */
const LIFE_LIMIT = 600_000 // ms
/** A worker that was killed is followed at once by one that is killed before it commits: one time in so many. */
const AGAIN = 5

/** How often topics are asked for again. */
const PATIENCE = 5

/** A moment of a phase is drawn below a bound, which follows how long the phase lasts on this machine now. */
const createMoments = (next: () => number) => {
  const bounds: Record<Phase, number> = { starting: 500, restoring: 100, running: 150, stopping: 50 } // ms
  return {
    draw: (phase: Phase): number => next() * bounds[phase],
    learn: (phase: Phase, hit: boolean): void => {
      bounds[phase] = Math.min(10_000, Math.max(2, bounds[phase] * (hit ? 1.15 : 0.6)))
    },
  }
}

interface Aim {
  readonly name: Failpoint
  readonly order: number
  tries: number
  /** A count that a life was seen to reach, or may. */
  reach: number
}

/** The failpoint that was tried least often so far comes next. */
const createAims = (next: () => number) => {
  const aims: readonly Aim[] = PLAIN_POINTS.map((name) => ({ name, order: next(), tries: 0, reach: PASSES }))
  return {
    draw: (): { readonly aim: Aim; readonly count: number } => {
      const aim = aims.reduce((a, b) => (b.tries < a.tries || (b.tries === a.tries && b.order < a.order) ? b : a))
      aim.tries += 1
      return { aim, count: 1 + Math.floor(next() * aim.reach) }
    },
    learn: ({ aim, count }: { readonly aim: Aim; readonly count: number }, hit: boolean): void => {
      aim.reach = hit ? Math.min(PASSES, aim.reach + 1) : Math.max(1, count - 1)
    },
  }
}

interface Moment {
  readonly phase: Phase
  /** ms after the phase began. */
  readonly wait: number
  /** For `stopping`: ms between the first commit and SIGTERM, which begins it. */
  readonly beforeTerm: number
}

const alive = ({ child }: WorkerRun): boolean => child.exitCode === null && child.signalCode === null

/** Returns at the moment, or when the worker is over. */
const until = async (worker: WorkerRun, phases: Phases, { phase, wait, beforeTerm }: Moment): Promise<void> => {
  const pause = (ms: number) => Promise.race([sleep(ms, undefined, { ref: false }), worker.over])
  if (phase === 'stopping') {
    await Promise.race([phases.reached('running'), worker.over])
    await pause(beforeTerm)
    if (alive(worker)) worker.child.kill('SIGTERM')
    phases.enter('stopping')
  } else await Promise.race([phases.reached(phase), worker.over])
  await pause(wait)
}

/**
 * A worker on the disturbed log. Where it died; null: it ended in peace. Throws where it ended otherwise, or did not
 * end.
 */
const live = async (
  { family, disturbed, group, flags, env, signal }: CampaignOptions,
  failpoint: string | undefined,
  moment: Moment | null,
): Promise<Phase | 'failpoint' | null> => {
  signal.throwIfAborted()
  const all = [...flags, '--group', group, '--until-idle', '60', '--log-level', 'debug']
  const worker = runWorker(disturbed, family, all, failpoint, env)
  const phases = watchPhases(worker.child)
  let ours = false
  const end = (): void => {
    ours = true
    worker.child.kill('SIGKILL')
  }
  const overdue = setTimeout(end, LIFE_LIMIT)
  signal.addEventListener('abort', end)
  try {
    let struck: Phase | null = null
    if (moment !== null) {
      await until(worker, phases, moment)
      struck = phases.now()
      worker.child.kill('SIGKILL')
    }
    const { code, signal: by, stderr } = await worker.over
    signal.throwIfAborted()
    const ended = ours ? `did not end within ${LIFE_LIMIT / 1000} s` : `ended with code ${code}, signal ${by}`
    if (ours || (code !== 0 && by !== 'SIGKILL'))
      throw new Error(`A worker on ${disturbed} (${failpoint ?? JSON.stringify(moment)}) ${ended}:\n${stderr}`)
    return by === 'SIGKILL' ? (struck ?? 'failpoint') : null
  } finally {
    clearTimeout(overdue)
    signal.removeEventListener('abort', end)
  }
}

/** A broker that many start upon at once may be late with new topics; asking for them again changes nothing. */
const patiently = async (create: () => Promise<void>): Promise<void> => {
  for (let left = PATIENCE; ; left -= 1) {
    try {
      return await create()
    } catch (error) {
      if (left === 0 || codeOf(error) !== 'UNAVAILABLE') throw error
    }
  }
}

/** A transaction that a killed worker left open hides the offset until another worker claims the partition. */
const unknown = (error: unknown): number => {
  if (codeOf(error) !== 'UNAVAILABLE') throw error
  return 0
}

/**
 * Kills `kills` workers and compares. Throws where a worker failed, where too few could be killed, and at the first
 * difference.
 */
export const campaign = async (options: CampaignOptions): Promise<Compared> => {
  const { family, disturbed, undisturbed, group, kills, seed, flags, env, signal, onKill } = options
  // Families get the same events and different kills.
  const next = random(murmur2(Buffer.from(`${seed} ${family.key}`)))
  const firstPhase = Math.floor(next() * PHASES.length)
  const moments = createMoments(next)
  const aims = createAims(next)
  const source = rounds(seed, ROUND)
  const log = await openLog(disturbed)
  const other = await openLog(undisturbed)
  let lives = 0
  try {
    for (const each of [log, other]) await patiently(() => createCrashTopics(each))
    const feed = async (): Promise<void> => {
      const { value } = source.next()
      for (const each of [log, other]) await each.append(topicNames(each.prefix).chunks, value)
    }
    let died = 0
    let again = false
    const told = (place: Place | null): void => {
      if (place !== null) {
        died += 1
        onKill(place, again)
      }
      again = place !== null && !again && next() * AGAIN < 1
    }
    const atMoment = async (phase: Phase): Promise<void> => {
      const moment = { phase, wait: moments.draw(phase), beforeTerm: moments.draw('running') / 2 }
      const place = await live(options, undefined, moment)
      if (place === 'failpoint') throw new Error(`Somebody else killed a worker on ${disturbed}.`)
      moments.learn(phase, place === phase)
      told(place)
    }
    const atFailpoint = async (): Promise<void> => {
      const drawn = aims.draw()
      const place = await live(options, `${drawn.aim.name}@${drawn.count}`, null)
      aims.learn(drawn, place !== null)
      told(place === null ? null : drawn.aim.name)
    }
    for (; died < kills; lives += 1) {
      if (lives >= kills * LIVES)
        throw new Error(`Of ${lives} workers only ${died} could be killed; ${kills} were asked for.`)
      if (again) await atMoment(next() < 0.5 ? 'starting' : 'restoring')
      else {
        if ((await unfinished(log, group).catch(unknown)) < BACKLOG) await feed()
        // Three of five at failpoints, the others through the phases in turn.
        if (lives % 5 < 3) await atFailpoint()
        else await atMoment(PHASES[(firstPhase + Math.floor(lives / 5) * 2 + (lives % 5) - 3) % PHASES.length]!)
      }
    }
  } finally {
    await Promise.all([log.close(), other.close()])
  }
  for (const url of [disturbed, undisturbed]) {
    await finish(url, family, [...flags, '--group', group], env)
    signal.throwIfAborted()
  }
  const expected = await collect(undisturbed)
  const difference = differenceOf(await collect(disturbed), expected)
  if (difference !== null) throw new Error(difference)
  const count = (topic: Output): number => Object.values(expected.outputs[topic]).flat().length
  const events = { tokens: count('tokens'), observations: count('observations'), deadletters: count('deadletters') }
  if (events.tokens === 0 || expected.heads.size === 0)
    throw new Error('Neither log holds outputs: nothing was compared.')
  return { events, chains: expected.heads.size, lives }
}
