import { namesOf } from '../../client/topics.ts'
import { type Repaired, repairPartition } from '../../operators/blobs/repair.ts'
import { createContextStore } from '../../operators/sessions/context-store.ts'
import { checkFits } from '../../state/head.ts'
import { historyFrom } from '../../state/history.ts'
import { command } from '../command.ts'
import {
  blobFlags,
  blockFlags,
  blocksOf,
  groupFlag,
  logFlags,
  modelFlag,
  partitionsOf,
  recomputeFlags,
  sealFlags,
  stateOf,
  validation,
  withExistingLog,
  withModel,
} from '../common.ts'
import { optional } from '../flags.ts'
import { plural, print, printJson, say, shortName } from '../output.ts'

const tell = ({ session, partition, blobs, wrong, repaired, anew, reason, left }: Repaired): void => {
  if (reason === null) return
  const done = anew
    ? 'its snapshot was written anew'
    : repaired === wrong && left === null
      ? 'all put back'
      : `${repaired} put back`
  const what = blobs === 0 ? 'its snapshot cannot be read' : `${wrong} of ${plural(blobs, 'blob')} wrong`
  print(`Session "${shortName(session)}" (partition ${partition}): ${what}${blobs === 0 && !anew ? '' : `, ${done}`}.`)
  print(`  ${reason}`)
  if (left !== null) print(`  ${left}`)
}

export const repair = command({
  name: 'repair',
  about:
    'Reads every blob that the newest snapshots name. What is missing or damaged is computed again from the events of its session, and put back where its sha256 is right; in the log, where nothing can be put back, its snapshot is written anew. Ends with 1 if something stays wrong.',
  flags: {
    ...logFlags,
    ...sealFlags,
    ...blobFlags,
    model: modelFlag,
    group: groupFlag,
    session: optional('ID', 'only this session'),
    ...recomputeFlags,
    ...blockFlags,
  },
  notes:
    'Blobs in a folder or in S3 (--blob-store) are put back while workers run. A snapshot is written anew only while the group has no worker. Without this command a worker computes the whole session again when it comes to what is wrong.',
  examples: [
    'repair --log file:continuo.db --model models/demo',
    'repair --log file:continuo.db --model models/demo --blob-store blobs',
  ],
  async run(flags, _args, given) {
    return withExistingLog(flags, (log) =>
      withModel(flags.model, flags, async ({ model, tokenizer }) => {
        const names = namesOf(log, flags['input-topic'])
        const partitions = await partitionsOf(log, names)
        const contexts = createContextStore(model, { warn: say, blocks: blocksOf(flags, given, model) })
        const stored = { ...model, createContext: contexts.createContext, forkContext: contexts.forkContext }
        const engine = { model, tokenizer, submit: contexts.submit }
        const { group } = flags
        const reading = { log, names, group, model, warn: say }
        const all: Repaired[] = []
        try {
          for (let partition = 0; partition < partitions; partition += 1) {
            const state = await stateOf(log, names, partition)
            const { cancelled, cursor } = state
            const validate = validation(flags['input-format'], state, model, tokenizer)
            const deps = { log, names, model: stored, engine, validate, group, warn: say }
            const heads = [...state.heads.values()].filter(
              ({ session }) => flags.session === undefined || session === flags.session,
            )
            for (const head of heads) checkFits(head, model)
            const owned = { ...deps, cancelled, engine: { ...engine, historyFrom: historyFrom(cursor) } }
            for await (const seen of repairPartition(owned, reading, partition, heads)) {
              all.push(seen)
              if (!flags.json) tell(seen)
            }
          }
        } finally {
          await contexts.close()
        }
        const sum = (of: (each: Repaired) => number): number => all.reduce((total, each) => total + of(each), 0)
        const ok = all.every(({ left }) => left === null)
        if (flags.json) printJson({ ok, sessions: all })
        else if (flags.session !== undefined && all.length === 0)
          say(`There is no session "${flags.session}" in ${log.url}.`)
        else
          print(
            `Read ${plural(
              sum((each) => each.blobs),
              'blob',
            )} of ${plural(all.length, 'session')}: ${sum((each) => each.wrong)} wrong, ${sum((each) => each.repaired)} put back or written anew.`,
          )
        return ok && (flags.session === undefined || all.length > 0) ? 0 : 1
      }),
    )
  },
})
