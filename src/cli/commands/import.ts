import { readFile } from 'node:fs/promises'
import { ensureTopics, namesOf } from '../../client/topics.ts'
import type { Model } from '../../engine/types.ts'
import { ContinuoError } from '../../errors.ts'
import { type ModelPackage, openPackage } from '../../models/open.ts'
import { admit } from '../../operators/admit.ts'
import { openState, type Reading } from '../../operators/partition-state.ts'
import { writeSnapshot } from '../../operators/snapshots.ts'
import { takeOver } from '../../operators/take-over.ts'
import type { SealKeys } from '../../seal-key.ts'
import { type Head, type PartitionCursor, type SnapshotRef, seal } from '../../state/head.ts'
import { checkExport, filePieces, type Snapshot, snapshotHead } from '../../state/snapshot.ts'
import type { PartitionWriter } from '../../streams/log.ts'
import { command, type ExitCode } from '../command.ts'
import {
  cacheDtypeFlag,
  deviceFlag,
  groupFlag,
  inputTopicFlag,
  logFlags,
  modelFlag,
  openOptions,
  overflowFlag,
  sealFlags,
  sealOf,
  sessionFlag,
  threadsFlag,
  withLog,
  withModel,
} from '../common.ts'
import { usage } from '../flags.ts'
import { count, print, printJson, say } from '../output.ts'
import { checkSession } from './feed.ts'

const invalid = (message: string): ContinuoError => new ContinuoError('INVALID', message)

/** Whether the file says of itself that it is a snapshot; what is wrong with one that does is for `decodeSnapshot` to find. */
const isSnapshot = (file: Buffer): boolean => {
  if (file.length < 8) return false
  const header = file.subarray(8, 8 + Number(file.readBigUInt64LE()))
  return header.includes('"format":"continuo-snapshot"')
}

interface Admitted extends Snapshot {
  /** It was a session of the plain decoder. */
  readonly taken: boolean
}

/** The session in the file; one of the plain decoder is taken over into the same decoder with a memory outside. */
const admitted = async (
  file: Buffer,
  { model, tokenizer }: Pick<ModelPackage, 'model' | 'tokenizer'>,
  openPlain: () => Promise<ModelPackage>,
): Promise<Admitted> => {
  const as = async (judge: Model): Promise<Snapshot> => admit(file, judge, tokenizer)
  if (model.outerMemory === null || snapshotHead(file).model === model.fingerprint)
    return { ...(await as(model)), taken: false }
  const { model: plain } = await openPlain()
  try {
    if (snapshotHead(file).model !== plain.fingerprint) return { ...(await as(model)), taken: false }
    return { ...(await takeOver(await as(plain), plain, model)), taken: true }
  } finally {
    plain.close()
  }
}

const readFileSnapshot = async (
  path: string,
  { model, tokenizer }: ModelPackage,
  keys: SealKeys | undefined,
  openPlain: () => Promise<ModelPackage>,
): Promise<Admitted> => {
  const file = await readFile(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'EISDIR') throw usage(`${path} is a folder; a file that continuo export wrote is expected.`)
    throw invalid(`The file ${path} cannot be read: ${error.message}.`)
  })
  if (!isSnapshot(file)) throw invalid(`${path} is not a file that continuo export wrote. Nothing was changed.`)
  checkExport(file, keys)
  const snapshot = await admitted(file, { model, tokenizer }, openPlain)
  const { head } = snapshot
  if (!head.cursor.complete) {
    throw invalid(
      `${path} holds session "${head.session}" in the middle of the record at offset ${head.cursor.offset}, and the rest of that record is in another log. Let the worker finish it, then export again.`,
    )
  }
  return snapshot
}

/**
 * The head of the session in this log. Its cursor stands just before the first record that is not finished, so that every
 * later record is new to it, and replays begin behind it; the clock, the chain and the sums go on.
 */
const headIn = (head: Head, session: string, cursor: PartitionCursor): Head => ({
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

interface Place extends Reading {
  readonly partition: number
}

/** Reads the partition's state under the claim, so that what is checked cannot change before the commit. */
const cursorFor = async (place: Place, writer: PartitionWriter, session: string): Promise<PartitionCursor> => {
  const { log, names, partition } = place
  const { cursor, heads } = await openState(writer, place, partition, 0)
  if (heads.has(session)) {
    throw invalid(`Session "${session}" exists already in ${log.url}. Import under another name.`)
  }
  if (cursor.done.length > 0) {
    throw invalid(
      `Partition ${partition} of ${names.chunks} has unfinished records before finished ones. Let a worker finish them first: continuo run … --until-idle 1000.`,
    )
  }
  return cursor
}

const write = async (
  place: Place,
  writer: PartitionWriter,
  session: string,
  { head, state }: Snapshot,
): Promise<Head> => {
  const { names, model } = place
  const cursor = await cursorFor(place, writer, session)
  const placed = headIn(head, session, cursor)
  const file = await filePieces(placed, state, model.layout.tensors(state))
  const writing = await writeSnapshot(names.snapshots, session, placed.conductor.globalStep, file)
  let ref: SnapshotRef | null = null
  while (ref === null) ref = await writing.step(writer)
  const records = [{ ...placed, snapshot: ref }, cursor].map((record) => ({
    topic: names.state,
    ...seal(record, { topic: names.state, partition: place.partition, keys: place.log.sealKeys }),
  }))
  await writer.commit(records, cursor.offset)
  return placed
}

export const importSession = command({
  name: 'import',
  about:
    'Begins a session in this log with the state in a file: memory, clock, chain (the fingerprint of all that was computed) and sums go on where the export left them. A model with a memory.json takes over a session of the same model without it.',
  args: [{ name: 'FILE', help: 'a file that continuo export wrote', required: true }],
  flags: {
    ...logFlags,
    ...sealFlags,
    session: sessionFlag,
    model: modelFlag,
    group: groupFlag,
    'input-topic': inputTopicFlag,
    overflow: overflowFlag,
    'cache-dtype': cacheDtypeFlag,
    threads: threadsFlag,
    device: deviceFlag,
  },
  notes:
    'Takes the partition away from a running worker for a moment; the worker notices at its next commit, claims it again and goes on. Events already waiting for the session are read after the import.',
  examples: ['import --log file:other.db --session book book.safetensors --model models/demo'],
  async run(flags, [path]) {
    const session = checkSession(flags.session)
    return withModel(flags.model, flags, async (loaded) => {
      const { model } = loaded
      const snapshot = await readFileSnapshot(path!, loaded, sealOf(flags).sealKeys, () =>
        openPackage(flags.model, { ...openOptions(flags), withoutMemory: true, warn: () => undefined }),
      )
      return withLog(flags, async (log): Promise<ExitCode> => {
        const names = namesOf(log, flags['input-topic'])
        await ensureTopics(log, names)
        const partition = await log.partitionOf(names.chunks, Buffer.from(session))
        // Joining and leaving makes the group share its partitions anew: a worker that loses its claim here gets a fresh one.
        const membership = await log.join(flags.group, names.chunks)
        try {
          const writer = await log.claim(flags.group, names.chunks, partition)
          try {
            const head = await write(
              { log, names, group: flags.group, partition, model, warn: say },
              writer,
              session,
              snapshot,
            )
            const { conductor, chain } = head
            if (flags.json)
              printJson({
                ...{ session, partition, pulse: conductor.globalStep, chain, from: snapshot.head.session },
                ...(snapshot.taken && { takenOver: conductor.globalStep - conductor.origin }),
              })
            else {
              print(
                `Session "${session}" begins in ${log.url}, partition ${partition}, at pulse ${count(conductor.globalStep)}, chain ${chain}.`,
              )
              if (snapshot.taken)
                print(
                  `The plain decoder read it: ${count(conductor.globalStep - conductor.origin)} tokens were taken over into the memory outside.`,
                )
            }
          } finally {
            await writer.close()
          }
        } finally {
          await membership.leave()
        }
        return 0
      })
    })
  },
})
