import type { Rounding } from '../../models/quantize/rounding.ts'
import { command } from '../command.ts'
import { threadsFlag } from '../common.ts'
import { choice, needed, optional, usage } from '../flags.ts'
import { bytes, count, plural, print, printJson, say } from '../output.ts'
import { interruptible } from '../work.ts'

const NAMES = ['q8', 'i4', 'ternary'] as const
const ROUNDINGS = ['nearest', 'search', 'importance', 'compensated'] as const satisfies readonly Rounding[]

export const quantize = command({
  name: 'quantize',
  about:
    'Writes a copy of a model package whose matrices are stored as small whole numbers: 8 bits, 4 bits or three values a weight, with a scale for every group of weights. Everything else of the model stays as it is, and so does the package.',
  args: [{ name: 'DIR', help: 'folder of a model, or a .pth file', required: true }],
  flags: {
    to: needed(NAMES.join('|'), 'q8: 8 bits a weight; i4: 4 bits; ternary: −1, 0 or 1'),
    out: optional('DIR', 'the folder to write, new or empty (default: DIR-q8, DIR-i4 or DIR-ternary, beside DIR)'),
    group: choice(['32', '64'], 'weights that share a scale', '32'),
    calibrate: optional(
      'FILE',
      'i4: text, or a JSON array of token ids, like what the model will read. Each rounding then makes good what those before did to its outputs; the first 32,768 tokens are read',
    ),
    rounding: optional(
      ROUNDINGS.join('|'),
      'i4: how weights become codes (default: compensated with --calibrate, else search)',
    ),
    threads: threadsFlag,
  },
  notes:
    'q8 hardly changes what a model says, i4 a little: small models more than large ones. ternary is for models that were trained for it: others lose much of their quality. The error printed at the end is the root mean square of what rounding changed, relative to that of the weights.',
  examples: [
    'quantize models/demo --to q8',
    'quantize models/demo --to i4 --calibrate book.txt',
    'quantize models/demo --to ternary --out small --group 64',
  ],
  async run(flags, [dir]) {
    const to = NAMES.find((name) => name === flags.to)
    if (to === undefined) throw usage(`--to is one of ${NAMES.join(', ')}; "${flags.to}" is none of them.`)
    const rounding = ROUNDINGS.find((name) => name === flags.rounding)
    if (flags.rounding !== undefined && rounding === undefined)
      throw usage(`--rounding is one of ${ROUNDINGS.join(', ')}; "${flags.rounding}" is none of them.`)
    const { defaultOut, GROUPS, quantizePackage } = await import('../../models/quantize/quantize.ts')
    const out = flags.out ?? defaultOut(dir!, to)
    const group = GROUPS.find((size) => String(size) === flags.group)!
    const stopping = 'Stopping: removing what was written. Once more ends at once.'
    return interruptible(flags.json, stopping, async ({ signal, show, finish }) => {
      const done = await quantizePackage({
        dir: dir!,
        out,
        to,
        group,
        ...(rounding !== undefined && { rounding }),
        ...(flags.calibrate !== undefined && { calibrate: flags.calibrate }),
        ...(flags.threads !== undefined && { threads: flags.threads }),
        signal,
        onTokens: (done, all) => show(`reading ${flags.calibrate}: ${count(done)} of ${count(all)} tokens`),
        onProgress: (now) => show(`${now.tensor}: ${bytes(now.done)} of ${bytes(now.bytes)}`),
      })
      const seconds = finish()
      if (flags.json) printJson({ dir, out, ...done, seconds })
      else {
        print(
          `Wrote ${out}: ${plural(done.tensors, 'matrix', 'matrices')} as ${done.format}, group ${done.groupSize}; ${plural(done.copied, 'tensor')} as they were.`,
        )
        if (done.rounding !== 'nearest') {
          const text =
            done.calibrationTokens > 0 ? `, by ${count(done.calibrationTokens)} tokens of ${flags.calibrate}` : ''
          print(`Rounding: ${done.rounding}${text}.`)
        }
        print(
          `${count(done.weights)} weights at ${done.bitsPerWeight.toFixed(2)} bits, relative RMS error ${done.relativeRmsError.toPrecision(3)}.`,
        )
        print(`weights: ${bytes(done.bytesBefore)} → ${bytes(done.bytesAfter)} in ${seconds.toFixed(1)} s.`)
        if (done.leftOut.length > 0) say(`Not copied: ${done.leftOut.join(', ')}.`)
      }
      return 0
    })
  },
})
