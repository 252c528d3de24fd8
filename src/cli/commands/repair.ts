import { namesOf } from '../../client/topics.ts'
import { createContextStore } from '../../operators/context-store.ts'
import { type Repaired, repairSession } from '../../operators/repair.ts'
import { checkFits } from '../../state/head.ts'
import { command } from '../command.ts'
import {
  blobFlags,
  logFlags,
  modelFlag,
  partitionsOf,
  recomputeFlags,
  sealFlags,
  stateOf,
  withExistingLog,
  withModel,
} from '../common.ts'
import { optional } from '../flags.ts'
import { plural, print, printable, printJson, say } from '../output.ts'

const tell = ({ session, partition, blobs, wrong, repaired, reason }: Repaired): void => {
  if (reason === null) return
  const done = repaired === wrong ? 'all put back' : `${repaired} put back`
  print(
    printable(`Session "${session}" (partition ${partition}): ${wrong} of ${plural(blobs, 'blob')} wrong, ${done}.`),
  )
  print(printable(`  ${reason}`))
}

export const repair = command({
  name: 'repair',
  about:
    'Reads every blob that the newest snapshots name. What is missing or damaged is computed again from the events of its session, and put back where its sha256 is right. Ends with 1 if something stays wrong.',
  flags: {
    ...logFlags,
    ...sealFlags,
    ...blobFlags,
    model: modelFlag,
    session: optional('ID', 'only this session'),
    ...recomputeFlags,
  },
  notes:
    'For blobs in a folder or in S3 (--blob-store). Writes nothing to the log, so workers need not stop. Without it a worker computes the whole session again when it comes to a blob that is wrong.',
  examples: ['repair --log file:continuo.db --model models/demo --blob-store blobs'],
  async run(flags) {
    return withExistingLog(flags, (log) =>
      withModel(flags.model, flags, async ({ model, tokenizer }) => {
        const names = namesOf(log, flags['input-topic'])
        const partitions = await partitionsOf(log, names)
        const contexts = createContextStore(model, { warn: say })
        const stored = { ...model, createContext: contexts.createContext, forkContext: contexts.forkContext }
        const engine = { model, tokenizer, submit: contexts.submit }
        const validate = { format: flags['input-format'], vocabSize: model.vocabSize, readsText: tokenizer !== null }
        const deps = { log, names, model: stored, engine, validate, warn: say }
        const all: Repaired[] = []
        try {
          for (let partition = 0; partition < partitions; partition += 1) {
            for (const head of (await stateOf(log, names, partition)).heads.values()) {
              if (flags.session !== undefined && head.session !== flags.session) continue
              checkFits(head, model)
              const seen = await repairSession(deps, partition, head)
              all.push(seen)
              if (!flags.json) tell(seen)
            }
          }
        } finally {
          await contexts.close()
        }
        const sum = (of: (each: Repaired) => number): number => all.reduce((total, each) => total + of(each), 0)
        const [blobs, wrong, repaired] = [
          sum((each) => each.blobs),
          sum((each) => each.wrong),
          sum((each) => each.repaired),
        ]
        if (flags.json) printJson({ ok: wrong === repaired, sessions: all })
        else if (flags.session !== undefined && all.length === 0)
          say(`There is no session "${flags.session}" in ${log.url}.`)
        else
          print(
            `Read ${plural(blobs, 'blob')} of ${plural(all.length, 'session')}: ${wrong} wrong, ${repaired} put back.`,
          )
        return wrong === repaired && (flags.session === undefined || all.length > 0) ? 0 : 1
      }),
    )
  },
})
