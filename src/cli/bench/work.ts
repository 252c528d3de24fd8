/**
 * The multiplications of one token, read off the model's graph, so that they are right for every family and every
 * storage of the weights.
 */
import { type ConstantDeclaration, type Graph, type Node, tensorsOf } from '../../engine/graph.ts'
import type { TensorEntry } from '../../engine/native.ts'
import { readPackage } from '../../models/files/package.ts'

export interface Work {
  /** Weights that a token is multiplied by; two operations each. */
  readonly weights: number
  /** Bytes of the weights as the engine lays them out: a token alone reads all of them. */
  readonly bytes: number
}

export interface TokenWork {
  /** Reading a token: the state moves on. */
  readonly step: Work
  /** Multiplications for its surprisal, or for the choice of the next token, beside that. */
  readonly predict: Work
}

/** Outputs of a tile; tiles are padded (native/backends/cpu/kernels/kernels.h). */
const TILE = 64
const SCALE_BYTES = 2

/** Bytes of a number, by the format of its file, where they are not four (native/weights/packed_matrix.h). */
const NUMBER_BYTES: Readonly<Record<string, number>> = {
  F16: 2,
  BF16: 2,
  F8_E4M3: 2,
  Q8_0: 34 / 32,
  Q5_0: 34 / 32,
  Q4_0: 18 / 32,
  Q4_K: 148 / 256,
  Q6_K: 210 / 256,
  TQ1_0: 18 / 64,
  TQ2_0: 18 / 64,
}

/** Bytes of a matrix [outputs, inputs], packed. */
const packedBytes = ({ shape, storage, group = 32 }: ConstantDeclaration, dtype: string): number => {
  const [outputs = 1, inputs = 1] = shape
  const rows = Math.ceil(outputs / TILE) * TILE
  if (storage === undefined) return rows * inputs * (NUMBER_BYTES[dtype] ?? 4)
  const codes = storage === 'q8' || storage === 'i4' ? group : group / 4
  return rows * Math.ceil(inputs / group) * (codes + SCALE_BYTES)
}

const inputsOf = (nodes: readonly Node[]): readonly string[] =>
  nodes.flatMap((node) => {
    if ('return' in node) return []
    if ('nodes' in node) {
      const { nodes: inner, otherwise = [] } = node as { nodes: readonly Node[]; otherwise?: readonly Node[] }
      return [...inputsOf(inner), ...inputsOf(otherwise)]
    }
    return (node as { in?: readonly string[] }).in?.map((input) => input.replace(/\(.*$/, '')) ?? []
  })

const workOf = (graph: Graph, block: string, tensors: readonly TensorEntry[]): Work => {
  const used = new Set(inputsOf(graph.blocks.find(({ name }) => name === block)?.nodes ?? []))
  const dtypes = new Map(tensors.map(({ name, dtype }) => [name, dtype]))
  let weights = 0
  let bytes = 0
  for (const declaration of graph.declarations) {
    if (declaration.kind !== 'constant' || declaration.layout !== 'packed' || !used.has(declaration.name)) continue
    for (const tensor of tensorsOf(graph, declaration)) {
      weights += declaration.shape.reduce((product, extent) => product * extent, 1)
      bytes += packedBytes(declaration, dtypes.get(tensor) ?? 'F32')
    }
  }
  return { weights, bytes }
}

/** Of the package in `dir`. */
export const tokenWork = async (dir: string): Promise<TokenWork> => {
  const { config, family, tensors, fileTensors } = await readPackage(dir)
  const { graph } = family.build(config, tensors)
  return { step: workOf(graph, 'step', fileTensors), predict: workOf(graph, 'predict', fileTensors) }
}
