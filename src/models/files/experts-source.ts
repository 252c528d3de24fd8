/**
 * Where the matrices of a model's experts lie in its files: what a store is packed from (docs/experts.md). Of a
 * `perspective` package that is experts.safetensors; of other mixtures what their graph declares as stacks of matrices.
 */
import { join } from 'node:path'
import { z } from 'zod'
import { membersOf, tensorsOf } from '../../engine/graph.ts'
import { inspectFiles } from '../../engine/inspect.ts'
import type { TensorEntry } from '../../engine/native.ts'
import { ContinuoError } from '../../errors.ts'
import type { ExpertCoding, ExpertsSource, MatrixPlace, Slice } from '../../experts/source.ts'
import { schemaFault } from '../../issues.ts'
import { STACKS, stackOf } from './expert-store.ts'
import { type Config, readConfig, readPackage } from './package.ts'

const PARTS = ['gate', 'up', 'down'] as const

const invalid = (message: string): ContinuoError => new ContinuoError('INVALID', message)

const perspectiveConfig = z.looseObject({
  hidden_size: z.int().positive(),
  num_hidden_layers: z.int().positive(),
  ffn_types: z.array(z.enum(['experts', 'dense'])),
  experts: z.looseObject({
    count: z.int().positive(),
    torus: z.tuple([z.int().positive(), z.int().positive()]),
    intermediate_size: z.int().positive(),
    format: z.literal('ternary3'),
    group_size: z.union([z.literal(32), z.literal(64)]),
    digest: z.string().regex(/^[0-9a-f]{64}$/),
  }),
})

const sliceOf = ({ file, offset, bytes }: TensorEntry): Slice => ({ file, offset, bytes })

/** Throws INVALID for a tensor that is missing or another than the sizes say. */
const expected = (
  tensors: ReadonlyMap<string, TensorEntry>,
  path: string,
  name: string,
  dtype: string,
  shape: readonly number[],
): TensorEntry => {
  const found = tensors.get(name)
  if (found === undefined) throw invalid(`${path} has no tensor "${name}"; the model is not whole. Download it again.`)
  if (found.dtype !== dtype || found.shape.join() !== shape.join())
    throw invalid(
      `${path} has "${name}" as ${found.dtype} [${found.shape.join(', ')}], expected ${dtype} [${shape.join(', ')}] by config.json.`,
    )
  return found
}

const perspectiveSource = (dir: string, config: Config): ExpertsSource => {
  const read = perspectiveConfig.safeParse(config)
  if (!read.success) {
    const { path, message } = schemaFault(read.error)
    throw invalid(`config.json has ${path.join('.')} that is not as a perspective model has it: ${message}.`)
  }
  const { hidden_size: channels, num_hidden_layers: depth, ffn_types: types, experts } = read.data
  const { count, torus, intermediate_size: inner, group_size: group, digest } = experts
  if (torus[0] * torus[1] !== count)
    throw invalid(
      `config.json has ${count} experts on a torus of ${torus.join(' by ')}; expected as many as it has places.`,
    )
  if (types.length !== depth || !types.includes('experts'))
    throw invalid(
      `config.json has ${types.length} ffn_types for ${depth} layers, expected one of each, and "experts" among them.`,
    )
  const path = join(dir, 'experts.safetensors')
  let headers: ReadonlyMap<string, TensorEntry> | null = null
  // A server has the store and need not have the file that it was packed from.
  const tensors = () => (headers ??= new Map(inspectFiles([path]).tensors.map((tensor) => [tensor.name, tensor])))
  const matrix = (name: string, outputs: number, inputs: number): MatrixPlace => ({
    codes: sliceOf(expected(tensors(), path, name, 'U8', [outputs, Math.ceil(inputs / 5)])),
    scales: sliceOf(expected(tensors(), path, `${name}.scales`, 'F16', [outputs, Math.ceil(inputs / group)])),
  })
  return {
    dir,
    files: [path],
    sizes: { coding: 'ternary3', experts: count, channels, inner, group, torus },
    layers: types.flatMap((type, layer) => (type === 'experts' ? [layer] : [])),
    placesOf: (layer) =>
      Array.from({ length: count }, (_, e) =>
        PARTS.map((part) => {
          const [outputs, inputs] = part === 'down' ? ([channels, inner] as const) : ([inner, channels] as const)
          return matrix(`model.layers.${layer}.experts.${e}.${part}_proj.weight`, outputs, inputs)
        }),
      ).flat(),
    digest,
  }
}

const FLOATS: Readonly<Record<string, ExpertCoding>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' }

/** The rows `from` … of one matrix in a tensor that may hold several, row-major. */
const rowsOf = (tensor: TensorEntry, from: number, rows: number): Slice => {
  const all = tensor.shape.slice(0, -1).reduce((product, extent) => product * extent, 1)
  const row = tensor.bytes / all
  return { file: tensor.file, offset: tensor.offset + from * row, bytes: rows * row }
}

const stackSource = async (dir: string): Promise<ExpertsSource> => {
  const { family, config, tensors, files, format, dir: folder } = await readPackage(dir)
  if (format !== 'safetensors')
    throw invalid(
      `${dir} is no folder of safetensors files; experts are packed from such a folder. Take the model in that form.`,
    )
  const { graph } = family.build(config, tensors)
  const stacks = STACKS.map((name) => stackOf(graph, name))
  if (stacks.every((stack) => stack === undefined))
    throw invalid(`${dir} is a "${config.model_type}" model, which has no experts; there is nothing to pack.`)
  if (stacks.some((stack) => stack === undefined))
    throw invalid(`${dir} has experts without a gate; a store is for experts of gate, up and down.`)
  const named = new Map(tensors.map((tensor) => [tensor.name, tensor]))
  const found = new Map<number, MatrixPlace[][]>()
  const codings = new Set<ExpertCoding>()
  const shapes = stacks.map((stack) => stack!.shape)
  const [experts, inner, channels] = shapes[0]! as readonly [number, number, number]
  const group = stacks[0]!.group ?? 0
  for (const [which, stack] of stacks.entries()) {
    const { shape, view, storage } = stack!
    const members = tensorsOf(graph, stack!)
    const scales = storage === undefined ? null : tensorsOf(graph, { ...stack!, pattern: stack!.scales! })
    const single = (stack!.pattern ?? '').includes('{e}')
    for (const [l, layer] of membersOf(graph, stack!).entries()) {
      const own = found.get(layer) ?? Array.from({ length: experts }, () => [])
      found.set(layer, own)
      for (let e = 0; e < experts; e += 1) {
        const at = single ? l * experts + e : l
        const tensor = named.get(members[at]!)!
        const coding = storage ?? FLOATS[tensor.dtype]
        if (coding === undefined)
          throw invalid(
            `${dir} has "${tensor.name}" as ${tensor.dtype}, expected F32, F16, BF16 or what \`continuo quantize\` writes.`,
          )
        codings.add(coding as ExpertCoding)
        // Rows of this matrix, where the tensor holds those of other experts, or those of gate and up, too.
        const start = view?.parts[0]?.[0] ?? 0
        const first = (single ? 0 : e * (view?.each ?? shape[1]!)) + start
        own[e]![which] = {
          codes: rowsOf(tensor, first, shape[1]!),
          scales: scales === null ? null : rowsOf(named.get(scales[at]!)!, first, shape[1]!),
        }
      }
    }
  }
  if (codings.size > 1)
    throw invalid(`${dir} has experts in several codings (${[...codings].join(', ')}); a store holds those of one.`)
  const sizes = { coding: [...codings][0]!, experts, channels, inner, group, torus: null }
  return {
    dir: folder,
    files,
    sizes,
    layers: [...found.keys()].toSorted((a, b) => a - b),
    placesOf: (layer) => found.get(layer)!.flat(),
    digest: null,
  }
}

/** Reads headers only. Throws INVALID for a package without experts, or with others than its config.json says. */
export const findExperts = async (dir: string): Promise<ExpertsSource> => {
  const config = await readConfig(dir).catch(() => null)
  return config?.model_type === 'perspective' ? perspectiveSource(dir, config) : stackSource(dir)
}
