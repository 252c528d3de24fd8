import type { TopicNames } from '../../../topics/index.ts'
import { namesOf } from '../../client/topics.ts'
import { ContinuoError, codeOf, messageOf } from '../../errors.ts'
import {
  type Amount,
  type Collected,
  collectPartition,
  type Orphan,
  orphansOf,
  ownerOf,
  removeTrials,
} from '../../operators/blobs/gc.ts'
import { workersOf } from '../../operators/worker/owner.ts'
import type { EventLog } from '../../streams/log.ts'
import { command, type ExitCode } from '../command.ts'
import { blobFlags, inputTopicFlag, logFlags, partitionsOf, sealFlags, withExistingLog } from '../common.ts'
import { list, nearest, on, refuseIdle, usage } from '../flags.ts'
import { bytes, count, plural, print, printJson, say } from '../output.ts'

const amount = (of: Amount): string => `${plural(of.blobs, 'blob')} (${bytes(of.bytes)})`

const tell = ({ partition, store, topic }: Collected, dry: boolean): void => {
  const removed = dry ? 'would remove' : 'removed'
  if (store === null && topic === null) print(`Partition ${partition}: no worker has had it yet.`)
  if (store !== null)
    print(`Partition ${partition}, ${store.folder}: kept ${amount(store.kept)}, ${removed} ${amount(store.removed)}.`)
  if (topic !== null)
    print(
      `Partition ${partition}, the topic: kept ${amount(topic.kept)}, ${removed} ${plural(topic.removed, 'record')} of ${count(topic.end - topic.begin)}.`,
    )
}

const tellOrphan = ({ folder, mark, removed, ...held }: Orphan): void => {
  const whose = mark === null ? 'no mark' : `"${mark}"`
  print(`${folder}: ${whose}, ${amount(held)}${removed ? ', removed' : ''}.`)
}

/** Groups that the partitions belong to, with the topic that each reads. */
const ownersIn = async (log: EventLog, names: TopicNames, partitions: number) => {
  const all = await Promise.all(Array.from({ length: partitions }, (_, partition) => ownerOf(log, names, partition)))
  const known = new Set(all.flatMap((owner, partition) => (owner?.logId ? [`${owner.logId}/${partition}`] : [])))
  const owners = new Map(all.flatMap((owner) => (owner === null ? [] : [[`${owner.group}\n${owner.topic}`, owner]])))
  return { known, owners: [...owners.values()] }
}

const orphans = async (
  log: EventLog,
  names: TopicNames,
  partitions: number,
  remove: readonly string[],
  json: boolean,
): Promise<ExitCode> => {
  if (log.blobs === undefined)
    throw usage('continuo blobs gc --orphans looks through a blob store: name it, --blob-store.')
  const { known } = await ownersIn(log, names, partitions)
  const found = await orphansOf(log.blobs, known, remove)
  if (json) printJson({ orphans: found })
  else {
    for (const orphan of found) tellOrphan(orphan)
    const left = found.filter(({ removed }) => !removed)
    print(
      `${plural(left.length, 'folder')} in ${log.blobs.url} ${left.length === 1 ? 'is' : 'are'} none of ${log.url}: of other logs, or of logs that are gone. --remove NAME removes one.`,
    )
  }
  return 0
}

export const blobs = command({
  name: 'blobs',
  about:
    'gc removes every blob that no committed snapshot names, from the blob store and from the topic of blobs. Workers remove most of them by themselves, when they outweigh what is alive.',
  args: [{ name: 'ACTION', help: 'gc', required: true }],
  flags: {
    ...logFlags,
    ...sealFlags,
    ...blobFlags,
    'input-topic': inputTopicFlag,
    'dry-run': on('only say what would be removed'),
    force: on('also while workers run: each loses its partitions for a moment, claims them again and goes on'),
    orphans: on('instead: list folders of the blob store that are of other logs, or of logs that are gone'),
    remove: list('NAME', 'with --orphans: remove this folder, as it is listed'),
  },
  notes:
    'Without --force it refuses while the group that owns the log has workers. In a topic nothing can be removed but what lies before all that is named.',
  examples: [
    'blobs gc --log file:continuo.db --dry-run',
    'blobs gc --log file:continuo.db --blob-store blobs',
    'blobs gc --log file:continuo.db --blob-store blobs --orphans',
  ],
  async run(flags, [action], given) {
    if (action !== 'gc') {
      const hint = nearest(action!, ['gc']) === null ? '' : ' Did you mean gc?'
      throw usage(`continuo blobs takes gc, not "${action}".${hint}`)
    }
    if (!flags.orphans) refuseIdle(given, ['remove'], '--orphans')
    else if (flags.force || flags['dry-run'])
      throw usage('--orphans removes nothing but what --remove names: --force and --dry-run have nothing to do there.')
    const dry = flags['dry-run']
    return withExistingLog(flags, async (log): Promise<ExitCode> => {
      const names = namesOf(log, flags['input-topic'])
      const partitions = await partitionsOf(log, names)
      if (flags.orphans) return orphans(log, names, partitions, flags.remove, flags.json)
      const { owners } = await ownersIn(log, names, partitions)
      for (const { group, topic } of dry || flags.force ? [] : owners) {
        const workers = await workersOf(log, group, topic)
        if (workers !== null)
          throw new ContinuoError('INVALID', `${workers} Nothing was changed. Stop the workers, or add --force.`)
      }
      // Joining and leaving makes the group share its partitions anew: a worker that loses its claim here gets a fresh
      // one.
      const memberships = flags.force ? await Promise.all(owners.map(({ group, topic }) => log.join(group, topic))) : []
      const all: Collected[] = []
      const failed: { partition: number; reason: string }[] = []
      try {
        for (let partition = 0; partition < partitions; partition += 1) {
          try {
            const seen = await collectPartition({ log, names, dry }, partition)
            all.push(seen)
            if (!flags.json) tell(seen, dry)
          } catch (error) {
            if (codeOf(error) !== 'REFUSED') throw error
            failed.push({ partition, reason: messageOf(error) })
            if (!flags.json) say(`Partition ${partition}: nothing was removed. ${messageOf(error)}`)
          }
        }
      } finally {
        for (const membership of memberships) await membership.leave()
      }
      const trials = log.blobs === undefined ? 0 : await removeTrials(log.blobs, dry)
      if (flags.json) printJson({ ok: failed.length === 0, dry, partitions: all, failed, trials })
      else if (trials > 0)
        print(`${dry ? 'Would remove' : 'Removed'} ${plural(trials, 'trial')} that doctor left in ${log.blobs!.url}.`)
      return failed.length === 0 ? 0 : 1
    })
  },
})
