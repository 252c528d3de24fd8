import type { TopicNames } from '../../../topics/index.ts'
import { messageOf } from '../../errors.ts'
import type { Head } from '../../state/head.ts'
import type { EventLog } from '../../streams/log.ts'
import { command } from '../command.ts'
import { inputTopicFlag, logFlag, namesOf, partitionsOf, stateOf, withExistingLog } from '../common.ts'
import { optional } from '../flags.ts'
import { count, plural, print, printable, printJson, say, table } from '../output.ts'

/** Pulses since the newest snapshot; null where there is none. */
const snapshotAge = ({ conductor, snapshot }: Head): number | null =>
  snapshot === null ? null : conductor.globalStep - snapshot.pulse

const asJson = (head: Head, partition: number) => ({
  session: head.session,
  partition,
  status: head.status,
  pulse: head.conductor.globalStep,
  origin: head.conductor.origin,
  ...head.totals,
  offset: head.cursor.offset,
  token: head.cursor.token,
  complete: head.cursor.complete,
  chain: head.chain,
  model: head.model,
  snapshot: head.snapshot === null ? null : { pulse: head.snapshot.pulse, bytes: head.snapshot.bytes },
  snapshotAge: snapshotAge(head),
})

const row = (head: Head, partition: number): string[] => {
  const age = snapshotAge(head)
  return [
    printable(head.session),
    String(partition),
    head.status,
    count(head.conductor.globalStep),
    count(head.totals.tokens),
    count(head.totals.generated),
    `${head.cursor.offset}${head.cursor.complete ? '' : `+${head.cursor.token}`}`,
    head.chain.slice(0, 12),
    age === null ? '-' : count(age),
  ]
}

const HEADER = ['session', '>partition', 'status', '>pulse', '>read', '>generated', '>offset', 'chain', '>snapshot age']

interface Seen {
  readonly heads: readonly (readonly [Head, number])[]
  readonly failures: readonly { readonly partition: number; readonly reason: string }[]
  /** Input records not finished, all partitions. */
  readonly waiting: number
}

const look = async (log: EventLog, names: TopicNames, session: string | undefined): Promise<Seen> => {
  const partitions = await partitionsOf(log, names)
  const heads: [Head, number][] = []
  const failures: { partition: number; reason: string }[] = []
  let waiting = 0
  for (let partition = 0; partition < partitions; partition += 1) {
    try {
      const state = await stateOf(log, names, partition)
      for (const head of state.heads.values()) {
        if (session === undefined || head.session === session) heads.push([head, partition])
      }
      const { begin, end } = await log.bounds(names.chunks, partition)
      waiting += end - (state.cursor?.offset ?? begin)
    } catch (error) {
      failures.push({ partition, reason: messageOf(error) })
    }
  }
  heads.sort(([a], [b]) => (a.session < b.session ? -1 : 1))
  return { heads, failures, waiting }
}

export const sessions = command({
  name: 'sessions',
  about:
    'Where every session stands, from the state topic, verified: pulse (a pulse is one token read or written), tokens, input offset (+ token inside an unfinished record), chain (a fingerprint of all that was computed), and pulses since its newest snapshot.',
  flags: { log: logFlag, session: optional('ID', 'only this session'), 'input-topic': inputTopicFlag },
  examples: ['sessions --log file:continuo.db'],
  async run(flags) {
    return withExistingLog(flags.log, async (log) => {
      const { heads, failures, waiting } = await look(log, namesOf(log, flags['input-topic']), flags.session)
      if (flags.json) {
        for (const [head, partition] of heads) printJson(asJson(head, partition))
        for (const failure of failures) printJson({ failed: true, ...failure })
      } else {
        if (heads.length > 0)
          print(
            table(
              HEADER,
              heads.map(([head, partition]) => row(head, partition)),
            ),
          )
        else if (flags.session === undefined) print('No sessions yet.')
        if (waiting > 0) print(`${plural(waiting, 'input record')} not finished.`)
      }
      for (const { partition, reason } of failures) say(`Partition ${partition}: ${reason}`)
      if (failures.length > 0) return 1
      if (flags.session === undefined || heads.length > 0) return 0
      say(`There is no session "${flags.session}" in ${log.url}.`)
      return 1
    })
  },
})
