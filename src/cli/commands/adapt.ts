import { existsSync } from 'node:fs'
import { MAX_EVALUATIONS } from '../../../topics/chunks.ts'
import { writeDurably } from '../../files.ts'
import type { ModelPackage } from '../../models/open.ts'
import { SessionManager } from '../../sessions/manager.ts'
import type { Adaptation } from '../../sessions/types.ts'
import { checkExport, sealExport } from '../../state/snapshot.ts'
import { command, type ExitCode } from '../command.ts'
import { deviceFlag, expertFlags, modelFlag, sealFlags, sealOf, threadsFlag, withModel } from '../common.ts'
import { checkComplete, openExport } from '../export-file.ts'
import { neededWhole, on, optional, refuseIdle, usage, whole } from '../flags.ts'
import { bytes, count, plural, print, printJson, say, shortName } from '../output.ts'

const lossText = (value: number | null): string => (value === null ? 'a number that is not finite' : value.toFixed(4))

const linesOf = ({ tokens, evaluations, stages, bound, loss }: Adaptation, seconds: number): readonly string[] => {
  if (loss === null) return [`It read ${plural(tokens, 'token')} since its context began: nothing to learn from yet.`]
  const kept = stages.filter(({ accepted }) => accepted).length
  return [
    `${plural(tokens, 'token')}: ${lossText(loss.before)} nats a token before, ${lossText(loss.after)} after`,
    `${count(kept)} of ${plural(stages.length, 'stage')} kept; ${plural(bound, 'token')} bound in the hyperdimensional memory`,
    `${plural(evaluations, 'evaluation')} in ${seconds.toFixed(2)} s`,
  ]
}

/** The session in the file after an adaptation, with its place in its stream as it was, and what the adaptation did. */
const adaptedFile = async (
  file: Uint8Array,
  { model, tokenizer }: ModelPackage,
  options: { readonly evaluations: number; readonly seed: number },
): Promise<{
  readonly session: string
  readonly file: Uint8Array
  readonly report: Adaptation
  readonly seconds: number
}> => {
  const manager = new SessionManager(model, { tokenizer, verifyWeights: false, warn: say })
  try {
    const session = await manager.resumeSession(file)
    const { topic, partition, offset, token, complete, chunk, hash } = session.head.cursor
    const started = performance.now()
    const report = await manager.adapt(session, options)
    const seconds = (performance.now() - started) / 1000
    const place = { topic, partition, offset, token, complete, chunk, hash }
    return { session: session.id, file: await manager.checkpointSession(session, place), report, seconds }
  } finally {
    await manager.close()
  }
}

export const adapt = command({
  name: 'adapt',
  about:
    'Has the session in a file learn the tokens that it read last, as an "adapt" event does, and writes it back: the file is replaced whole, or stays as it was. Text that the session holds back is read first.',
  args: [{ name: 'FILE', help: 'a file that continuo export wrote', required: true }],
  flags: {
    model: modelFlag,
    evaluations: neededWhole('N', 'how often the tokens may be read again to learn them', {
      min: 1,
      max: MAX_EVALUATIONS,
    }),
    seed: whole('N', 'of the random numbers', 0, { min: 0 }),
    out: optional('FILE', 'write here instead'),
    force: on('with --out: write over that file where it is there already'),
    ...sealFlags,
    threads: threadsFlag,
    device: deviceFlag,
    ...expertFlags,
  },
  examples: ['adapt book.safetensors --evaluations 40 --seed 1 --model DIR'],
  async run(flags, [path], given): Promise<ExitCode> {
    const { out = path!, evaluations, seed } = flags
    if (flags.out === undefined) refuseIdle(given, ['force'], '--out FILE')
    const checkFree = (): void => {
      if (flags.out !== undefined && !flags.force && existsSync(flags.out))
        throw usage(`${flags.out} is there already: choose another file, or write over it with --force.`)
    }
    checkFree()
    return withModel(flags.model, flags, async (loaded) => {
      const { sealKeys } = sealOf(flags)
      const input = await openExport(path!)
      try {
        checkExport(input.header, sealKeys)
        checkComplete(path!, input.head)
        const made = await adaptedFile(await input.whole(), loaded, { evaluations, seed })
        const { session, file: plain, report, seconds } = made
        const file = sealKeys === undefined ? plain : await sealExport(plain, sealKeys)
        await input.checkUnchanged()
        checkFree()
        await writeDurably(out, file)
        const { head, ...told } = report
        const { chain } = head
        if (flags.json) printJson({ session, ...told, chain, seconds, file: out, bytes: file.length })
        else {
          for (const line of linesOf(report, seconds)) print(line)
          print(`Wrote ${out}: session "${shortName(session)}", chain ${chain}, ${bytes(file.length)}.`)
        }
        return 0
      } finally {
        await input.close()
      }
    })
  },
})
