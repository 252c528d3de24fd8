import { withoutUrls } from '../../streams/shown.ts'
import { command } from '../command.ts'
import { blobFlags, blobsOf, groupFlag, SEAL_FLAGS, sealFlags, sealOf, TLS_FLAGS, tlsFlags, tlsOf } from '../common.ts'
import type { Check } from '../doctor/check.ts'
import { checkLog } from '../doctor/log.ts'
import { checkEngine, checkModel, checkVersions } from '../doctor/machine.ts'
import { optional, refuseIdle } from '../flags.ts'
import { print, printJson } from '../output.ts'

const MARKS = { ok: 'ok  ', warn: 'warn', fail: 'FAIL' } as const

export const doctor = command({
  name: 'doctor',
  about:
    'Checks this machine, and with --log and --model the log and the model. Each fault is named with its remedy. Ends with 1 if anything fails.',
  flags: {
    log: optional('URL', 'check this log, too'),
    ...tlsFlags,
    ...sealFlags,
    ...blobFlags,
    model: optional('DIR', 'check this model, too'),
    group: groupFlag,
    'input-topic': optional('TOPIC', 'the input topic, if it is not PREFIX.chunks'),
  },
  examples: ['doctor --log file:continuo.db --model models/demo'],
  async run(flags, _args, given) {
    if (flags.log === undefined)
      refuseIdle(given, [...TLS_FLAGS, ...SEAL_FLAGS, 'blob-store', 'input-topic', 'group'], '--log URL')
    const found: Check[] = [
      ...checkVersions(),
      ...checkEngine(),
      ...(flags.model === undefined ? [] : await checkModel(flags.model)),
      ...(flags.log === undefined
        ? []
        : await checkLog(flags.log, flags['input-topic'], flags.group, {
            ...tlsOf(flags),
            ...sealOf(flags),
            ...blobsOf(flags),
          })),
    ]
    // A word of the command line or a setting that was taken for a folder or a topic may be a URL.
    const words = [...process.argv.slice(2), ...Object.values(flags).filter((value) => typeof value === 'string')]
    const hide = (text: string): string => withoutUrls(text, words)
    const checks = found.map((check) => ({
      ...check,
      detail: hide(check.detail),
      ...(check.remedy !== undefined && { remedy: hide(check.remedy) }),
    }))
    const ok = checks.every(({ status }) => status !== 'fail')
    // Programs that read this know a remedy as `mend`.
    const asJson = ({ remedy, ...check }: Check) => ({ ...check, ...(remedy !== undefined && { mend: remedy }) })
    if (flags.json) printJson({ ok, checks: checks.map(asJson) })
    else {
      for (const { name, status, detail, remedy } of checks) {
        print(`${MARKS[status]}  ${name.padEnd(12)} ${detail}`)
        if (remedy !== undefined) print(`      ${' '.repeat(12)} → ${remedy}`)
      }
    }
    return ok ? 0 : 1
  },
})
