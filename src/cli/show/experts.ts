/**
 * The experts of a model that lie in a store, as text: how many, how large, what the disk gives for a token; of those
 * on a torus how often each was used.
 */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { ExpertStore } from '../../engine/experts.ts'
import type { ConstantDeclaration, Graph } from '../../engine/graph.ts'
import { aligned } from '../../engine/print.ts'
import { readHeader } from '../../experts/header.ts'
import { fileOf } from '../../experts/pack.ts'
import { bytes, count, plural } from '../output.ts'

/** The header of a layer's file, as far as it is shown. */
export interface ShownExperts {
  readonly store: string
  readonly digest: string
  readonly layers: number
  /** Of a layer. */
  readonly experts: number
  readonly chosen: number
  /** Weights of all experts, and of those that a token meets. */
  readonly parameters: number
  readonly active: number
  readonly bytes: number
  readonly recordBytes: number
  readonly deltas: number
  /**
   * Columns and rows of the torus, and of each layer how often each expert was used lately; null: on none, or never
   * used yet.
   */
  readonly torus: readonly [number, number] | null
  readonly frequencies: readonly (readonly number[])[] | null
  /** Parts that a perspective model has. */
  readonly parts: readonly string[]
}

const MAGIC = 'CNTNFRQ1'
const HEAD = 56

/** frequencies.bin (docs/experts.md); null where it is missing or another store's. */
const readFrequencies = (
  folder: string,
  layers: number,
  experts: number,
  digest: string,
): readonly number[][] | null => {
  const path = join(folder, 'frequencies.bin')
  if (!existsSync(path)) return null
  const content = readFileSync(path)
  const own = content.length === HEAD + layers * experts * 4 + 8 && content.toString('latin1', 0, 8) === MAGIC
  if (!own || content.toString('hex', 24, HEAD) !== digest) return null
  return Array.from({ length: layers }, (_, l) =>
    Array.from({ length: experts }, (_each, e) => content.readFloatLE(HEAD + 4 * (l * experts + e))),
  )
}

/** Null for a model without a store. */
export const expertsOf = (graph: Graph, store: ExpertStore | undefined): ShownExperts | null => {
  const declared = graph.declarations.find(
    (each): each is ConstantDeclaration => each.kind === 'constant' && each.layout === 'experts',
  )
  if (declared === undefined || store === undefined || !existsSync(store.folder)) return null
  const [experts, inner, channels] = declared.shape as readonly [number, number, number]
  const { layers, folder, digest } = store
  const perspective = graph.perspective as
    | (Readonly<Record<string, unknown>> & {
        readonly experts: { readonly torus: [number, number]; readonly top_k: number }
      })
    | undefined
  const routed = graph.declarations.find(({ name }) => name === 'router.ids' || /^\d+\.experts$/.test(name))
  const chosen = routed !== undefined && 'shape' in routed ? (routed.shape[0] ?? 1) : 1
  const weights = 3 * inner * channels
  const files = readdirSync(folder).filter((name) => name.endsWith('.experts'))
  return {
    ...{ store: folder, digest, layers: layers.length, experts, chosen },
    parameters: weights * experts * layers.length,
    active: weights * chosen * layers.length,
    bytes: files.reduce((sum, file) => sum + statSync(join(folder, file)).size, 0),
    recordBytes: readHeader(join(folder, fileOf(layers[0]!))).recordBytes,
    deltas: files.reduce((sum, file) => sum + readHeader(join(folder, file)).deltas, 0),
    torus: perspective?.experts.torus ?? null,
    frequencies: readFrequencies(folder, layers.length, experts, digest),
    parts: ['mpd', 'hdm', 'fmea']
      .filter((part) => perspective?.[part] != null)
      .concat(graph.declarations.some(({ name }) => name === 'spp.normals') ? ['spp'] : []),
  }
}

/** Uses of a layer's experts on their torus, as parts in a thousand of the tokens. */
const gridLines = ([columns, rows]: readonly [number, number], of: readonly number[]): readonly string[] =>
  Array.from({ length: rows }, (_, row) =>
    Array.from({ length: columns }, (_each, column) => (1000 * of[column * rows + row]!).toFixed(0).padStart(5)).join(
      '',
    ),
  )

export const expertLines = (shown: ShownExperts): readonly string[] => {
  const { torus, frequencies, parts } = shown
  const uses = (): readonly string[] => {
    if (torus === null) return []
    if (frequencies === null) return [`torus of ${torus.join(' by ')}; how often each expert is used is not known yet`]
    const grids = frequencies.map((each) => gridLines(torus, each))
    const wide = Math.max(1, Math.floor(100 / (5 * torus[0] + 2)))
    const lines: string[] = [`torus of ${torus.join(' by ')}; uses in a thousand tokens, newer ones count more:`]
    for (let from = 0; from < grids.length; from += wide) {
      const group = grids.slice(from, from + wide)
      lines.push(group.map((_, i) => `  layer ${from + i}`.padEnd(5 * torus[0] + 2)).join(''))
      for (let row = 0; row < torus[1]; row += 1) lines.push(group.map((grid) => `  ${grid[row]!}`).join(''))
    }
    return lines
  }
  return [
    ...aligned([
      [
        'experts',
        `${plural(shown.layers, 'layer')} of ${count(shown.experts)}, of which a token goes to ${shown.chosen}`,
      ],
      ['', `${count(shown.parameters)} weights in all, ${count(shown.active)} for a token`],
      ['store', `${shown.store}: ${bytes(shown.bytes)}, ${plural(shown.deltas, 'delta')}; digest ${shown.digest}`],
      [
        'a token',
        `reads ${bytes(shown.recordBytes * shown.chosen * shown.layers)} where none of its experts is in memory, ${bytes(shown.recordBytes)} each`,
      ],
      ...(parts.length === 0 ? [] : [['parts', parts.join(', ')] as const]),
    ]),
    ...uses(),
  ]
}
