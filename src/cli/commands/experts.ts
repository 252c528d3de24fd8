import type { CheckedExperts, PackedExperts, PackedLayer } from '../../experts/pack.ts'
import { command } from '../command.ts'
import { nearest, usage } from '../flags.ts'
import { bytes, count, plural, print, printJson, table } from '../output.ts'
import { interruptible } from '../work.ts'

const ACTIONS = ['pack', 'check'] as const

const percent = (share: number): string => `${(100 * share).toFixed(1)} %`

const sumOf = (layers: readonly PackedLayer[], of: (layer: PackedLayer) => number): number =>
  layers.reduce((sum, layer) => sum + of(layer), 0)

const tellChecked = ({ store, layers, digest }: CheckedExperts): void => {
  const [total, deltas] = [sumOf(layers, ({ experts: own }) => own), sumOf(layers, (layer) => layer.deltas)]
  const size = bytes(sumOf(layers, ({ fileBytes }) => fileBytes))
  print(
    `${store} is whole: ${plural(layers.length, 'layer')}, ${plural(total, 'expert')}, ${plural(deltas, 'delta')}, ${size}, digest ${digest}.`,
  )
}

const tellPacked = (packed: PackedExperts, seconds: number): void => {
  const { layers, sizes, store } = packed
  const compared = sizes.coding === 'ternary3' && sizes.torus !== null
  print(
    table(
      ['layer', 'experts', 'record', 'file', 'neighbours', 'deltas', 'of a record', 'trits that differ'],
      layers.map(({ layer, experts: own, recordBytes, payloadBytes, fileBytes, pairs, deltas, deltaBytes, trits }) => [
        String(layer),
        count(own),
        bytes(recordBytes),
        bytes(fileBytes),
        count(pairs),
        count(deltas),
        deltas === 0 ? '' : percent(deltaBytes / deltas / payloadBytes),
        compared ? `${percent(trits.mean)} (${percent(trits.least)} to ${percent(trits.most)})` : '',
      ]),
    ),
  )
  const total = sumOf(layers, ({ experts: own }) => own)
  print(
    `Wrote ${store}: ${count(total)} experts of ${sizes.coding}, ${bytes(packed.bytes)}, ${packed.bitsPerWeight.toFixed(2)} bits a weight, in ${seconds.toFixed(1)} s (${(packed.bytes / 1e6 / seconds).toFixed(0)} MB/s).`,
  )
  print(`digest ${packed.digest}`)
}

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
    const { findExperts } = await import('../../models/files/experts-source.ts')
    return interruptible(flags.json, 'Stopping after this layer. Once more ends at once.', async (work) => {
      let done = 0
      const request = {
        source: await findExperts(dir!),
        signal: work.signal,
        onLayer: ({ file, fileBytes }: PackedLayer) => {
          done += fileBytes
          work.show(`${file}: ${bytes(done)}`)
        },
      }
      if (action === 'check') {
        const checked = await checkExperts(request)
        work.finish()
        if (flags.json) printJson({ dir, ...checked })
        else tellChecked(checked)
      } else {
        const packed = await packExperts(request)
        const seconds = work.finish()
        if (flags.json) printJson({ dir, ...packed, seconds })
        else tellPacked(packed, seconds)
      }
      return 0
    })
  },
})
