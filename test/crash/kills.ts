/**
 * `npm run test:kills`: kills a given number of workers on each log, shared evenly by the families of models, compares
 * what they left with what undisturbed workers leave, and prints what was killed where.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { count, plural, print, say, table } from '../../src/cli/output.ts'
import { exitCodeOfSignal, untilSignal } from '../../src/cli/signals.ts'
import { ContinuoError, codeOf, messageOf } from '../../src/errors.ts'
import { openLog } from '../../src/streams/open.ts'
import { FAMILIES, type FamilyKey, type OpenedFamily, openFamily } from '../families.ts'
import { findKafka, freshPrefix } from '../kafka/broker.ts'
import { type Compared, campaign, PLACES, type Place } from './campaign.ts'
import { createCrashTopics, finish } from './life.ts'
import { PLAIN_POINTS } from './points.ts'

const LOGS = ['embedded', 'kafka'] as const
type Log = (typeof LOGS)[number]

const KEYS = FAMILIES.map(({ key }) => key)

const help = `npm run test:kills -- [--kills N] [--log embedded|kafka|both] [--family NAME] [--seed S] [--jobs J]

Kills N workers on each log with SIGKILL, at named failpoints and at random moments, and compares tokens, observations, dead letters
and chains with those of workers that nobody disturbs. Prints what was killed where. Ends with 1 at the first difference; the logs
are kept then.
  --kills N       workers to kill on each log, shared evenly by the families (default 100)
  --log LOG       embedded, kafka or both (default both; Kafka is left out where there is none)
  --family NAME   only this one of ${KEYS.join(', ')}
  --seed S        of the events and of what is killed where (default 1)
  --jobs J        campaigns that run at the same time (default: one for each core)

Example:  npm run test:kills -- --kills 1000
`

/**
 * Kills of one pair of logs at most: a campaign's log and its comparison stay small however many kills are asked for.
 */
const CAMPAIGN = 50
/** Kills of a log from which on every failpoint must have been among them. */
const ENOUGH = 20 * PLAIN_POINTS.length

const whole = (name: string, text: string, min: number): number => {
  const value = Number(text)
  if (!/^\d+$/.test(text) || value < min || value > 2 ** 31)
    throw new ContinuoError('INVALID', `--${name} is a whole number from ${min} to ${2 ** 31}; it is "${text}".`)
  return value
}

const oneOf = (name: string, text: string, names: readonly string[]): void => {
  if (!names.includes(text))
    throw new ContinuoError('INVALID', `--${name} is one of ${names.join(', ')}; it is "${text}".`)
}

const parse = () => {
  try {
    return parseArgs({
      options: {
        kills: { type: 'string', default: '100' },
        log: { type: 'string', default: 'both' },
        family: { type: 'string' },
        seed: { type: 'string', default: '1' },
        jobs: { type: 'string', default: String(availableParallelism()) },
        help: { type: 'boolean', default: false },
      },
    })
  } catch (error) {
    throw new ContinuoError('INVALID', `${messageOf(error)}. --help lists the flags.`, { cause: error })
  }
}

const readFlags = () => {
  const { values } = parse()
  oneOf('log', values.log, [...LOGS, 'both'])
  if (values.family !== undefined) oneOf('family', values.family, KEYS)
  return {
    help: values.help,
    kills: whole('kills', values.kills, 1),
    seed: whole('seed', values.seed, 0),
    jobs: whole('jobs', values.jobs, 1),
    log: values.log,
    logs: LOGS.filter((log) => values.log === 'both' || values.log === log),
    families: KEYS.filter((key) => key === (values.family ?? key)),
  }
}
type Flags = ReturnType<typeof readFlags>

interface Job {
  readonly log: Log
  readonly family: FamilyKey
  readonly kills: number
  readonly seed: number
}

/** Numbers that differ by one at most and sum up to `total`. */
const shares = (total: number, parts: number): readonly number[] =>
  Array.from({ length: parts }, (_, at) => Math.floor((total * (at + 1)) / parts) - Math.floor((total * at) / parts))

/** The families in turn, each with the seeds S, S + 1, … */
const jobsOf = ({ kills, seed, families }: Flags, log: Log): readonly Job[] => {
  const each = shares(kills, families.length).map((share) => shares(share, Math.ceil(share / CAMPAIGN)))
  const rounds = Math.max(...each.map(({ length }) => length))
  return Array.from({ length: rounds }, (_, round) =>
    families.flatMap((family, at) => {
      const share = each[at]![round]
      return share === undefined ? [] : [{ log, family, kills: share, seed: seed + round }]
    }),
  ).flat()
}

interface Kill {
  readonly place: Place
  readonly family: string
  /** Right after another one. */
  readonly again: boolean
}

/** What was killed where on one log, and what of it was compared. */
const createTally = (families: readonly string[]) => {
  const kills: Kill[] = []
  const total = { tokens: 0, observations: 0, deadletters: 0, chains: 0, lives: 0 }
  const sum = (place: Place | null, family: string | null): number =>
    kills.filter((kill) => (place ?? kill.place) === kill.place && (family ?? kill.family) === kill.family).length
  return {
    /** Kills that were made, compared or not. */
    made: 0,
    compared(killed: readonly Kill[], { events, chains, lives }: Compared): void {
      kills.push(...killed)
      total.tokens += events.tokens
      total.observations += events.observations
      total.deadletters += events.deadletters
      total.chains += chains
      total.lives += lives
    },
    get missing(): readonly Place[] {
      return PLACES.filter((place) => sum(place, null) === 0)
    },
    print(log: Log): void {
      const row = (name: string, place: Place | null): readonly string[] => [
        name,
        ...families.map((family) => count(sum(place, family))),
        count(sum(place, null)),
      ]
      const named = (place: Place): string =>
        PLAIN_POINTS.some((name) => name === place) ? place : `random: while ${place}`
      const header = [`killed on ${log}`, ...families.map((family) => `>${family}`), '>all']
      print(`\n${table(header, [...PLACES.map((place) => row(named(place), place)), row('all', null)])}`)
      const again = kills.filter((kill) => kill.again).length
      print(`${count(again)} of them right after another one; ${plural(total.lives, 'worker')} started.`)
      const { tokens, observations, deadletters, chains } = total
      const events = `${plural(tokens, 'token event')}, ${plural(observations, 'observation')}, ${plural(deadletters, 'dead letter')}`
      print(`Compared, all equal: ${events}, ${plural(chains, 'chain')}.`)
    },
  }
}

/** Runs at most `width` at a time; the first that fails ends the others, and its error is thrown. */
const inLanes = async <T>(
  items: readonly T[],
  width: number,
  stopping: AbortSignal,
  run: (item: T, signal: AbortSignal) => Promise<void>,
) => {
  const failed = new AbortController()
  const signal = AbortSignal.any([failed.signal, stopping])
  const queue = [...items]
  const lane = async (): Promise<void> => {
    for (let item = queue.shift(); item !== undefined && !signal.aborted; item = queue.shift()) {
      await run(item, signal).catch((error: unknown) => {
        if (!stopping.aborted) failed.abort(error)
      })
    }
  }
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, lane))
  failed.signal.throwIfAborted()
}

/** Short: the time that a dead worker keeps its partitions is time in which nothing is tested. */
const FLAGS: Readonly<Record<Log, readonly string[]>> = {
  embedded: ['--session-timeout', '500'],
  kafka: ['--session-timeout', '2000'],
}

interface Ground {
  readonly log: Log
  /** The URL of a log by its name. */
  readonly urlOf: (name: string) => string
  /** Takes a log away that is no longer needed. */
  readonly forget: (name: string) => void
  /** How to see the logs again after a difference. */
  readonly kept: string
  stop(): Promise<void>
}

const embeddedGround = (folder: string): Ground => {
  const path = (name: string): string => join(folder, `${name}.db`)
  return {
    log: 'embedded',
    urlOf: (name) => `file:${path(name)}`,
    forget: (name) => {
      for (const suffix of ['', '-wal', '-shm']) rmSync(path(name) + suffix, { force: true })
    },
    kept: `They are in ${folder}.`,
    stop: async () => undefined,
  }
}

/** A sentence where there is no Kafka. */
const kafkaGround = async (folder: string): Promise<Ground | string> => {
  const dir = join(folder, 'kafka')
  const { kafka, missing } = await findKafka({ dir })
  if (kafka === undefined) return missing
  const prefix = freshPrefix()
  const { brokers, source, stop } = kafka
  return {
    log: 'kafka',
    urlOf: (name) => `kafka://${brokers}/${prefix}-${name}`,
    forget: () => undefined,
    kept:
      source === 'jars'
        ? `Their broker's data is in ${dir}: npm run kafka -- --jars --dir ${dir} --port ${brokers.split(':')[1]}`
        : source === 'environment'
          ? `They are on the brokers of KAFKA_BROKERS.`
          : 'They went with the container of their broker.',
    stop,
  }
}

const killOn = async (ground: Ground, folder: string, flags: Flags, stopping: AbortSignal): Promise<void> => {
  const { log, urlOf } = ground
  const families = new Map<FamilyKey, OpenedFamily>()
  for (const key of flags.families) families.set(key, await openFamily(key, folder))
  // Workers start from compiled code here: starting is most of a short life.
  const env = { NODE_COMPILE_CACHE: join(folder, 'compiled') }
  // One with nothing to do shows that workers can start, and leaves that code.
  const first = await openLog(urlOf('first'))
  await createCrashTopics(first)
  await first.close()
  await finish(urlOf('first'), families.get(flags.families[0]!)!, FLAGS[log], env)

  const tally = createTally(flags.families)
  const started = performance.now()
  const seconds = (): string => `${count((performance.now() - started) / 1000)} s`
  await inLanes(jobsOf(flags, log), flags.jobs, stopping, async ({ family, seed, kills }, signal) => {
    const pair = { disturbed: `${family}-${seed}-disturbed`, undisturbed: `${family}-${seed}-undisturbed` }
    const who = `${log} ${family}, seed ${seed}`
    const killed: Kill[] = []
    try {
      const compared = await campaign({
        disturbed: urlOf(pair.disturbed),
        undisturbed: urlOf(pair.undisturbed),
        family: families.get(family)!,
        seed,
        kills,
        group: freshPrefix(),
        flags: FLAGS[log],
        env,
        signal,
        onKill: (place, again) => {
          killed.push({ place, family, again })
          tally.made += 1
          if (tally.made % 50 === 0) say(`${log}: ${tally.made} of ${flags.kills} kills, ${seconds()}`)
        },
      })
      tally.compared(killed, compared)
      const { events, chains, lives } = compared
      const equal = `${plural(events.tokens, 'token event')} and ${plural(chains, 'chain')} equal`
      say(`${who}: ${kills} of ${lives} workers killed; ${equal}.`)
      for (const name of Object.values(pair)) ground.forget(name)
    } catch (error) {
      if (signal.aborted) throw error
      throw new Error(
        [
          `${who}: ${messageOf(error)}`,
          `The logs: ${urlOf(pair.disturbed)} against ${urlOf(pair.undisturbed)}. ${ground.kept}`,
          'The same events and the same plan once more (random moments follow the machine):',
          `npm run test:kills -- --log ${log} --family ${family} --seed ${seed} --kills ${kills}`,
        ].join('\n'),
        { cause: error },
      )
    }
  })
  tally.print(log)
  if (stopping.aborted) {
    print(`Stopped after ${plural(tally.made, 'kill')}: those whose logs were not compared yet are left out.`)
    return
  }
  print(`${seconds()}, ${flags.jobs} at a time.`)
  if (flags.kills >= ENOUGH && tally.missing.length > 0)
    throw new Error(`Nobody was killed at ${tally.missing.join(', ')}: the plan no longer gets there.`)
}

const groundOf = async (log: Log, folder: string, flags: Flags): Promise<Ground | null> => {
  if (log === 'embedded') return embeddedGround(folder)
  const ground = await kafkaGround(folder)
  if (typeof ground !== 'string') return ground
  if (flags.log === 'kafka') throw new ContinuoError('UNAVAILABLE', ground)
  say(`Kafka is left out: ${ground}`)
  return null
}

const main = async (): Promise<number> => {
  const flags = readFlags()
  if (flags.help) {
    print(help)
    return 0
  }
  const stopping = untilSignal('Stopping: ending the workers. Once more ends at once.')
  const folder = mkdtempSync(join(tmpdir(), 'continuo-kills-'))
  let keep = true
  try {
    for (const log of flags.logs) {
      const ground = await groundOf(log, folder, flags)
      if (ground === null) continue
      await killOn(ground, folder, flags, stopping).finally(ground.stop)
      if (stopping.aborted) break
    }
    keep = false
  } finally {
    if (!keep || stopping.aborted) rmSync(folder, { recursive: true, force: true })
  }
  return stopping.aborted ? exitCodeOfSignal(stopping) : 0
}

try {
  process.exitCode = await main()
} catch (error) {
  say(messageOf(error))
  process.exitCode = codeOf(error) === 'INVALID' ? 2 : 1
}
