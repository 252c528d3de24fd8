import { startProgress } from '../../observe/progress.ts'
import { command } from '../command.ts'
import { nearest, usage } from '../flags.ts'
import { bytes, count, plural, print, printJson, table } from '../output.ts'
import { exitCodeOfSignal, untilSignal } from '../signals.ts'

const ACTIONS = ['pack', 'check'] as const

const percent = (share: number): string => `${(100 * share).toFixed(1)} %`

export const experts = command({
  name: 'experts',
  about:
    'pack writes the experts of a mixture into a store beside its weights, DIR/experts: one file for each layer, each expert where a disk reads it in one piece. check reads every byte of a store and names the first fault.',
  args: [
    { name: 'ACTION', help: ACTIONS.join(' or '), required: true },
    { name: 'DIR', help: 'folder of a model', required: true },
  ],
  flags: {},
  notes:
    'The same model gives the same bytes. A store that is there stays until the new one is whole. docs/experts.md has the form of the files.',
  examples: ['experts pack models/my-mixture', 'experts check models/my-mixture'],
  async run(flags, [action, dir]) {
    if (!ACTIONS.some((name) => name === action)) {
      const meant = nearest(action!, ACTIONS)
      throw usage(
        `continuo experts takes ${ACTIONS.join(' or ')}, not "${action}".${meant ? ` Did you mean ${meant}?` : ''}`,
      )
    }
    const { checkExperts, packExperts } = await import('../../experts/pack.ts')
    let at: string | null = null
    const stopping = untilSignal('Stopping after this layer. Once more ends at once.')
    const progress = flags.json ? null : startProgress(process.stderr, () => at)
    const started = performance.now()
    let done = 0
    const request = {
      dir: dir!,
      signal: stopping,
      onLayer: ({ file, fileBytes }: { readonly file: string; readonly fileBytes: number }) => {
        done += fileBytes
        at = `${file}: ${bytes(done)}`
      },
    }
    try {
      if (action === 'check') {
        const checked = await checkExperts(request)
        at = null
        progress?.stop()
        if (flags.json) printJson({ dir, ...checked })
        else {
          const total = checked.layers.reduce((sum, layer) => sum + layer.experts, 0)
          const deltas = checked.layers.reduce((sum, layer) => sum + layer.deltas, 0)
          print(
            `${checked.store} is whole: ${plural(checked.layers.length, 'layer')}, ${plural(total, 'expert')}, ${plural(deltas, 'delta')}, ${bytes(done)}, digest ${checked.digest}.`,
          )
        }
        return 0
      }
      const packed = await packExperts(request)
      at = null
      progress?.stop()
      const seconds = (performance.now() - started) / 1000
      if (flags.json) {
        printJson({ dir, ...packed, seconds })
        return 0
      }
      const { layers, sizes, store } = packed
      const compared = sizes.coding === 'ternary3' && sizes.torus !== null
      print(
        table(
          ['layer', 'experts', 'record', 'file', 'neighbours', 'deltas', 'of a record', 'trits that differ'],
          layers.map(
            ({ layer, experts: own, recordBytes, payloadBytes, fileBytes, pairs, deltas, deltaBytes, trits }) => [
              String(layer),
              count(own),
              bytes(recordBytes),
              bytes(fileBytes),
              count(pairs),
              count(deltas),
              deltas === 0 ? '' : percent(deltaBytes / deltas / payloadBytes),
              compared ? `${percent(trits.mean)} (${percent(trits.least)} to ${percent(trits.most)})` : '',
            ],
          ),
        ),
      )
      const total = layers.reduce((sum, { experts: own }) => sum + own, 0)
      print(
        `Wrote ${store}: ${count(total)} experts of ${sizes.coding}, ${bytes(packed.bytes)}, ${packed.bitsPerWeight.toFixed(2)} bits a weight, in ${seconds.toFixed(1)} s (${(packed.bytes / 1e6 / seconds).toFixed(0)} MB/s).`,
      )
      print(`digest ${packed.digest}`)
      return 0
    } catch (error) {
      if (stopping.aborted) return exitCodeOfSignal(stopping)
      throw error
    } finally {
      progress?.stop()
    }
  },
})
