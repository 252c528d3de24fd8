import { partitionFor } from '../../client/declared.ts'
import { ensureTopics, namesOf } from '../../client/topics.ts'
import { ContinuoError } from '../../errors.ts'
import { type ModelPackage, openPackage } from '../../models/open.ts'
import { clockOf, type SessionState } from '../../operators/advance/session-state.ts'
import { admit, admitFile } from '../../operators/sessions/admit.ts'
import { type ContextStore, createContextStore } from '../../operators/sessions/context-store.ts'
import { importPlain } from '../../operators/sessions/import-plain.ts'
import type { WholeFile } from '../../operators/snapshots/whole-file.ts'
import { asOwner, type Owned, saveSession } from '../../operators/worker/owner.ts'
import type { Head, PartitionCursor } from '../../state/head.ts'
import { historyIn, withoutHistory } from '../../state/history.ts'
import { checkExport } from '../../state/snapshot.ts'
import type { EventLog } from '../../streams/log.ts'
import { command, type ExitCode } from '../command.ts'
import {
  blobFlags,
  blockFlags,
  blocksOf,
  checkInput,
  groupFlag,
  inputTopicFlag,
  logFlags,
  modelFlag,
  openOptions,
  readingFlags,
  sealFlags,
  sealOf,
  sessionFlag,
  withLog,
  withModel,
} from '../common.ts'
import { checkComplete, openExport } from '../export-file.ts'
import { count, print, printJson, say, shortName } from '../output.ts'
import { checkSession } from './feed.ts'

const invalid = (message: string): ContinuoError => new ContinuoError('INVALID', message)

interface Admitted extends SessionState {
  /** It was a session of the plain decoder. */
  readonly taken: boolean
}

/** The session in the file; one of the plain decoder is taken over into the same decoder with an external memory. */
const admitted = async (
  file: WholeFile,
  { model, tokenizer }: Pick<ModelPackage, 'model' | 'tokenizer'>,
  contexts: ContextStore,
  openPlain: () => Promise<ModelPackage>,
): Promise<Admitted> => {
  const asItIs = async (): Promise<Admitted> => ({
    ...(await admitFile(file, model, tokenizer, contexts)),
    taken: false,
  })
  if (model.outerMemory === null || file.head.model === model.fingerprint) return asItIs()
  const { model: plain } = await openPlain()
  try {
    if (file.head.model !== plain.fingerprint) return await asItIs()
    const { head, state } = await importPlain(await admit(await file.whole(), plain, tokenizer), plain, model)
    const context = contexts.createContext()
    await context.load(state, clockOf(head))
    return { head: withoutHistory(head), context, history: historyIn(head, model.vocabSize), taken: true }
  } finally {
    plain.close()
  }
}

/**
 * The head of the session in this log. Its cursor stands just before the first record that is not finished, so that
 * every later record is new to it, and replays begin behind it; the clock, the chain and the sums go on. What was done
 * once was done in another log.
 */
const headIn = ({ claims, ...head }: Head, session: string, cursor: PartitionCursor): Head => ({
  ...head,
  session,
  cursor: {
    ...head.cursor,
    topic: cursor.topic,
    partition: cursor.partition,
    offset: cursor.offset - 1,
    token: 0,
    complete: true,
    chunk: null,
    hash: '0'.repeat(64),
  },
  born: -1,
  snapshot: null,
})

/** Read under the claim, so that what is checked cannot change before the commit. */
const checkPlace = ({ log, names, partition, state: { heads }, cursor }: Owned, session: string): void => {
  if (heads.has(session)) {
    throw invalid(`Session "${session}" exists already in ${log.url}. Import under another name.`)
  }
  if (cursor.done.length > 0) {
    throw invalid(
      `Partition ${partition} of ${names.chunks} has unfinished records before finished ones. Let a worker finish them first: continuo run … --until-idle 1000.`,
    )
  }
}

export const importSession = command({
  name: 'import',
  about:
    'Begins a session in this log with the state in a file: memory, clock, chain (the fingerprint of all that was computed) and sums go on where the export left them. A model with a memory.json takes over a session of the same model without it.',
  args: [{ name: 'FILE', help: 'a file that continuo export wrote', required: true }],
  flags: {
    ...logFlags,
    ...sealFlags,
    ...blobFlags,
    session: sessionFlag,
    model: modelFlag,
    group: groupFlag,
    'input-topic': inputTopicFlag,
    ...readingFlags,
    ...blockFlags,
  },
  notes:
    'Takes the partition away from a running worker for a moment; the worker notices at its next commit, claims it again and goes on. Events already waiting for the session are read after the import.',
  examples: ['import --log file:other.db --session book book.safetensors --model models/demo'],
  async run(flags, [path], given) {
    const session = checkSession(flags.session)
    return withModel(flags.model, flags, async (loaded): Promise<ExitCode> => {
      const { model } = loaded
      const contexts = createContextStore(model, { warn: say, blocks: blocksOf(flags, given, model) })
      const file = await openExport(path!)
      const place = async (log: EventLog, { head, context, history, taken }: Admitted): Promise<ExitCode> => {
        const names = namesOf(log, flags['input-topic'])
        await checkInput(log, flags['input-topic'])
        await ensureTopics(log, names)
        const partition = await partitionFor(log, names, session)
        // Joining and leaving makes the group share its partitions anew: a worker that loses its claim here gets a
        // fresh one.
        const membership = await log.join(flags.group, names.chunks)
        try {
          const reading = { log, names, group: flags.group, model, warn: say }
          const { conductor, chain } = await asOwner(reading, partition, async (owned) => {
            checkPlace(owned, session)
            const placed = headIn(head, session, owned.cursor)
            return saveSession(owned, { head: placed, context, history }, file.checkUnchanged)
          })
          const takenOver = conductor.globalStep - conductor.origin
          if (flags.json)
            printJson({
              ...{ session, partition, pulse: conductor.globalStep, chain, from: head.session },
              ...(taken && { takenOver }),
            })
          else {
            print(
              `Session "${shortName(session)}" begins in ${log.url}, partition ${partition}, at pulse ${count(conductor.globalStep)}, chain ${chain}.`,
            )
            if (taken)
              print(`The plain decoder read it: ${count(takenOver)} tokens were taken over into the external memory.`)
          }
        } finally {
          await membership.leave()
        }
        return 0
      }
      try {
        checkExport(file.header, sealOf(flags).sealKeys)
        const openPlain = (): Promise<ModelPackage> =>
          openPackage(flags.model, { ...openOptions(flags), withoutMemory: true, warn: () => undefined })
        const found = await admitted(file, loaded, contexts, openPlain)
        checkComplete(path!, found.head)
        return await withLog(flags, (log) => place(log, found))
      } finally {
        await file.close()
        await contexts.close()
      }
    })
  },
})
