/**
 * The addon in node-llama-cpp's prebuilt package: the part of its binding that this bench calls. The package's own
 * JavaScript (queues, sequences, token objects) is not used, so that a step costs one promise and the call of
 * `llama_decode`.
 */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { arch, platform } from 'node:os'
import { dirname, join } from 'node:path'

interface Sampler {
  applyConfig(config: Record<string, never>): void
  dispose(): void
}

export interface Model {
  init(): Promise<boolean>
  tokenize(text: string, specialTokens: boolean): Uint32Array
  dispose(): Promise<void>
}

export interface Context {
  init(): Promise<boolean>
  dispose(): Promise<void>
  /** Frees the last batch and begins one for so many tokens. */
  initBatch(tokens: number): void
  /** `outputs`: the indices in `tokens` of which logits are needed. Returns their indices in the batch. */
  addToBatch(sequence: number, position: number, tokens: Uint32Array, outputs: Uint32Array): Uint32Array
  decodeBatch(): Promise<void>
  /** With `true` as the fifth argument the fourth result has all logits as pairs of token and logit. */
  sampleToken(
    output: number,
    sampler: Sampler,
    probabilities: false,
    confidence: false,
    logits: true,
  ): Promise<readonly [number, undefined, undefined, readonly number[]]>
  disposeSequence(sequence: number): void
  /** Frees the cells of positions from ≤ p < to. */
  removeTokenCellsFromSequence(sequence: number, from: number, to: number): boolean
  /** Adds `by` to positions from ≤ p < to; their keys are turned with the next batch. */
  shiftSequenceTokenCells(sequence: number, from: number, to: number, by: number): void
  saveSequenceStateToFile(path: string, sequence: number, tokens: Uint32Array): Promise<number>
  /** Resolves with the tokens that were saved, at most `most`. */
  loadSequenceStateFromFile(path: string, sequence: number, most: number): Promise<Uint32Array>
}

export interface Binding {
  AddonModel: new (
    path: string,
    options: { readonly gpuLayers: number; readonly useMmap: boolean } | { readonly vocabOnly: true },
  ) => Model
  AddonContext: new (
    model: Model,
    options: {
      readonly contextSize: number
      readonly batchSize: number
      readonly sequences: number
      readonly flashAttention: boolean
      readonly threads: number
    },
  ) => Context
  AddonSampler: new (model: Model) => Sampler
  loadBackends(folder: string): void
  init(): Promise<void>
  systemInfo(): string
  setLogger(logger: (level: number, message: string) => void): void
  setLoggerLogLevel(level: number): void
}

export interface Llama {
  readonly binding: Binding
  /** The release of llama.cpp from which the binary was built, and its package. */
  readonly release: string
  readonly packageVersion: string
  /** The variant of the CPU backend that llama.cpp chose for this machine, and the instruction sets of that variant. */
  readonly variant: string
  readonly features: string
}

/** Levels of the binding's logger. */
export const SILENT = 0
export const ERRORS = 2
const INFORMATION = 4

export const loadLlama = async (): Promise<Llama> => {
  const name = `@node-llama-cpp/${platform()}-${arch()}`
  let main: string
  try {
    main = createRequire(import.meta.url).resolve(name)
  } catch (cause) {
    throw new Error(`${name} is not installed. Run \`npm ci\` in bench/peers, on Linux x64 with glibc.`, { cause })
  }
  const root = join(dirname(main), '..')
  const folder = join(root, 'bins', `${platform()}-${arch()}`)
  const json = (path: string): unknown => JSON.parse(readFileSync(path, 'utf8'))
  const { version } = json(join(root, 'package.json')) as { version: string }
  const { buildOptions } = json(join(folder, '_nlcBuildMetadata.json')) as {
    buildOptions: { llamaCpp: { release: string } }
  }
  const binding = createRequire(import.meta.url)(join(folder, 'llama-addon.node')) as Binding
  const said: string[] = []
  binding.setLogger((_level, message) => said.push(message))
  binding.setLoggerLogLevel(INFORMATION)
  binding.loadBackends(folder)
  await binding.init()
  // The logger is called from the event loop: after one turn all messages so far have arrived.
  await new Promise((resolve) => setImmediate(resolve))
  binding.setLogger((_level, message) => process.stderr.write(`llama.cpp: ${message}`))
  binding.setLoggerLogLevel(ERRORS)
  return {
    binding,
    release: buildOptions.llamaCpp.release,
    packageVersion: `${name} ${version}`,
    variant: /libggml-cpu-(\w+)/.exec(said.join(''))?.[1] ?? 'unknown',
    features: binding.systemInfo().trim(),
  }
}
