import { existsSync } from 'node:fs'
import type { TopicNames } from '../../../topics/index.ts'
import { namesOf } from '../../client/topics.ts'
import { ContinuoError } from '../../errors.ts'
import { writeDurably } from '../../files.ts'
import type { ModelPackage } from '../../models/open.ts'
import { wholeFile } from '../../operators/snapshots/manifests.ts'
import { restoreSession } from '../../operators/snapshots/restore.ts'
import { readSnapshot } from '../../operators/snapshots/snapshots.ts'
import type { PartitionState } from '../../operators/worker/partition-state.ts'
import { checkFits, type Head, sameHead } from '../../state/head.ts'
import { historyFrom, withHistory, withoutHistory } from '../../state/history.ts'
import { encodeSnapshot, sealExport, snapshotHead } from '../../state/snapshot.ts'
import type { EventLog } from '../../streams/log.ts'
import { command, type ExitCode } from '../command.ts'
import {
  blobFlags,
  logFlags,
  partitionsOf,
  recomputeFlags,
  sealFlags,
  sessionFlag,
  stateOf,
  validation,
  withExistingLog,
  withModel,
} from '../common.ts'
import { on, optional, optionalWhole, refuseIdle, usage } from '../flags.ts'
import { bytes, count, print, printJson, say, shortName } from '../output.ts'
import { checkSession } from './feed.ts'

interface Place {
  readonly partition: number
  readonly state: PartitionState
  readonly head: Head
}

/** The session, wherever it is: one name may stand for two memories where producers do not agree on partitions. */
const findSession = async (
  log: EventLog,
  names: TopicNames,
  session: string,
  wanted: number | undefined,
): Promise<Place> => {
  const found: Place[] = []
  const partitions = await partitionsOf(log, names)
  for (let partition = 0; partition < partitions; partition += 1) {
    if (wanted !== undefined && wanted !== partition) continue
    const state = await stateOf(log, names, partition)
    const head = state.heads.get(session)
    if (head !== undefined) found.push({ partition, state, head })
  }
  const [only, ...others] = found
  if (only === undefined) {
    const where = wanted === undefined ? log.url : `partition ${wanted} of ${log.url}`
    throw new ContinuoError('INVALID', `There is no session "${session}" in ${where}.`)
  }
  if (others.length > 0) {
    const all = found.map(({ partition, head }) => `${partition} (at pulse ${head.conductor.globalStep})`).join(', ')
    throw new ContinuoError(
      'INVALID',
      `Session "${session}" stands in ${found.length} partitions, each with a memory of its own: ${all}. Say which one: --partition N.`,
    )
  }
  checkExportable(only.head, session)
  return only
}

const checkExportable = (head: Head, session: string): void => {
  if (head.status === 'closed') {
    throw new ContinuoError(
      'INVALID',
      `Session "${session}" is closed: its memory is gone, there is nothing to export.`,
    )
  }
  if (head.status === 'stopped')
    throw new ContinuoError('INVALID', `${head.stopped!.reason} There is no memory to export.`)
}

/** The newest snapshot, if the session stands exactly where it was taken. */
const atHead = async (log: EventLog, names: TopicNames, partition: number, head: Head): Promise<Uint8Array | null> => {
  if (head.snapshot === null || head.snapshot.pulse !== head.conductor.globalStep) return null
  const file = await readSnapshot(log, names.snapshots, partition, head)
  return sameHead(withoutHistory(snapshotHead(file)), head) ? wholeFile(log, file) : null
}

export const exportSession = command({
  name: 'export',
  about:
    "Writes a session's committed state to a safetensors file, with its clock and its place in the input inside. Changes nothing in the log; a running worker need not stop.",
  args: [{ name: 'FILE', help: 'the file to write', required: true }],
  flags: {
    ...logFlags,
    ...sealFlags,
    ...blobFlags,
    session: sessionFlag,
    partition: optionalWhole('N', 'where more than one partition has a session of that name', { min: 0 }),
    force: on('write over FILE where it is there already'),
    model: optional('DIR', 'needed where the session moved on since its newest snapshot'),
    ...recomputeFlags,
  },
  examples: ['export --log file:continuo.db --session book book.safetensors --model models/demo'],
  async run(flags, [path], given) {
    if (flags.model === undefined)
      refuseIdle(given, ['input-format', 'overflow', 'cache-dtype', 'threads', 'device'], '--model DIR')
    const session = checkSession(flags.session)
    const checkFree = (): void => {
      if (!flags.force && existsSync(path!))
        throw usage(
          `${path} is there already, and an export may be the only copy of a memory: choose another FILE, or write over it with --force.`,
        )
    }
    checkFree()
    return withExistingLog(flags, async (log): Promise<ExitCode> => {
      const names = namesOf(log, flags['input-topic'])
      const { partition, state: stored, head } = await findSession(log, names, session, flags.partition)
      const finish = async (plain: Uint8Array): Promise<ExitCode> => {
        const file = log.sealKeys === undefined ? plain : await sealExport(plain, log.sealKeys)
        checkFree()
        await writeDurably(path!, file)
        const { conductor, chain, cursor } = head
        const pulse = conductor.globalStep
        if (flags.json) printJson({ session, pulse, chain, file: path, bytes: file.length, complete: cursor.complete })
        else
          print(
            `Wrote ${path}: session "${shortName(session)}" at pulse ${count(pulse)}, chain ${chain}, ${bytes(file.length)}.`,
          )
        if (!cursor.complete) {
          say(
            `The session stands inside the record at offset ${cursor.offset}; import takes it only after that is finished.`,
          )
        }
        return 0
      }
      const file = await atHead(log, names, partition, head)
      if (file !== null) return finish(file)
      if (flags.model === undefined) {
        throw new ContinuoError(
          'INVALID',
          `Session "${session}" stands at pulse ${head.conductor.globalStep}, its newest snapshot at ${head.snapshot?.pulse ?? 'none'}: the rest must be replayed. Say which model it is: --model DIR.`,
        )
      }
      return withModel(flags.model, flags, async ({ model, tokenizer }: ModelPackage) => {
        checkFits(head, model)
        const { cancelled, cursor } = stored
        const engine = { model, tokenizer, submit: model.submit, historyFrom: historyFrom(cursor) }
        const validate = validation(flags['input-format'], stored, model, tokenizer)
        const restored = await restoreSession({ log, names, model, engine, validate, cancelled }, partition, head)
        const content = await restored.context.state()
        restored.context.close()
        return finish(await encodeSnapshot(withHistory(head, restored.history.kept()), content, model.layout))
      })
    })
  },
})
