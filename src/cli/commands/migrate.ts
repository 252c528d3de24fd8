import { PARTITIONERS } from '../../../topics/input.ts'
import { type Copied, copyEvents } from '../../client/migrate.ts'
import { type Plan, planMigration } from '../../client/migrate-plan.ts'
import { ensureTopics, namesOf } from '../../client/topics.ts'
import { ContinuoError } from '../../errors.ts'
import { createLogger } from '../../observe/log.ts'
import { readPartitionState } from '../../operators/worker/partition-state.ts'
import { workerDefaults } from '../../operators/worker/settings.ts'
import type { Head } from '../../state/head.ts'
import type { EventLog } from '../../streams/log.ts'
import { host } from '../../worker/host.ts'
import { command, type ExitCode } from '../command.ts'
import { groupFlag, inputTopicFlag, replayFlags, sealFlags, tlsFlags, withLog, withModel } from '../common.ts'
import { list, needed, on, optional, optionalChoice, optionalWhole, usage } from '../flags.ts'
import { partitionerHelp } from '../input-flags.ts'
import { count, plural, print, printJson, say, shortName } from '../output.ts'
import { exitCodeOfSignal } from '../signals.ts'
import { interruptible, type Work } from '../work.ts'
import { exitCodeOf } from './run.ts'

/** How long the worker of the new log has had nothing to do when it is done, ms. */
const IDLE = 200
/** Differences that are shown. */
const SHOWN = 10

/** What a session is, wherever its records stand. */
const selfOf = ({ status, chain, conductor, totals, settings, cursor }: Head) =>
  JSON.stringify({ status, chain, conductor, totals, settings, held: cursor.held })

/** Throws REFUSED where events of the old log have no result yet: then there is nothing to compare theirs with. */
const checkRest = async (from: EventLog, topic: string, { bounds, states }: Plan): Promise<void> => {
  for (const [partition, { cursor }] of states.entries()) {
    if (cursor === null) continue
    const { end } = bounds[partition]!
    for await (const { records } of from.read(topic, partition, Math.max(cursor.offset, bounds[partition]!.begin), {
      until: end,
      undecodable: true,
    }))
      if (records.some(({ offset }) => !cursor.done.some(([first, next]) => offset >= first && offset < next)))
        throw new ContinuoError(
          'REFUSED',
          `Partition ${partition} of ${topic} has events that no worker has finished, so what they lead to cannot be compared. The events are copied. Let a worker of ${from.url} finish (continuo run --until-idle 1000), then call this again.`,
        )
  }
}

interface Compared {
  readonly equal: number
  /** Sessions with a request that was cancelled: where it ended follows from nothing in the events. */
  readonly cancelled: number
  readonly different: readonly string[]
}

/** The heads of the new log against those of the old one. */
const compare = async (to: EventLog, toNames: ReturnType<typeof namesOf>, plan: Plan): Promise<Compared> => {
  const heads = new Map<string, Head>()
  for (let partition = 0; partition < plan.partitions; partition += 1)
    for (const [id, head] of (await readPartitionState(to, toNames, partition, 0)).heads) heads.set(id, head)
  let equal = 0
  let cancelled = 0
  const different: string[] = []
  for (const { heads: old, cancelled: cuts } of plan.states) {
    const cut = new Set([...cuts.values()].map(({ session }) => session))
    for (const [id, head] of old) {
      if (!plan.sessions.has(id)) continue
      if (cut.has(id)) {
        cancelled += 1
        continue
      }
      const now = heads.get(id)
      if (now !== undefined && selfOf(now) === selfOf(head)) equal += 1
      else
        different.push(
          `Session "${shortName(id)}" stood at pulse ${head.conductor.globalStep}, chain ${head.chain}, ${head.status}; in the new log ${now === undefined ? 'there is none' : `it stands at pulse ${now.conductor.globalStep}, chain ${now.chain}, ${now.status}`}.`,
        )
    }
  }
  return { equal, cancelled, different }
}

export const migrate = command({
  name: 'migrate',
  about:
    'Copies the input of a log into a new one: to more partitions, to another kind of log, without some sessions, or for another model. With --model it computes the new log too, and where the model is that of the old log, compares clock, chain (the fingerprint of all that was computed) and sums of every session.',
  flags: {
    from: needed('URL', 'the log that is copied; nothing in it is changed'),
    to: needed('URL', 'the new log, under a prefix or in a file that holds none yet'),
    ...tlsFlags,
    ...sealFlags,
    'input-topic': inputTopicFlag,
    partitions: optionalWhole('N', 'partitions of the new log (default: as many as the old one has)', { min: 1 }),
    drop: list('ID', 'leave this session out'),
    'key-partitioner': optionalChoice(PARTITIONERS, `${partitionerHelp} (default: as the old log says, else murmur2)`),
    'keep-forks': on('forks go where the session belongs that they began from, whatever their own ids say'),
    model: optional('DIR', 'compute the new log with this model, until all is done; without it only events are copied'),
    group: groupFlag,
    ...replayFlags,
  },
  notes:
    'Called again it goes on where it was stopped or killed, and copies what came since; nothing is copied twice. Sessions that were deleted are left out. Another model generates other tokens from the same requests.',
  examples: [
    'migrate --from kafka://127.0.0.1:9092/old --to kafka://127.0.0.1:9092/new --partitions 8 --model models/demo',
    'migrate --from file:continuo.db --to file:without.db --drop book',
  ],
  async run(flags) {
    const { from: source, to: target } = flags
    if (source === target) throw usage('--from and --to name the same log; a log is copied into a new one.')
    const drop = new Set(flags.drop)
    const move = async (work: Work, from: EventLog, to: EventLog): Promise<ExitCode> => {
      const names = namesOf(from, flags['input-topic'])
      const toNames = namesOf(to)
      if (from.kind === to.kind && from.url === to.url) throw usage('--from and --to name the same log.')
      const { partitions, 'keep-forks': keepForks } = flags
      const plan = await planMigration({
        from,
        names,
        partitions,
        drop,
        keepForks,
        partitioner: flags['key-partitioner'],
      })
      for (const id of drop)
        if (!plan.states.some(({ heads }) => heads.has(id)) && plan.left.dropped === 0)
          say(`There is no session "${shortName(id)}" in ${from.url}.`)
      await ensureTopics(to, toNames, plan.partitions)
      const onCopied = (done: number): void => work.show(`${count(done)} records copied`)
      const copied: Copied = await copyEvents({
        from,
        to,
        fromNames: names,
        toNames,
        plan,
        signal: work.signal,
        onCopied,
      })
      if (copied.interrupted) {
        work.finish()
        return exitCodeOfSignal(work.signal)
      }
      const about = {
        records: copied.records,
        partitions: plan.partitions,
        sessions: plan.sessions.size,
        left: plan.left,
        placed: Object.fromEntries(plan.placed),
      }
      if (!flags.json) {
        work.finish()
        const { dropped, deleted, batches } = plan.left
        print(
          `Copied ${plural(copied.records, 'record')} of ${plural(plan.sessions.size, 'session')} to ${to.url}, ${plural(plan.partitions, 'partition')}. Left out: ${dropped} of dropped sessions, ${deleted} of deleted ones, ${plural(batches, 'batch', 'batches')} that cannot be decoded.`,
        )
        for (const [id, partition] of plan.placed)
          print(`Session "${shortName(id)}" is in partition ${partition}; its id belongs to another one.`)
      }
      if (flags.model === undefined) {
        if (flags.json) printJson({ ...about, computed: false })
        else
          print(
            `A worker computes it: ${[
              `continuo run --log ${target} --model DIR`,
              ...(plan.format === 'text' ? ['--input-format text'] : []),
              ...(plan.rules.partitioner === 'murmur2' ? [] : [`--key-partitioner ${plan.rules.partitioner}`]),
            ].join(' ')}${Object.keys(plan.rules).length > 1 ? ', and the other flags of the old input' : ''}`,
          )
        return 0
      }
      return withModel(flags.model, flags, async (loaded): Promise<ExitCode> => {
        const cursors = plan.states.flatMap(({ cursor }) => cursor ?? [])
        const isSame = cursors.length > 0 && cursors.every(({ model }) => model === loaded.model.fingerprint)
        if (isSame) await checkRest(from, names.chunks, plan)
        const outcome = await host({
          log: to,
          names: toNames,
          loaded,
          settings: { ...workerDefaults, group: flags.group, format: plan.format, input: plan.rules },
          untilIdle: IDLE,
          metrics: null,
          logger: createLogger({ level: 'error', write: (line) => process.stderr.write(line), short: true }),
          stopping: work.signal,
        })
        const code = exitCodeOf(outcome)
        if (work.signal.aborted) return exitCodeOfSignal(work.signal)
        if (code !== 0) {
          for (const error of [...outcome.refused.values(), ...outcome.unclean, outcome.halted])
            if (error instanceof Error) say(error.message)
          return code
        }
        const found = isSame ? await compare(to, toNames, plan) : null
        if (flags.json) printJson({ ...about, computed: true, compared: found })
        else if (found === null)
          print(
            cursors.length === 0
              ? 'Computed. No worker had computed the old log, so there is nothing to compare.'
              : 'Computed with another model than that of the old log: sessions, and the tokens that they generated, are its own. Nothing was compared.',
          )
        else {
          for (const line of found.different.slice(0, SHOWN)) print(line)
          print(
            `Computed and compared: clock, chain and sums of ${plural(found.equal, 'session')} are those of ${from.url}${found.different.length === 0 ? '' : `; ${found.different.length} differ`}.`,
          )
          if (found.cancelled > 0)
            print(
              `Not compared: ${plural(found.cancelled, 'session')} with cancelled requests, which end where the new log's worker reads the cancel.`,
            )
        }
        return found !== null && found.different.length > 0 ? 1 : 0
      })
    }
    return interruptible(flags.json, 'Stopping. Call this again: it goes on from here.', (work) =>
      withLog({ ...flags, log: source }, (from) => withLog({ ...flags, log: target }, (to) => move(work, from, to)), {
        existing: true,
      }),
    )
  },
})
