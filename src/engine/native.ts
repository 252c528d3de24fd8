/** The functions of the addon in `native/`, typed. Only `src/engine/` calls them. */
import { loadAddon } from '../addon.ts'
import { ContinuoError, type ErrorCode } from '../errors.ts'
import type { BlockNews, HeldBlocks } from '../memory.ts'
import type { ContextHead } from './context.ts'
import type { BlockPlan, TraceEntry } from './executor-types.ts'
import type { View } from './graph.ts'
import type { NgramKind } from './ngram-ops.ts'
import type { DeviceKind, ExpertOptions } from './options.ts'
import type { EngineStats, ExpertStatistics } from './types.ts'
import type { PlainCache, WorkResult } from './work.ts'

declare const engineBrand: unique symbol
declare const contextBrand: unique symbol
declare const executorBrand: unique symbol
declare const fillingBrand: unique symbol
declare const tokenBytesBrand: unique symbol
export type EngineHandle = { readonly [engineBrand]: true }
export type ContextHandle = { readonly [contextBrand]: true }
export type ExecutorHandle = { readonly [executorBrand]: true }
export type FillingHandle = { readonly [fillingBrand]: true }
export type TokenBytesHandle = { readonly [tokenBytesBrand]: true }

export interface NativeOptions {
  readonly memoryReuse: boolean
  readonly trace: boolean
  readonly watch: boolean
  /** Of a graph with a memory of subwords: what tokens stand for. */
  readonly vocabulary?: TokenBytesHandle | undefined
  /** [declaration, member, …] of constants: `moments` has the sums of these. */
  readonly moments?: Uint32Array
  /** Of a model whose experts lie in a store. */
  readonly experts?: Required<Omit<ExpertOptions, 'from' | 'deviceBytes'>> &
    Pick<ExpertOptions, 'deviceBytes'> & {
      readonly folder: string
      readonly layers: readonly number[]
      readonly digest: string
    }
}

/** An entry of the engine's op table (native/graph/ops.h). */
export interface Operation {
  /** In a graph's text: `matmul`, `cache.read`. */
  readonly name: string
  /** What each input must be, in order: `vector`, `weights`, `matrix` …; `form` where the op's own check says it. */
  readonly inputs: readonly string[]
  /** There may be more inputs than these. */
  readonly more: boolean
  /** It writes a volatile. */
  readonly out: boolean
  /** It names a `state`. */
  readonly state: boolean
  /** Members of its node beside op, in, out and state. */
  readonly attributes: readonly string[]
}

/** CUDA on this machine and in this build of the engine. */
export interface CudaStatus {
  /** The build has the CUDA backend. */
  readonly built: boolean
  /** The backend runs on the host, for tests (native/test/emulate). */
  readonly emulated: boolean
  /** Why no device can be used, and what to do about it: a sentence. Empty where one can. */
  readonly reason: string
  /** Name of the first device; empty where none is known. */
  readonly name: string
  /** Its compute capability, "9.0"; null where it is not known. */
  readonly capability: string | null
  /** Bytes of its memory. */
  readonly total: number
  /** Bytes of it that are free now. */
  readonly free: number
  /** The newest CUDA that the driver speaks, and the one this build was made with: 13000 is 13.0; 0 where not known. */
  readonly driver: number
  /** The CUDA that this build was made with, as `driver`. */
  readonly runtime: number
}

/** Sums over the gates of one level of a memory; `at`: its first element in the table. */
export interface NativeGates {
  readonly table: string
  readonly at: number
  readonly theta: number
  readonly eta: number
  readonly alpha: number
  readonly count: number
}

/** One tensor of a model's files, as its file's header describes it. */
export interface TensorEntry {
  /** As its file names it, unless `stored` says otherwise. */
  readonly name: string
  /** F32, BF16, I64 …; in a GGUF file also a block format: Q4_K. */
  readonly dtype: string
  /** Rows before columns, whatever the format. */
  readonly shape: readonly number[]
  /** Which of the model's files it is in. */
  readonly file: number
  /** Bytes from the start of the file. */
  readonly offset: number
  /** Its length in the file. */
  readonly bytes: number
  /** Set where a family knows the tensor otherwise than its file has it (src/models/gguf/). */
  readonly stored?: StoredAs
}

/** How a file has a tensor whose family names it otherwise. */
export interface StoredAs {
  /** Its name there. */
  readonly name: string
  /** A matrix [outputs, inputs] there, where the family's own packages have [inputs, outputs]. */
  readonly outputsFirst?: true
  /** The rows there that are the family's, in its order. */
  readonly view?: View
}

/** safetensors; GGUF; the archive of torch.save (`.pth`, `pytorch_model.bin`). */
export type FileFormat = 'safetensors' | 'gguf' | 'torch'

/**
 * The metadata of a GGUF file by their keys: numbers, bigints where a number would not be exact, strings, booleans, and
 * arrays of them.
 */
export type GgufMetadata = ReadonlyMap<string, unknown>

/** What `inspect` found. */
export interface NativeInspected {
  readonly tensors: TensorEntry[]
  readonly files: readonly {
    readonly format: FileFormat
    readonly metadata: readonly (readonly [key: string, value: unknown])[] | null
  }[]
}

export interface NativeItem {
  readonly context: ContextHandle
  readonly tokens: Int32Array
  readonly nats: boolean
  readonly hidden?: boolean
  readonly count: number
  readonly temperature: number
  readonly topK: number
  readonly topP: number
  readonly minP: number
  readonly seed: bigint
  readonly topLogprobs: number
  /** Missing where nothing changes. */
  readonly shaping?: {
    readonly repetition: number
    readonly presence: number
    readonly frequency: number
    readonly counted: Int32Array
    readonly counts: Uint32Array
    readonly biased: Int32Array
    readonly biases: Float32Array
  }
  readonly allowed?: BigUint64Array
  readonly endTokens: Int32Array
  readonly stop?: {
    readonly tokenBytes: TokenBytesHandle
    readonly strings: readonly Uint8Array[]
    readonly tail: Uint8Array
  }
  readonly more: boolean
  readonly perspectives?: boolean
  readonly request?:
    | { readonly archive: boolean; readonly blocks?: Int32Array; readonly plain?: PlainCache }
    | { readonly adapt: { readonly evaluations: number; readonly seed: bigint } }
}

/** What a file of packed weights says of itself, 64 hexadecimal digits each (packed.ts). */
export interface PackedName {
  readonly key: string
  readonly seal: string
  readonly head: string
  readonly fingerprint: string
}

/** A file of packed weights to be mapped, and what it must say of itself. */
export interface PackedFile extends Pick<PackedName, 'key' | 'seal'> {
  readonly path: string
}

/** Numbers in the tables of an ngram memory (native/graph/ngram.h), and how many of them a package may have learned. */
export interface NgramSizes {
  readonly text: number
  readonly mixture: number
  readonly learned: number
  /** Where those lie in the mixture, one after the other. */
  readonly parts: readonly { readonly from: number; readonly count: number }[]
}

interface Addon {
  inspect(paths: readonly string[]): NativeInspected
  plan(graph: string): BlockPlan[]
  features(): string
  operations(): readonly Operation[]
  ngram(kind: NgramKind, slots: number): NgramSizes
  cuda(): CudaStatus
  open(
    graph: string,
    paths: readonly string[],
    threads: number,
    options: NativeOptions,
    packed: PackedFile | null,
    device: DeviceKind,
    stepTarget: number,
  ): Promise<EngineHandle>
  packedName(path: string): PackedName | null
  packing(engine: EngineHandle): { readonly bytes: number; readonly mapped: boolean; readonly note: string }
  keepPacked(engine: EngineHandle, path: string, name: PackedName): Promise<number>
  packedIntact(engine: EngineHandle): Promise<boolean>
  hashFiles(first: string, paths: readonly string[], ranges: Float64Array): Promise<string>
  expertStatistics(engine: EngineHandle): ExpertStatistics | null
  warmExperts(engine: EngineHandle): void
  forgetExperts(engine: EngineHandle): void
  saveFrequencies(engine: EngineHandle): void
  expertNotes(engine: EngineHandle): readonly string[]
  measureReads(
    path: string,
    reads: number,
    depth: number,
    one: boolean,
    backend: string,
  ): Promise<{ readonly bytes: number; readonly seconds: number; readonly direct: boolean }>
  dropPages(path: string): void
  positions(engine: EngineHandle): number | null
  unavailableReason(engine: EngineHandle): string
  createContext(engine: EngineHandle): ContextHandle
  forkContext(context: ContextHandle): ContextHandle
  closeContext(context: ContextHandle): void
  head(context: ContextHandle): ContextHead
  reset(context: ContextHandle): void
  serialize(context: ContextHandle): Uint8Array
  /** Of each persistent in the order of the layout: its value where it is a counter, else 0. */
  counters(context: ContextHandle): readonly number[]
  /**
   * Of each persistent that grows the positions, of each ring the places from … to − 1 (−1: all); the others only with
   * `rest`.
   */
  partBytes(context: ContextHandle, from: readonly number[], to: readonly number[], rest: boolean): number
  /** Copies such a part into `out`, which has its length. */
  capture(
    context: ContextHandle,
    from: readonly number[],
    to: readonly number[],
    rest: boolean,
    out: Uint8Array,
  ): Promise<void>
  restore(context: ContextHandle, state: Uint8Array, pulse: bigint, origin: bigint, chain: string): void
  /** State (null: the first one) and head of the context, or of a new one. */
  load(
    engine: EngineHandle,
    context: ContextHandle,
    state: Uint8Array | null,
    pulse: bigint,
    origin: bigint,
    chain: string,
  ): Promise<void>
  load(
    engine: EngineHandle,
    context: null,
    state: Uint8Array | null,
    pulse: bigint,
    origin: bigint,
    chain: string,
  ): Promise<ContextHandle>
  /**
   * A context that is made of parts: the state without its blocks first. `tables`: of each growth, the indices of its
   * tables in the layout; `blocks`: how many blocks it has, of which the context has the first `kept`, or `held` where
   * they may sleep, and the others will come.
   */
  fill(
    engine: EngineHandle,
    hot: Uint8Array,
    tables: readonly (readonly number[])[],
    blocks: readonly number[],
    kept: readonly number[],
    context: ContextHandle | null,
    held: HeldBlocks | null,
    pulse: bigint,
    origin: bigint,
    chain: string,
  ): Promise<FillingHandle>
  /** The sha256 of each array. */
  placeBlocks(
    filling: FillingHandle,
    growths: readonly number[],
    blocks: readonly number[],
    arrays: readonly Uint8Array[],
  ): Promise<readonly string[]>
  placeFiles(
    filling: FillingHandle,
    growth: number,
    blocks: readonly number[],
    paths: readonly string[],
    hashes: readonly string[],
  ): Promise<readonly boolean[]>
  /** These blocks stay asleep. */
  restBlocks(filling: FillingHandle, growths: readonly number[], blocks: readonly number[]): void
  /** The blocks of these positions are awake then, and stay so until they were copied. */
  bring(context: ContextHandle, from: readonly number[], to: readonly number[]): Promise<void>
  holdBlocks(context: ContextHandle): HeldBlocks
  /** Once. */
  dropBlocks(held: HeldBlocks): void
  /** Of the full blocks that may sleep. */
  blockNumbers(context: ContextHandle): Float64Array
  blockNews(engine: EngineHandle): Promise<BlockNews>
  stopBlockNews(engine: EngineHandle): void
  sleepBlock(engine: EngineHandle, number: number): boolean
  /** Whether the bytes have the length of the block. */
  wakeBlock(engine: EngineHandle, number: number, bytes: Uint8Array): boolean
  refuseBlock(engine: EngineHandle, number: number, reason: string): void
  copyBlock(engine: EngineHandle, number: number): Uint8Array<ArrayBuffer> | null
  /** Ends it: its context becomes that of the handle, or gets a new one. */
  filled(filling: FillingHandle, context: ContextHandle): void
  filled(filling: FillingHandle, context: null): ContextHandle
  /** Lets go of one that may be over. */
  dropFilling(filling: FillingHandle): void
  restart(context: ContextHandle): Promise<void>
  tokenBytes(bytes: Uint8Array, ends: Uint32Array): TokenBytesHandle
  submit(engine: EngineHandle, item: NativeItem): Promise<WorkResult>
  /** Ends the adaptation that has the context: its call is answered soon, without what it learnt. */
  stopAdapting(context: ContextHandle): void
  speculate(engine: EngineHandle, most: number, adapt: boolean): void
  /** Loads a model that guesses tokens, whose contexts take so many bytes at most. */
  draft(engine: EngineHandle, graph: string, paths: readonly string[], bytes: number): Promise<void>
  stats(engine: EngineHandle): EngineStats
  logits(engine: EngineHandle, context: ContextHandle): Promise<Float32Array>
  gates(context: ContextHandle): readonly NativeGates[]
  stateBytes(context: ContextHandle): number
  createExecutor(context: ContextHandle, options: NativeOptions): ExecutorHandle
  step(executor: ExecutorHandle, block: number, rows: number, inputs: readonly Uint8Array[]): Promise<void>
  fetch(executor: ExecutorHandle, block: number, rows: number, declaration: number): Uint8Array<ArrayBuffer> | null
  fetchConstant(executor: ExecutorHandle, declaration: number, member: number): Float32Array<ArrayBuffer>
  /**
   * Σ x xᵀ [inputs, inputs] of the rows that a member of a constant was multiplied with; null where nothing is. While
   * no call is in flight.
   */
  moments(engine: EngineHandle, declaration: number, member: number): Float32Array<ArrayBuffer> | null
  trace(executor: ExecutorHandle): TraceEntry[]
  closeEngine(engine: EngineHandle): void
}

const nativeCodes: ReadonlySet<string> = new Set<ErrorCode>(['INVALID', 'MISUSE', 'REFUSED', 'UNAVAILABLE', 'INTERNAL'])

/** The error of a native call as ours. */
const fromNative = (error: unknown): ContinuoError => {
  if (error instanceof ContinuoError) return error
  const { code, message } = error as { code?: unknown; message?: unknown }
  const known = typeof code === 'string' && nativeCodes.has(code)
  return new ContinuoError(
    known ? (code as ErrorCode) : 'INTERNAL',
    String(message ?? error),
    known ? {} : { cause: error },
  )
}

/** Calls into the addon, translating what it throws. */
export const callNative = <T>(call: (addon: Addon) => T): T => {
  try {
    return call(loadAddon() as Addon)
  } catch (error) {
    throw fromNative(error)
  }
}

/** As `callNative`, for calls that answer with a promise. */
export const awaitNative = async <T>(call: (addon: Addon) => Promise<T>): Promise<T> => {
  try {
    return await call(loadAddon() as Addon)
  } catch (error) {
    throw fromNative(error)
  }
}
