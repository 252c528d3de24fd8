/**
 * Writes a quantised copy of a model package (docs/formats.md, Quantised packages): the matrices of the model's graph
 * as whole numbers with a scale for every 32 or 64 of them, everything else bit for bit. The rules of rounding stand in
 * quantizers.ts. Tensors pass through in pieces: memory does not grow with the model.
 */
import { readdir, readFile, stat } from 'node:fs/promises'
import { basename, join, normalize, resolve } from 'node:path'
import { type Graph, type Node, type OpNode, tensorsOf } from '../../engine/graph.ts'
import { ContinuoError } from '../../errors.ts'
import { copySynced, writeSynced } from '../../files.ts'
import { pythonJson } from '../../json.ts'
import { MEMORY_FILE } from '../families/memory-json.ts'
import { type TensorFile, writeFolder, writeTensors } from '../files/package-writer.ts'
import { type Calibration, calibrate } from './calibrate.ts'
import { isFloat } from './floats.ts'
import { codesSpec, copyTensor, type Matrix, quantizeMatrix, scalesSpec } from './matrix.ts'
import { TARGETS, type Target, type TargetName } from './quantizers.ts'
import { type Rounding, rounderOf } from './rounding.ts'
import { openSource, type Source } from './source.ts'

/** Weights that share a scale. */
export const GROUPS = [32, 64] as const
export type GroupSize = (typeof GROUPS)[number]

/** Which package is quantised, how, and where it goes. */
export interface QuantizeRequest {
  readonly dir: string
  readonly out: string
  readonly to: TargetName
  readonly group: GroupSize
  /**
   * Default: of i4 `compensated` where there is a text to calibrate with, else `search`; of the others `nearest`, the
   * only one they have.
   */
  readonly rounding?: Rounding
  /**
   * A file of text, or of token ids as a JSON array, whose beginning the model reads for `importance` and
   * `compensated`.
   */
  readonly calibrate?: string
  /** Of the engine that reads it; the bytes of the package do not depend on them. */
  readonly threads?: number
  /** Called before every piece. */
  readonly onProgress?: (at: { readonly tensor: string; readonly done: number; readonly bytes: number }) => void
  /** Called before each piece of the text that is read to calibrate. */
  readonly onTokens?: (done: number, all: number) => void
  /** Stops between two pieces, leaves nothing, and throws the signal's reason. */
  readonly signal?: AbortSignal
}

/** What a quantisation did. */
export interface Quantized {
  /** How the matrices are stored now. */
  readonly format: Target['format']
  /** Weights that share a scale. */
  readonly groupSize: GroupSize
  /** How weights became codes. */
  readonly rounding: Rounding
  /** Tokens that were read to calibrate; 0 without. */
  readonly calibrationTokens: number
  /** Matrices that were quantised. */
  readonly tensors: number
  /** Their weights. */
  readonly weights: number
  /** Tensors that were copied. */
  readonly copied: number
  /** Bytes of the files of weights. */
  readonly bytesBefore: number
  /** Of the new weights. */
  readonly bytesAfter: number
  /** Codes and scales, over the quantised weights. */
  readonly bitsPerWeight: number
  /** √(Σ (w − ŵ)² / Σ w²) over all quantised weights; 0 where all are 0. */
  readonly relativeRmsError: number
  /** Files of the package that went along, and those that did not. */
  readonly files: readonly string[]
  /** Tensors that stay as they were. */
  readonly leftOut: readonly string[]
}

const opsOf = (nodes: readonly Node[]): readonly OpNode[] =>
  nodes.flatMap((node) => {
    const { nodes: body = [], otherwise = [] } = node as { nodes?: readonly Node[]; otherwise?: readonly Node[] }
    return 'op' in node ? [node as OpNode] : [...opsOf(body), ...opsOf(otherwise)]
  })

/** Constants whose products say which experts a row goes to. They are small, and a rounding may turn a choice. */
const routers = (graph: Graph): ReadonlySet<string> => {
  const out = new Set<string>()
  for (const { nodes } of graph.blocks) {
    const seen = new Set<string>()
    for (const { op, in: inputs = [], out: result } of opsOf(nodes).toReversed()) {
      if (op !== 'topk' && !seen.has(result ?? '')) continue
      for (const name of op === 'matmul' ? inputs.slice(1) : inputs) {
        if (op === 'matmul') out.add(name.replace(/\(.*/, ''))
        else seen.add(name)
      }
    }
  }
  return out
}

/**
 * The tensors of a graph whose rows are those of matrices [N outputs, K inputs], with the shape of such a matrix: what
 * the graph multiplies with, and does nothing else with. A tensor may hold several matrices: the experts of a layer, or
 * q, k and v. None of them are a tied embedding, which is looked up in too, a tensor that chooses experts, and what the
 * file holds transposed; with `turned` only that is.
 */
export const matrixTensors = (graph: Graph, turned = false): ReadonlyMap<string, readonly [N: number, K: number]> => {
  const matrices = new Map<string, readonly [number, number]>()
  const others = new Set<string>()
  const choosing = routers(graph)
  for (const declaration of graph.declarations) {
    if (declaration.kind !== 'constant') continue
    const { name, layout, shape, columns, transposed = false } = declaration
    const [K, N] = shape.toReversed()
    const multiplied = layout === 'packed' || layout === 'stack'
    const byRows = multiplied && columns === undefined && transposed === turned && !choosing.has(name)
    for (const tensor of tensorsOf(graph, declaration)) {
      if (byRows && N !== undefined && K !== undefined) matrices.set(tensor, [N, K])
      else others.add(tensor)
    }
  }
  for (const tensor of others) matrices.delete(tensor)
  return matrices
}

/** Where the quantised copy of `dir` goes by default: beside it. */
export const defaultOut = (dir: string, to: TargetName): string =>
  normalize(join(dir, '..', `${basename(resolve(dir)).replace(/\.pth$/, '')}-${to}`))

const invalid = (message: string): ContinuoError => new ContinuoError('INVALID', message)

const refuseOccupied = async (out: string): Promise<void> => {
  const found = await readdir(out).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw invalid(`${out} cannot be the folder to write: ${error.message}. Name another with --out.`)
  })
  if (found.length === 0) return
  throw invalid(
    `${out} holds ${found.length} files already, expected a new or empty folder. Name another with --out, or remove it.`,
  )
}

const matricesOf = ({ graph, family, tensors }: Source): readonly Matrix[] => {
  const straight = matrixTensors(graph)
  const turned = family.quantizesTransposed ? matrixTensors(graph, true) : new Map<string, readonly [number, number]>()
  return tensors.flatMap((tensor) => {
    const shape = straight.get(tensor.name) ?? turned.get(tensor.name)
    if (shape === undefined) return []
    const { name, dtype } = tensor
    if (!isFloat(dtype))
      throw invalid(`Tensor "${name}" is ${dtype}, expected F32, F16, BF16 or F64: only those can be quantised.`)
    const [, K] = shape
    const N = tensor.shape.reduce((product, extent) => product * extent, 1) / K
    const [experts = 1, outputs = N] = tensor.shape.length === 3 ? tensor.shape : []
    const rows = experts === 1 ? [N] : [experts, outputs]
    return [{ tensor, dtype, N, K, rows, turned: turned.has(tensor.name) }]
  })
}

/** Throws INVALID for a rounding that the format does not have, or that lacks its text. */
const roundingOf = ({ to, rounding: asked, calibrate: file }: QuantizeRequest): Rounding => {
  const rounding = asked ?? (to !== 'i4' ? 'nearest' : file === undefined ? 'search' : 'compensated')
  const measured = rounding === 'importance' || rounding === 'compensated'
  if (to !== 'i4' && rounding !== 'nearest')
    throw invalid(`Rounding "${rounding}" was asked for ${to}, which has "nearest" alone. Leave it out.`)
  if (measured && file === undefined)
    throw invalid(
      `Rounding "${rounding}" measures the inputs of the matrices, but there is no text to read. Name a file of text to calibrate with (--calibrate FILE), or take "search".`,
    )
  if (!measured && file !== undefined)
    throw invalid(
      `A text to calibrate with was given, but rounding "${rounding}"${to === 'i4' ? '' : `, the only one of ${to},`} reads none. Leave it out${to === 'i4' ? ', or take "compensated"' : ''}.`,
    )
  return rounding
}

/** Bytes of the sums of inputs that are in memory at once. Where all need more, the text is read several times. */
const MOMENTS = 2 ** 30

/** The matrices in runs whose sums fit together. */
const runsOf = (matrices: readonly Matrix[]): readonly (readonly Matrix[])[] => {
  const runs: Matrix[][] = []
  let bytes = Infinity
  for (const matrix of matrices) {
    const own = 4 * matrix.K * matrix.K
    if (bytes + own > MOMENTS) {
      runs.push([])
      bytes = 0
    }
    runs.at(-1)!.push(matrix)
    bytes += own
  }
  return runs
}

/** Weights in other forms, and lists of them: the copy would carry the whole model twice. */
const WEIGHTS = /\.(safetensors|bin|pth?|gguf|onnx|h5|msgpack|packed)(\.index\.json)?$/
/**
 * What a package has beside those: a perspective model's experts, and the modules of an external memory. Without them
 * the copy is no model.
 */
const BESIDE: ReadonlySet<string> = new Set(['experts.safetensors', MEMORY_FILE])
const MOST_SMALL = 64 * 2 ** 20 // Bytes; the largest tokenizers have some 30 MB.

const copyFiles = async (dir: string, folder: string): Promise<Pick<Quantized, 'files' | 'leftOut'>> => {
  const files: string[] = []
  const leftOut: string[] = []
  for (const name of (await readdir(dir)).toSorted()) {
    if (name === 'config.json' || name === 'model.safetensors') continue
    const path = join(dir, name)
    const found = await stat(path)
    if (found.isFile() && BESIDE.has(name)) {
      await copySynced(path, join(folder, name))
      files.push(name)
    } else if (found.isFile() && found.size <= MOST_SMALL && !WEIGHTS.test(name)) {
      await writeSynced(join(folder, name), await readFile(path))
      files.push(name)
    } else {
      leftOut.push(name)
    }
  }
  return { files, leftOut }
}

/**
 * Writes the package. Throws INVALID, and leaves nothing at `out`, for a folder that is no package of a known family,
 * has no matrices or is quantised already, an `out` that holds something, weights that are not finite or too large, and
 * a source that changes meanwhile; UNAVAILABLE or DENIED where the file system refuses.
 */
export const quantizePackage = async (request: QuantizeRequest): Promise<Quantized> => {
  const { dir, out, to, group, onProgress, signal } = request
  const target: Target = TARGETS[to]
  const rounding = roundingOf(request)
  const source = await openSource(dir)
  try {
    const matrices = matricesOf(source)
    if (matrices.length === 0)
      throw new ContinuoError('INVALID', `${dir} has no matrices, and nothing else is quantised. Use it as it is.`)
    await refuseOccupied(out)
    const own = new Set(matrices.map(({ tensor }) => tensor))
    const rest = source.tensors.filter((tensor) => !own.has(tensor))
    const coded = matrices.flatMap((matrix) => [codesSpec(matrix, target), scalesSpec(matrix, group)])
    const metadata = { ...source.metadata, 'continuo.quantized': `${target.format} group ${group}` }
    const config = {
      ...source.config,
      quantization_config: { quant_method: 'continuo', format: target.format, group_size: group },
    }
    const total = source.tensors.reduce((sum, { bytes }) => sum + bytes, 0)
    return await writeFolder(out, async (folder) => {
      const sums = { error: 0, energy: 0 }
      let calibrationTokens = 0
      const learn = async (run: readonly Matrix[]): Promise<Calibration | null> => {
        if (request.calibrate === undefined) return null
        const names = run.map(({ tensor }) => tensor.name)
        const found = await calibrate(dir, request.calibrate, names, {
          signal,
          onTokens: request.onTokens,
          threads: request.threads,
        })
        calibrationTokens = found.tokens
        return found
      }
      const fill = async (file: TensorFile): Promise<number> => {
        let before = 0 // Bytes of the source that are done with.
        const next = (tensor: string, done: number): void => {
          signal?.throwIfAborted()
          onProgress?.({ tensor, done: before + done, bytes: total })
        }
        const pass = { source, file, next }
        for (const tensor of rest) {
          await copyTensor(pass, tensor)
          before += tensor.bytes
        }
        for (const run of runsOf(matrices)) {
          const found = await learn(run)
          try {
            for (const matrix of run) {
              signal?.throwIfAborted()
              const moments = found?.moments(matrix.tensor.name) ?? null
              const round = await rounderOf(target, group, matrix.K, rounding, moments)
              await quantizeMatrix(pass, matrix, target, group, round, sums)
              before += matrix.tensor.bytes
            }
          } finally {
            found?.close()
          }
        }
        return file.bytes
      }
      const bytesAfter = await writeTensors(join(folder, 'model.safetensors'), [...rest, ...coded], metadata, fill)
      await source.checkUnchanged()
      const copied = await copyFiles(source.dir, folder)
      await writeSynced(join(folder, 'config.json'), `${pythonJson(config)}\n`)
      const weights = matrices.reduce((sum, { N, K }) => sum + N * K, 0)
      signal?.throwIfAborted()
      return {
        format: target.format,
        groupSize: group,
        rounding,
        calibrationTokens,
        tensors: matrices.length,
        weights,
        copied: rest.length,
        bytesBefore: source.bytes,
        bytesAfter,
        bitsPerWeight: (8 * coded.reduce((sum, { bytes }) => sum + bytes, 0)) / weights,
        relativeRmsError: sums.energy === 0 ? 0 : Math.sqrt(sums.error / sums.energy),
        ...copied,
      }
    })
  } finally {
    await source.close()
  }
}
