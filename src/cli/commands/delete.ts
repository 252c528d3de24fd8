import { partitionFor } from '../../client/declared.ts'
import { answersFrom, deletionOf, eraseRecords, sendDelete } from '../../client/delete.ts'
import { namesOf } from '../../client/topics.ts'
import { ContinuoError } from '../../errors.ts'
import { workersOf } from '../../operators/worker/owner.ts'
import type { PartitionState } from '../../operators/worker/partition-state.ts'
import { type Purged, purgePartition } from '../../operators/worker/purge.ts'
import { command, type ExitCode } from '../command.ts'
import { blobFlags, inputTopicFlag, logFlags, partitionsOf, sealFlags, stateOf, withExistingLog } from '../common.ts'
import { on, usage } from '../flags.ts'
import { bytes, plural, print, printJson, say, shortName } from '../output.ts'
import { exitCodeOfSignal, untilSignal } from '../signals.ts'
import { checkSession } from './feed.ts'

/** The sessions that began as forks of these, and theirs. */
const forksOf = (states: readonly PartitionState[], session: string): readonly string[] => {
  const found = new Set([session])
  for (let before = 0; before < found.size; ) {
    before = found.size
    for (const { heads } of states)
      for (const head of heads.values()) if (head.from && found.has(head.from.session)) found.add(head.session)
  }
  found.delete(session)
  return [...found]
}

export const deleteSession = command({
  name: 'delete',
  about:
    'Deletes a session: sends a "delete" event, waits until a worker has done it, and then removes what is left of the session in state, snapshots and blobs, so that nothing of it can be found there. A later event of the same id begins a new session.',
  args: [{ name: 'SESSION', help: 'the session', required: true }],
  flags: {
    ...logFlags,
    ...sealFlags,
    ...blobFlags,
    'input-topic': inputTopicFlag,
    forks: on('also the sessions that began as forks of it, and theirs; otherwise their heads go on to name it'),
    records: on(
      'also its records: its events in the input, and what they led to in tokens, observations and dead letters (embedded log only)',
    ),
  },
  notes:
    'Takes the partition away from its worker for a moment; the worker claims it again and goes on. All that is alive in the partition is written anew, and an embedded log as a whole. Ctrl-C while it waits leaves the event in the log; call it again for the rest.',
  examples: ['delete book --log file:continuo.db', 'delete book --log file:continuo.db --records'],
  async run(flags, [id]) {
    const session = checkSession(id!, 'SESSION')
    const signal = untilSignal('Stopping. The event stays in the log; call this again for what is left to do.')
    return withExistingLog(flags, async (log): Promise<ExitCode> => {
      if (flags.records && log.eraser === undefined)
        throw usage(
          '--records needs an embedded log: Kafka removes no single records. Let its retention remove them, or move the log without the session: continuo migrate --drop.',
        )
      const names = namesOf(log, flags['input-topic'])
      const partitions = await partitionsOf(log, names)
      const all = Array.from({ length: partitions }, (_, partition) => partition)
      const answers = await Promise.all(all.map((partition) => answersFrom(log, names, partition)))
      const states = await Promise.all(all.map((partition) => stateOf(log, names, partition)))
      if (states.some(({ cursor }) => cursor?.format === 'text'))
        throw new ContinuoError(
          'INVALID',
          `${names.chunks} is read with --input-format text, which has no events: a "delete" event would be read as text. Nothing was sent. Move the log without the session: continuo migrate --drop.`,
        )
      const forks = forksOf(states, session)
      const victims = [session, ...(flags.forks ? forks : [])]
      const homes = all.filter((partition) => victims.some((victim) => states[partition]!.heads.has(victim)))
      // Where the session is gone already, what a call before this one left undone is done all the same.
      if (homes.length === 0) homes.push(await partitionFor(log, names, session))
      const deleted: { session: string; partition: number; offset: number }[] = []
      for (const partition of homes) {
        const { heads, cursor } = states[partition]!
        for (const victim of victims) {
          if (!heads.has(victim)) continue
          const offset = await sendDelete(log, names.chunks, partition, victim, cursor?.offset ?? 0)
          const group = cursor?.group ?? 'continuo'
          const members = await log.members(group)
          if (members?.every(({ topic }) => topic !== names.chunks) === true)
            say(
              `The event stands at offset ${offset} of partition ${partition}, and no worker of group "${group}" reads ${names.chunks}: start one (continuo run). Waiting for it.`,
            )
          const refusal = await deletionOf(log, names, partition, offset, answers[partition]!, signal)
          if (refusal === undefined) return exitCodeOfSignal(signal)
          if (refusal !== null) say(refusal)
          else deleted.push({ session: victim, partition, offset })
        }
      }
      const purged: Purged[] = []
      for (const partition of homes) {
        const owner = states[partition]!.cursor
        // Joining and leaving makes the group share its partitions anew: a worker that loses its claim here gets a
        // fresh one.
        const isRead = owner !== null && (await workersOf(log, owner.group, owner.topic)) !== null
        const membership = isRead ? await log.join(owner.group, owner.topic) : null
        try {
          const done = await purgePartition(log, names, partition)
          if (done !== null) purged.push(done)
        } finally {
          await membership?.leave()
        }
      }
      let erased = 0
      if (flags.records)
        for (const partition of homes)
          for (const victim of victims) erased += await eraseRecords(log, names, partition, victim)
      await log.eraser?.scrub()
      const named = flags.forks ? [] : forks
      if (flags.json) {
        printJson({ deleted, purged, erased, forks: named })
        return 0
      }
      if (deleted.length === 0)
        print(`There is no session "${shortName(session)}" in ${log.url}. What may have been left of it was removed.`)
      for (const { session: victim, partition, offset } of deleted)
        print(`Deleted session "${shortName(victim)}" of partition ${partition}, by the event at offset ${offset}.`)
      for (const { partition, sessions, bytes: size } of purged)
        print(
          `Partition ${partition}: wrote ${plural(sessions, 'session')} anew (${bytes(size)} of snapshots), removed the rest.`,
        )
      if (flags.records) print(`Erased ${plural(erased, 'record')} from input and outputs.`)
      if (named.length > 0)
        say(`Its forks go on, and their heads name it: ${named.join(', ')}. --forks deletes them too.`)
      if (log.kind === 'kafka')
        say('Brokers remove what was trimmed with the segments that it lies in (docs/manage.md).')
      return 0
    })
  },
})
