import { startProgress } from '../../observe/progress.ts'
import { verifyLog } from '../../operators/verify.ts'
import { command } from '../command.ts'
import {
  formatFlag,
  inputTopicFlag,
  logFlag,
  modelFlag,
  namesOf,
  partitionsOf,
  threadsFlag,
  withExistingLog,
  withModel,
} from '../common.ts'
import { optional } from '../flags.ts'
import { plural, print, printable, printJson } from '../output.ts'

export const verify = command({
  name: 'verify',
  about:
    'Recomputes every session from its events with a fresh context and compares: each generated token, each observation, each head, each snapshot, each dead letter. Changes nothing. Ends with 1 if anything differs.',
  flags: {
    log: logFlag,
    model: modelFlag,
    session: optional('ID', 'only this session'),
    'input-topic': inputTopicFlag,
    'input-format': formatFlag,
    threads: threadsFlag,
  },
  examples: ['verify --log file:continuo.db --model models/demo'],
  async run(flags) {
    return withExistingLog(flags.log, (log) =>
      withModel(flags.model, flags.threads, async ({ model, tokenizer }) => {
        const names = namesOf(log, flags['input-topic'])
        await partitionsOf(log, names)
        let at: string | null = null
        const progress = flags.json ? null : startProgress(process.stderr, () => at)
        const started = performance.now()
        const result = await verifyLog({
          log,
          names,
          model,
          tokenizer,
          format: flags['input-format'],
          ...(flags.session === undefined ? {} : { session: flags.session }),
          onProgress: ({ partition, offset, end }) => {
            at = `Partition ${partition}: offset ${offset} of ${end}`
          },
        })
        progress?.stop()
        const { findings, ...counts } = result
        if (flags.json) {
          printJson({ ok: findings.length === 0, ...counts, findings })
          return findings.length === 0 ? 0 : 1
        }
        for (const { kind, session, partition, where, message } of findings) {
          const whose = session === null ? '' : `, session "${session}"`
          print(printable(`${kind} (partition ${partition}${whose}, ${where}): ${message}`))
        }
        const seconds = ((performance.now() - started) / 1000).toFixed(1)
        print(
          `Recomputed ${plural(result.sessions, 'session')} from ${plural(result.events, 'event')} in ${seconds} s; compared ${plural(result.tokensCompared, 'generated token')}, ${plural(result.headsCompared, 'head')}, ${plural(result.snapshotsCompared, 'snapshot')}.`,
        )
        print(findings.length === 0 ? 'Everything agrees.' : `${plural(findings.length, 'finding')}.`)
        return findings.length === 0 ? 0 : 1
      }),
    )
  },
})
