/**
 * The TypeScript face of `native/`: validates, explains, hands over.
 *
 *   context:  open ──submit/logits──▶ busy ──settled──▶ open ──close──▶ closed
 *
 * Whatever is refused is refused before anything is written.
 */
import { availableParallelism } from 'node:os'
import { dirname } from 'node:path'
import { uninitialised } from '../bulk.ts'
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import { sha256 } from '../hash.ts'
import {
  blockBytes,
  type MemoryDeclaration,
  PLAIN_MEMORY,
  type SleepyBlocks,
  type StateLayout,
  type StateSource,
} from '../memory.ts'
import { executorOf } from './executor.ts'
import { type ExpertStore, expertPort, expertsOf } from './experts.ts'
import { fillFrom, isSource } from './filling.ts'
import { fingerprintText, layoutFingerprint, modelFingerprint, type Named } from './fingerprint.ts'
import { type Graph, parametersOf } from './graph.ts'
import { frozenRuns, type Ranges, takeParts } from './growth.ts'
import { nativeItem } from './items.ts'
import { stateLayout } from './layout.ts'
import { observedIn } from './moments.ts'
import {
  awaitNative,
  type ContextHandle,
  type CudaStatus,
  callNative,
  type FileFormat,
  type GgufMetadata,
  type NativeItem,
  type TensorEntry,
} from './native.ts'
import {
  findPacked,
  makeRoom,
  type PackedFolder,
  packedBeside,
  packedIn,
  packedKey,
  sealOf,
  touchPacked,
} from './packed.ts'
import { checkGraph } from './plan.ts'
import { checkSpeculation, usualSpeculation } from './speculation.ts'
import {
  type Context,
  ContextBroken,
  type ContextHead,
  type DecoderShape,
  type DeviceKind,
  DRAFT_BYTES,
  type EngineContext,
  type EngineStats,
  type Model,
  type OpenModelOptions,
  type Speculation,
  STEP_TARGET,
  type WorkResult,
} from './types.ts'

const maxThreads = 256
/**
 * What a context takes before its first token, in bytes. Windows and segments stand in no tensor, so nothing else bounds them. A state is
 * hashed and copied in one piece by snapshots and spilling.
 */
const maxStateBytes = 2 ** 30
/** An item that was taken is refused only where its context fails by what it computes. */
const brokenOr = (error: unknown): unknown =>
  codeOf(error) === 'REFUSED' ? new ContextBroken(messageOf(error)) : error

/** Fewer bytes are packed in milliseconds, so they are not kept unasked. */
const LEAST_KEPT = 2 ** 23
/** As many pulses again never pass: the engine's clock does not wrap. */
const maxPulse = 2n ** 63n

/**
 * Loads a graph of one's own and the weights it names from one file (`inspectFiles` says of which formats). Blocks "step" and "predict" that return what a
 * language model's do (native/graph/graph.h) make it one; any other graph is driven through `createExecutor`.
 */
export const openGraph = async (graph: Graph, path: string, options: OpenModelOptions = {}): Promise<Model> => {
  if (options.draftModel !== undefined)
    invalid("draftModel was given, but a graph of one's own has no tokenizer to compare with. Leave it out.")
  checkGraph(graph)
  const predict = graph.blocks.find(({ name }) => name === 'predict')?.nodes.at(-1)
  const logits = predict && 'return' in predict ? (predict.return as Record<string, string>).logits : undefined
  const shape = graph.declarations.find(({ name, kind }) => kind === 'volatile' && name === logits)
  const vocabSize = shape && 'shape' in shape ? shape.shape.reduce((product, extent) => product * extent, 1) : 0
  const tensors = inspectTensors(path)
  return loadModel(
    { dir: dirname(path), modelType: 'graph', vocabSize, config: graph, graph, paths: [path], tensors },
    options,
  )
}

const misuse = (message: string): never => {
  throw new ContinuoError('MISUSE', message)
}
const invalid = (message: string): never => {
  throw new ContinuoError('INVALID', message)
}

/** What the headers of a model's files say. */
export interface Inspected {
  /** Of all files. */
  readonly tensors: readonly TensorEntry[]
  /** File by file. */
  readonly formats: readonly FileFormat[]
  /** Of the first GGUF file; null without one. */
  readonly metadata: GgufMetadata | null
}

/**
 * Reads the headers of a model's files: safetensors, GGUF, archives of torch.save, found by their content. Throws INVALID for a
 * damaged or hostile file, and for a tensor that stands in two of them.
 */
export const inspectFiles = (paths: readonly string[]): Inspected => {
  const { tensors, files } = callNative((addon) => addon.inspect(paths))
  const pairs = files.find(({ metadata }) => metadata !== null)?.metadata ?? null
  return { tensors, formats: files.map(({ format }) => format), metadata: pairs && new Map(pairs) }
}

/** The tensors of one file. Throws as `inspectFiles`. */
export const inspectTensors = (path: string): readonly TensorEntry[] => inspectFiles([path]).tensors

/** The instruction set whose kernels this CPU gets: avx512vnni, avx512, avx2 or generic. */
export const kernelFeatures = (): string => callNative((addon) => addon.features())

/** The state of CUDA here, and the reason where it cannot be used. */
export const cudaStatus = (): CudaStatus => callNative((addon) => addon.cuda())

/** An emulated device is there for tests, and far slower than the CPU it runs on: it is taken only where `device` names it. */
const deviceOf = ({ device = 'auto' }: OpenModelOptions): DeviceKind => {
  if (device === 'cpu') return device
  if (device !== 'auto' && device !== 'cuda') {
    invalid(`device is ${JSON.stringify(device)}, expected "auto", "cpu" or "cuda".`)
  }
  const { reason, emulated } = cudaStatus()
  if (device === 'auto') return reason === '' && !emulated ? 'cuda' : 'cpu'
  if (reason === '') return device
  throw new ContinuoError(
    'UNAVAILABLE',
    `CUDA cannot be used: ${reason} The device "auto" takes the CPU by itself where that is so; \`continuo doctor\` says what there is.`,
  )
}

const threadsOf = ({ threads }: OpenModelOptions): number => {
  if (threads === undefined) return Math.min(16, availableParallelism())
  if (!Number.isInteger(threads) || threads < 1 || threads > maxThreads) {
    invalid(`threads is ${threads}, expected a whole number from 1 to ${maxThreads}.`)
  }
  return threads
}

const stepTargetOf = ({ stepTarget = STEP_TARGET.usual }: OpenModelOptions): number => {
  const { min, max } = STEP_TARGET
  if (stepTarget >= min && stepTarget <= max) return stepTarget
  return invalid(`stepTarget is ${stepTarget}, expected a number from ${min} to ${max}.`)
}

const draftBytesOf = ({ draftBytes = DRAFT_BYTES.usual }: OpenModelOptions): number => {
  const { min, max } = DRAFT_BYTES
  if (Number.isInteger(draftBytes) && draftBytes >= min && draftBytes <= max) return draftBytes
  return invalid(`draftBytes is ${draftBytes}, expected a whole number from ${min} to ${max}.`)
}

export interface LoadRequest {
  readonly dir: string
  readonly modelType: string
  readonly vocabSize: number
  /** Default: no memory levels. */
  readonly levels?: readonly number[]
  /** Default: neither a window nor tables with levels. */
  readonly memory?: MemoryDeclaration | undefined
  /** The parsed content of config.json, or the metadata of a GGUF file; only fingerprinted here. */
  readonly config: unknown
  readonly graph: Graph
  /** The files of the weights, at least one, and what `inspectFiles` said of them. */
  readonly paths: readonly string[]
  readonly tensors: readonly TensorEntry[]
  readonly decoder?: DecoderShape | undefined
  /** Set where the graph computes something else than config.json says by itself. */
  readonly overflow?: 'window' | undefined
  /** Set where keys and values are kept narrower than f32. */
  readonly cacheDtype?: 'f16' | 'bf16' | undefined
  /** Set where the context lies outside: how (Graph.memory). */
  readonly outerMemory?: Graph['memory'] | undefined
  /** The file of its learned modules, a file of tensors. */
  readonly memoryFile?: string | undefined
  /** Where its experts lie: the folder of the store, its layers, its digest. */
  readonly experts?: ExpertStore | undefined
  /** Of a mixture whose experts lie in a store: what identifies them, in place of their tensors, which are left out. */
  readonly expertIdentity?: { readonly digest: string; readonly coding: number } | undefined
  readonly leftOut?: ReadonlySet<string> | undefined
  /** Where packed weights are kept unasked; undefined: nowhere. */
  readonly packedFolder?: PackedFolder | undefined
}

/** How the model reads text: a part of its fingerprint. */
export interface TextIdentity {
  /** Identity of the tokenizer, where the package has a file for it. */
  readonly tokenizer?: string | undefined
  /** Ids that end a generation, in ascending order, where they are others than the tokenizer's one. */
  readonly endTokens?: readonly number[] | undefined
}

const ownTensors = ({ leftOut }: LoadRequest, tensors: readonly TensorEntry[]): readonly TensorEntry[] =>
  leftOut === undefined ? tensors : tensors.filter(({ name }) => !leftOut.has(name))

const namedOf = async (request: LoadRequest, { tokenizer, endTokens }: TextIdentity): Promise<Named> => {
  const { overflow, cacheDtype, outerMemory, memoryFile, expertIdentity } = request
  const modules = memoryFile === undefined ? undefined : [memoryFile]
  return {
    ...{ overflow, cacheDtype, outerMemory, tokenizer, endTokens, expertIdentity },
    ...(modules !== undefined && {
      memoryTensors: await modelFingerprint(null, inspectFiles(modules).tensors, modules),
    }),
  }
}

/** Of the model that the request describes, with what its files hold. */
export const fingerprintOf = async (
  request: LoadRequest,
  text: TextIdentity,
  tensors = request.tensors,
): Promise<string> =>
  modelFingerprint(request.config, ownTensors(request, tensors), request.paths, await namedOf(request, text))

/** Where the packed weights of the model lie, beside it and in the folder. */
export const packedFiles = (
  request: LoadRequest,
  folder: PackedFolder,
): { readonly beside: string; readonly cached: string } => {
  const { graph, paths, tensors } = request
  const { seal } = sealOf(paths, ownTensors(request, tensors))
  return { beside: packedBeside(paths), cached: packedIn(folder, packedKey(graph), seal) }
}

const boundsOf = ({ block_size, retrieval }: NonNullable<Graph['memory']>): NonNullable<Model['outerMemory']> => ({
  blockSize: block_size as number,
  mostBlocks: (retrieval as { blocks: number }).blocks,
})

const perspectivesOf = ({ perspective }: Graph): Model['perspectives'] => {
  const { mpd, ffn_types, experts } = (perspective ?? {}) as {
    readonly mpd?: object | null
    readonly ffn_types?: readonly string[]
    readonly experts?: { readonly top_k: number }
  }
  if (mpd == null || ffn_types === undefined || experts === undefined) return null
  return { layers: ffn_types.filter((kind) => kind === 'experts').length, ranks: experts.top_k }
}

const plain = { memoryReuse: true, trace: false, watch: false }

interface ContextState {
  readonly handle: ContextHandle
  head: ContextHead
  /** Memory of its persistents. */
  bytes: number
  /** The call that has the context, for messages. */
  busy: string | undefined
  closed: boolean
}

/** Throws INVALID for states that are too large to be handled. */
const boundedLayout = (graph: Graph): StateLayout => {
  const layout = stateLayout(graph)
  const bytes = layout.first.reduce((sum, tensor) => sum + tensor.bytes, 0)
  if (bytes <= maxStateBytes) return layout
  const most = layout.first.reduce((a, b) => (b.bytes > a.bytes ? b : a))
  return invalid(
    `A context of this model would take ${bytes} bytes, expected at most ${maxStateBytes}; the largest part is "${most.name}" with shape [${most.shape.join(', ')}]. A window or a segment in config.json is too long, or an axis of the graph.`,
  )
}

/**
 * Loads the weights a graph names, and those of a model that guesses its tokens. The engine does so on its own threads; meanwhile `read` says how
 * the model reads text. Throws INVALID for a graph or tensor that cannot be used, and what `read` throws.
 */
export const loadModel = async (
  request: LoadRequest,
  options: OpenModelOptions = {},
  read: () => Promise<TextIdentity> = () => Promise.resolve({}),
  draft: LoadRequest | null = null,
): Promise<Model> => {
  const { dir, modelType, vocabSize, levels = [], memory = PLAIN_MEMORY, graph, paths, packedFolder: folder } = request
  const threads = threadsOf(options)
  const device = options.moments === undefined ? deviceOf(options) : 'cpu'
  const layout = boundedLayout(graph)
  const { memoryFile } = request
  const { keepPacked = true, watch = false, warn = (message) => process.emitWarning(message) } = options
  const { speculate: speculation = usualSpeculation(draft !== null) } = options
  checkSpeculation(speculation)
  const draftBytes = draftBytesOf(options)
  if (draft !== null && device !== 'cpu')
    invalid(
      `A draft model was given, and the device is ${device}: guesses are judged on the CPU only. Take device "cpu", or leave the draft model out.`,
    )
  const observed = observedIn(graph, options.moments ?? [])
  const tensors = ownTensors(request, request.tensors)
  const key = packedKey(graph)
  const sealed = keepPacked ? sealOf(paths, tensors) : null
  const kept = folder === undefined || sealed === null ? null : packedIn(folder, key, sealed.seal)
  const places = [packedBeside(paths), ...(kept === null ? [] : [kept])]
  let packed = sealed && findPacked(places, key, sealed.seal)

  let text: TextIdentity = {}
  const readText = async (): Promise<Named> => {
    text = await read()
    return namedOf(request, text)
  }
  const fingerprintBy = (named: Named): Promise<string> => modelFingerprint(request.config, tensors, paths, named)
  let named: Named | null = null
  let fingerprint: string | null = null
  if (packed !== null && !packed.sealed) {
    named = await readText()
    fingerprint = await fingerprintBy(named)
    if (packed.name.fingerprint !== fingerprint) packed = null
  }
  const opening = awaitNative((addon) =>
    addon.open(
      JSON.stringify(graph),
      memoryFile === undefined ? paths : [...paths, memoryFile],
      threads,
      {
        ...plain,
        watch,
        moments: observed.members,
        ...(request.experts && { experts: expertsOf(request.experts, options.experts) }),
      },
      packed && { path: packed.path, key, seal: packed.name.seal },
      device,
      stepTargetOf(options),
    ),
  ).catch((error: ContinuoError) => {
    if (device === 'cpu' || error.code !== 'UNAVAILABLE') throw error
    throw new ContinuoError(error.code, `${error.message} The CPU takes the model with the same bits: device "cpu".`, {
      cause: error,
    })
  })
  /** The model's name, while the engine loads. */
  const naming = async (): Promise<{ readonly named: Named; readonly head: string; readonly hash: string | null }> => {
    named ??= await readText()
    const head = sha256(fingerprintText(request.config, tensors, named))
    const known = fingerprint !== null || (packed?.sealed && packed.name.head === head)
    return { named, head, hash: known ? fingerprint : await fingerprintBy(named) }
  }
  const [opened, name] = await Promise.allSettled([opening, naming()])
  if (name.status === 'rejected' && opened.status === 'fulfilled')
    callNative((addon) => addon.closeEngine(opened.value))
  // What is wrong with its text is said first: it is found without the weights.
  if (name.status === 'rejected') throw name.reason
  if (opened.status === 'rejected') throw opened.reason
  const engine = opened.value
  const packing = callNative((addon) => addon.packing(engine))
  const { head } = name.value
  // The file's word counts where its weights are those that compute.
  fingerprint = name.value.hash ?? (packing.mapped ? packed!.name.fingerprint : await fingerprintBy(name.value.named))
  if (packing.note !== '')
    warn(
      `${packing.note}; the weights are packed anew.${packed?.path === places[0] ? ' continuo pack writes that file again, or deletes it.' : ''}`,
    )
  if (packing.mapped && packed!.path === kept) void touchPacked(kept)
  if (draft !== null)
    await awaitNative((addon) => addon.draft(engine, JSON.stringify(draft.graph), draft.paths, draftBytes)).catch(
      (error: unknown) => {
        callNative((addon) => addon.closeEngine(engine))
        throw error
      },
    )
  const speculate = ({ tokens, adapt = true }: Speculation): void =>
    callNative((addon) => addon.speculate(engine, tokens, adapt))
  speculate(speculation)
  const experts = request.experts === undefined ? null : expertPort(engine, request.experts, options)
  const states = new WeakMap<Context, ContextState>()
  let closed = false
  let lastStats: EngineStats

  const needOpen = (): void => {
    if (closed) misuse('The model is closed; open it again.')
  }
  /** The state of a context that no call is using. */
  const idle = (context: Context, label: string): ContextState => {
    needOpen()
    const state = states.get(context) ?? misuse(`${label} belongs to another model.`)
    if (state.closed) misuse(`${label} is closed; create another.`)
    if (state.busy) misuse(`${label} is busy: ${state.busy}() has it. Await that call first.`)
    return state
  }
  /** Runs `call` with the contexts marked busy; afterwards their heads are what the engine says, also when it failed. */
  const withBusy = async <T>(held: readonly ContextState[], by: string, call: () => Promise<T>): Promise<T> => {
    for (const state of held) state.busy = by
    try {
      return await call()
    } finally {
      for (const state of held) {
        state.busy = undefined
        look(state)
      }
    }
  }

  /** Takes over what the engine says of a context that no call is using. */
  const look = (state: ContextState): void => {
    state.head = callNative((addon) => addon.head(state.handle))
    state.bytes = callNative((addon) => addon.stateBytes(state.handle))
  }

  /** Throws INVALID for a state or a head that cannot be. */
  const checkLoaded = (state: Uint8Array | StateSource | null, { pulse, origin }: ContextHead): void => {
    const bytes = isSource(state) ? state.hot : state
    if (bytes !== null && !(bytes instanceof Uint8Array)) invalid('The state to restore must be a Uint8Array.')
    if (typeof pulse !== 'bigint' || typeof origin !== 'bigint' || pulse < 0n || origin < 0n || pulse >= maxPulse) {
      invalid(`The head to restore has pulse ${pulse} and origin ${origin}, expected bigints from 0 to 2^63 − 1.`)
    }
    if (origin > pulse) invalid(`The head to restore has origin ${origin} after its pulse ${pulse}.`)
  }

  const sleepy = layout.growth.find(({ sleeps }) => sleeps) ?? null

  /** A part of the state of a context that is busy with this. */
  const copied = async (handle: ContextHandle, { from, to }: Ranges, rest: boolean): Promise<Uint8Array> => {
    if (sleepy !== null) await awaitNative((addon) => addon.bring(handle, from, to))
    const out = uninitialised(callNative((addon) => addon.partBytes(handle, from, to, rest)))
    await awaitNative((addon) => addon.capture(handle, from, to, rest, out))
    return out
  }
  const everything: Ranges = { from: layout.first.map(() => 0), to: layout.first.map(() => -1) }

  const contextOf = (handle: ContextHandle): EngineContext => {
    const state: ContextState = {
      handle,
      head: callNative((addon) => addon.head(handle)),
      bytes: callNative((addon) => addon.stateBytes(handle)),
      busy: undefined,
      closed: false,
    }
    const own = (): ContextState => idle(context, 'The context')
    const context: EngineContext = {
      get pulse() {
        return state.head.pulse
      },
      get origin() {
        return state.head.origin
      },
      get chain() {
        return state.head.chain
      },
      get bytes() {
        // Asked anew: of blocks that it shares, other contexts may have ceased to count some.
        if (!closed && !state.closed && state.busy === undefined)
          state.bytes = callNative((addon) => addon.stateBytes(handle))
        return state.bytes
      },
      reset() {
        own()
        callNative((addon) => addon.reset(handle))
        look(state)
      },
      gates() {
        own()
        return callNative((addon) => addon.gates(handle)).map(({ table, at, theta, eta, alpha, count }) => {
          // Before the last four axes, levels × heads × n × n, stand those that tell memories from each other.
          const [levels = 1, ...inner] = layout.first.find(({ name }) => name === table)?.shape.slice(-4) ?? []
          const part = at / inner.reduce((product, extent) => product * extent, 1)
          const mean = (sum: number): number => sum / count
          const [layer, level] = [Math.floor(part / levels), part % levels]
          return { table, layer, level, theta: mean(theta), eta: mean(eta), alpha: mean(alpha) }
        })
      },
      serialize() {
        own()
        return callNative((addon) => addon.serialize(handle))
      },
      async state() {
        return withBusy([own()], 'state', () => copied(handle, everything, true))
      },
      async capture(known) {
        return withBusy([own()], 'capture', async () => {
          if (BigInt(known.pulse) !== state.head.pulse)
            misuse(`A capture at pulse ${known.pulse} was asked for, and the context stands at ${state.head.pulse}.`)
          const counters = callNative((addon) => addon.counters(handle))
          const numbers = sleepy === null ? {} : { numbers: [...callNative((addon) => addon.blockNumbers(handle))] }
          const parts = await takeParts(layout, counters, known, (ranges, rest) => copied(handle, ranges, rest))
          return { ...parts, ...numbers }
        })
      },
      frozen: () =>
        frozenRuns(
          layout,
          callNative((addon) => addon.counters(own().handle)),
          Number(state.head.pulse),
        ),
      numbers: () => (sleepy === null ? new Float64Array(0) : callNative((addon) => addon.blockNumbers(own().handle))),
      held() {
        const blocks = sleepy === null ? null : callNative((addon) => addon.holdBlocks(own().handle))
        return blocks && { blocks, drop: () => callNative((addon) => addon.dropBlocks(blocks)) }
      },
      restore(bytes, head) {
        own()
        checkLoaded(bytes, head)
        const { pulse, origin, chain } = head
        callNative((addon) => addon.restore(handle, bytes, pulse, origin, String(chain)))
        look(state)
      },
      async load(from, head) {
        const held = own()
        checkLoaded(from, head)
        const { pulse, origin, chain } = head
        await withBusy([held], 'load', () => {
          if (isSource(from))
            return fillFrom(engine, layout, from, head, handle, (filling) =>
              callNative((addon) => addon.filled(filling, handle)),
            )
          return awaitNative((addon) => addon.load(engine, handle, from, pulse, origin, String(chain)))
        })
      },
      async restart() {
        await withBusy([own()], 'restart', () => awaitNative((addon) => addon.restart(handle)))
      },
      close() {
        // Also after its model: the memory goes when the last of them is closed.
        if (!closed) own()
        else if (state.closed) misuse('The context is closed; create another.')
        callNative((addon) => addon.closeContext(handle))
        state.closed = true
      },
    }
    states.set(context, state)
    return context
  }

  const createContext = (): EngineContext => {
    needOpen()
    return contextOf(callNative((addon) => addon.createContext(engine)))
  }

  const submitted = async (state: ContextState, work: NativeItem): Promise<WorkResult> => {
    try {
      return await withBusy([state], 'submit', () => awaitNative((addon) => addon.submit(engine, work)))
    } catch (error) {
      throw brokenOr(error)
    }
  }

  const blocks: SleepyBlocks | null = sleepy && {
    blockBytes: blockBytes(sleepy, 0),
    news: () => awaitNative((addon) => addon.blockNews(engine)),
    stop() {
      if (!closed) callNative((addon) => addon.stopBlockNews(engine))
    },
    sleep: (number) => !closed && callNative((addon) => addon.sleepBlock(engine, number)),
    wake(number, bytes) {
      if (!closed && !callNative((addon) => addon.wakeBlock(engine, number, bytes)))
        throw new ContinuoError('INTERNAL', `A block came back with ${bytes.length} bytes.`)
    },
    refuse(number, reason) {
      if (!closed) callNative((addon) => addon.refuseBlock(engine, number, reason))
    },
    copy: (number) => (closed ? null : callNative((addon) => addon.copyBlock(engine, number))),
  }

  return {
    blocks,
    experts: experts?.port ?? null,
    dir,
    modelType,
    vocabSize,
    levels,
    memory,
    parameters: parametersOf(graph),
    endTokens: text.endTokens ?? null,
    fingerprint,
    layoutFingerprint: layoutFingerprint(graph),
    layout,
    contextBytes: layout.first.reduce((sum, { bytes }) => sum + bytes, 0),
    positions: callNative((addon) => addon.positions(engine)),
    outerMemory: request.outerMemory === undefined ? null : boundsOf(request.outerMemory),
    adapts: graph.perspective?.fmea != null || graph.perspective?.hdm != null,
    perspectives: perspectivesOf(graph),
    decoder: request.decoder ?? null,
    device,
    createContext,

    async openContext(from, head) {
      needOpen()
      checkLoaded(from, head)
      const { pulse, origin, chain } = head
      if (isSource(from))
        return fillFrom(engine, layout, from, head, null, (filling) =>
          contextOf(callNative((addon) => addon.filled(filling, null))),
        )
      return contextOf(await awaitNative((addon) => addon.load(engine, null, from, pulse, origin, String(chain))))
    },

    forkContext(context) {
      const { handle } = idle(context, 'The context to fork')
      return contextOf(callNative((addon) => addon.forkContext(handle)))
    },

    unavailableReason: () => (closed ? null : callNative((addon) => addon.unavailableReason(engine)) || null),

    get stats() {
      return closed ? lastStats : callNative((addon) => addon.stats(engine))
    },

    speculate(wanted) {
      needOpen()
      checkSpeculation(wanted)
      speculate(wanted)
    },

    async submit(item) {
      const state = idle(item.context, 'The item: the context')
      return submitted(state, nativeItem(item, state, vocabSize, 'The item'))
    },

    async process(items) {
      needOpen()
      const held = items.map((item, i) => idle(item.context, `Item ${i}: the context`))
      const twice = held.findIndex((state, i) => held.indexOf(state) !== i)
      if (twice >= 0)
        misuse(`Item ${twice}: its context is already item ${held.indexOf(held[twice]!)} of the same call.`)
      const work = items.map((item, i) => nativeItem(item, held[i]!, vocabSize, `Item ${i}`))
      const settled = await Promise.allSettled(held.map((state, i) => submitted(state, work[i]!)))
      const failed = settled.find(({ status }) => status === 'rejected')
      if (failed?.status === 'rejected') throw failed.reason
      return settled.map((outcome) => (outcome as PromiseFulfilledResult<WorkResult>).value)
    },

    createExecutor({ context = createContext(), memoryReuse = true, trace = false, watch = false } = {}) {
      const state = idle(context, 'The context')
      const handle = callNative((addon) => addon.createExecutor(state.handle, { memoryReuse, trace, watch }))
      return executorOf({
        graph,
        context,
        traces: trace,
        step: (block, rows, inputs) =>
          withBusy([idle(context, "The executor's context")], 'step', () =>
            awaitNative((addon) => addon.step(handle, block, rows, inputs)),
          ),
        fetch: (block, rows, declaration) => {
          idle(context, "The executor's context")
          return callNative((addon) => addon.fetch(handle, block, rows, declaration))
        },
        widened: (declaration, member) => {
          idle(context, "The executor's context")
          return callNative((addon) => addon.fetchConstant(handle, declaration, member))
        },
        files: () => {
          needOpen()
          return { paths, tensors: inspectFiles(paths).tensors }
        },
        trace: () => {
          idle(context, "The executor's context")
          return callNative((addon) => addon.trace(handle))
        },
        layout: layout.tensors,
      })
    },

    async logits(context) {
      const state = idle(context, 'The context')
      if (state.head.pulse === state.head.origin)
        invalid('A context has no logits before its first token; feed one first.')
      return withBusy([state], 'logits', () => awaitNative((addon) => addon.logits(engine, state.handle)))
    },

    async verifyWeights() {
      const refuse = (what: string, cause?: unknown, of = `The weights in ${paths.join(', ')}`): never => {
        throw new ContinuoError(
          'REFUSED',
          `${of} ${what} Find out who changed them before anything computed meanwhile is used; replace a model only between two runs.`,
          { cause },
        )
      }
      if (!(await awaitNative((addon) => addon.packedIntact(engine))))
        refuse('were changed while the model served.', undefined, `The packed weights in ${packed!.path}`)
      let now = ''
      try {
        now = await fingerprintOf(request, text, inspectFiles(paths).tensors)
      } catch (error) {
        refuse(`cannot be read any more: ${messageOf(error)}`, error)
      }
      if (now !== fingerprint) {
        refuse(
          `were changed while the model served: fingerprint ${fingerprint.slice(0, 12)}… when it was opened, ${now.slice(0, 12)}… now.`,
        )
      }
    },

    moments(tensor) {
      needOpen()
      return observed.sum(tensor, (declaration, member) =>
        callNative((addon) => addon.moments(engine, declaration, member)),
      )
    },

    packed: packing.mapped ? packed!.path : null,

    async keepPacked(to) {
      needOpen()
      if (to === undefined && (kept === null || packing.mapped || sealed?.unsettled !== null)) return null
      if (to === undefined && packing.bytes < LEAST_KEPT) return null
      const { seal, unsettled } = sealed ?? sealOf(paths, tensors)
      if (unsettled !== null)
        invalid(
          `${unsettled} was changed a moment ago (or its time lies ahead), so that time cannot tell whether it changes again. Pack the weights when it is older than two seconds.`,
        )
      if (to === undefined && !(await makeRoom(folder!, packing.bytes))) return null
      const path = to ?? kept!
      const bytes = await awaitNative((addon) => addon.keepPacked(engine, path, { key, seal, head, fingerprint }))
      return bytes === 0 ? null : { path, bytes }
    },

    close() {
      needOpen()
      lastStats = callNative((addon) => addon.stats(engine))
      experts?.close()
      callNative((addon) => addon.closeEngine(engine))
      closed = true
    },
  }
}
