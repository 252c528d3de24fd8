import { namesOf } from '../../client/topics.ts'
import { startProgress } from '../../observe/progress.ts'
import { verifyAtRest } from '../../operators/verify/rest.ts'
import type { Verification } from '../../operators/verify/verify.ts'
import { command } from '../command.ts'
import {
  blobFlags,
  blockFlags,
  blocksOf,
  logFlags,
  modelFlag,
  partitionsOf,
  recomputeFlags,
  sealFlags,
  withExistingLog,
  withModel,
} from '../common.ts'
import { on, optional } from '../flags.ts'
import { count, plural, print, printJson, printRow, say, shortName } from '../output.ts'

/** Sessions of each kind that are named one by one. */
const SHOWN = 10

/** The first of these sentences, and how many more there are. */
const printSome = (sentences: readonly string[]): void => {
  for (const sentence of sentences.slice(0, SHOWN)) printRow(sentence)
  if (sentences.length > SHOWN) print(`and ${count(sentences.length - SHOWN)} more.`)
}

const GONE = {
  input: 'its first events are not in the log',
  parent: 'the session that it was forked from was deleted, or cannot be computed up to there',
} as const

const tell = (result: Verification, seconds: number, blobs: boolean): void => {
  const { findings, partial, notRecomputed } = result
  for (const { kind, session, partition, where, message } of findings) {
    const whose = session === null ? '' : `, session "${shortName(session)}"`
    printRow(`${kind} (partition ${partition}${whose}, ${where}): ${message}`)
  }
  printSome(
    partial.map(
      ({ session, fromPulse }) =>
        `Session "${shortName(session)}" was recomputed from pulse ${count(fromPulse)} on: its first events are not in the log.`,
    ),
  )
  printSome(
    notRecomputed.map(
      ({ session, because }) =>
        `Session "${shortName(session)}" has ended and was not recomputed: ${GONE[because]}, and no state before its end is kept.`,
    ),
  )
  print(
    `Recomputed ${plural(result.sessions - notRecomputed.length, 'session')} from ${plural(result.events, 'event')} in ${seconds.toFixed(1)} s; compared ${plural(result.tokensCompared, 'generated token')}, ${plural(result.headsCompared, 'head')}, ${plural(result.snapshotsCompared, 'snapshot')}.`,
  )
  if (result.deleted > 0)
    print(`${plural(result.deleted, 'session')} had been deleted; what they were before is not recomputed.`)
  if (blobs) print(`Read ${plural(result.blobsRead, 'blob')} that are right.`)
  print(findings.length === 0 ? 'Everything agrees.' : `${plural(findings.length, 'finding')}.`)
}

export const verify = command({
  name: 'verify',
  about:
    'Recomputes every session from its events, beginning with an empty memory, and compares: each generated token, each observation, the state of each session, each snapshot, each dead letter. Changes nothing. Ends with 1 if anything differs.',
  flags: {
    ...logFlags,
    ...sealFlags,
    ...blobFlags,
    model: modelFlag,
    session: optional('ID', 'only this session'),
    blobs: on(
      'read every blob that the newest snapshots name, too; without it only the names of blobs are compared, and their bytes are not read',
    ),
    ...recomputeFlags,
    ...blockFlags,
  },
  notes:
    'Needs a log at rest: stop the workers first, or what they write meanwhile would look like a difference. If the log was written to meanwhile, verify says so and gives no result. Where the first events of a session are gone, verify begins at its oldest snapshot and says at which pulse (a pulse is one token read or written). A closed session keeps no snapshot: where its first events, or the session that it was forked from, are gone, verify says that it was not recomputed, which is no difference.',
  examples: [
    'verify --log file:continuo.db --model models/demo',
    'verify --log file:continuo.db --model models/demo --blob-store blobs --blobs',
  ],
  async run(flags, _args, given) {
    return withExistingLog(flags, (log) =>
      withModel(flags.model, flags, async ({ model, tokenizer }) => {
        const names = namesOf(log, flags['input-topic'])
        const partitions = await partitionsOf(log, names)
        let at: string | null = null
        const progress = flags.json ? null : startProgress(process.stderr, () => at)
        const started = performance.now()
        const options = {
          log,
          names,
          model,
          tokenizer,
          format: flags['input-format'],
          blobs: flags.blobs,
          blocks: blocksOf(flags, given, model),
          ...(flags.session === undefined ? {} : { session: flags.session }),
          onProgress: ({ partition, offset, end }: { partition: number; offset: number; end: number }) => {
            at = `Partition ${partition}: offset ${offset} of ${end}`
          },
        }
        const result = await verifyAtRest(options, partitions)
        progress?.stop()
        const { moved, findings } = result
        const unknown = flags.session !== undefined && result.sessions === 0 && !moved
        const ok = findings.length === 0 && !moved && !unknown
        if (flags.json) printJson({ ok, ...result })
        if (moved) {
          say(
            `A worker was writing to ${log.url} while it was read, and verify needs a log at rest: stop the workers and verify again.`,
          )
          return 1
        }
        if (unknown) say(`There is no session "${flags.session}" in ${log.url}.`)
        if (flags.json || (unknown && findings.length === 0)) return ok ? 0 : 1
        tell(result, (performance.now() - started) / 1000, flags.blobs)
        return ok ? 0 : 1
      }),
    )
  },
})
