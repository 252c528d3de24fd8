/**
 * The weights of a model on their way into the engine: packed anew, or mapped from what an earlier start packed
 * (packed.ts); and what identifies them.
 */
import { availableParallelism } from 'node:os'
import { ContinuoError, messageOf } from '../errors.ts'
import { sha256 } from '../hash.ts'
import type { MemoryDeclaration } from '../memory.ts'
import { type ExpertStore, expertsOf } from './experts.ts'
import { fingerprintText, modelFingerprint, type Named } from './fingerprint.ts'
import { type Graph, readsSubwords } from './graph.ts'
import { cudaStatus, inspectFiles } from './inspect.ts'
import { awaitNative, callNative, type EngineHandle, type TensorEntry, type TokenBytesHandle } from './native.ts'
import { type DeviceKind, DRAFT_BYTES, type OpenModelOptions, type Speculation, STEP_TARGET } from './options.ts'
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
import { checkSpeculation, usualSpeculation } from './speculation.ts'
import { tokenBytes, type Vocabulary } from './token-bytes.ts'
import type { DecoderShape } from './types.ts'

const maxThreads = 256
/** Fewer bytes are packed in milliseconds, so they are not kept unasked. */
const LEAST_KEPT = 2 ** 23

const invalid = (message: string): never => {
  throw new ContinuoError('INVALID', message)
}

/**
 * An emulated device is there for tests, and far slower than the CPU it runs on: it is taken only where `device` names
 * it.
 */
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
  /** memory.json of an ngram memory behind the model, with every member there. */
  readonly ngram?: unknown
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
  /** What its tokens stand for: a memory of subwords reads that. Its identity is the tokenizer's. */
  readonly vocabulary?: Vocabulary | undefined
}

const ownTensors = ({ leftOut }: LoadRequest, tensors: readonly TensorEntry[]): readonly TensorEntry[] =>
  leftOut === undefined ? tensors : tensors.filter(({ name }) => !leftOut.has(name))

const namedOf = async (request: LoadRequest, { tokenizer, endTokens }: TextIdentity): Promise<Named> => {
  const { overflow, cacheDtype, outerMemory, ngram, memoryFile, expertIdentity } = request
  const modules = memoryFile === undefined ? undefined : [memoryFile]
  return {
    ...{ overflow, cacheDtype, outerMemory, ngram, tokenizer, endTokens, expertIdentity },
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

const plain = { memoryReuse: true, trace: false, watch: false }

/** Throws INVALID. */
export const speculate = (engine: EngineHandle, speculation: Speculation): void => {
  checkSpeculation(speculation)
  const { tokens, adapt = true } = speculation
  callNative((addon) => addon.speculate(engine, tokens, adapt))
}

/** An engine with its weights. */
export interface OpenedWeights {
  readonly engine: EngineHandle
  readonly device: DeviceKind
  readonly fingerprint: string
  readonly text: TextIdentity
  /** As `Model.packed`. */
  readonly packed: string | null
  /** As `Model.verifyWeights`. */
  verify(): Promise<void>
  /** As `Model.keepPacked`. */
  keep(path?: string): Promise<{ readonly path: string; readonly bytes: number } | null>
}

/** What comes with the weights. */
interface Beside {
  readonly read: () => Promise<TextIdentity>
  readonly draft: LoadRequest | null
  readonly moments: Uint32Array
}

/**
 * Opens an engine with the weights that the request names, and those of a model that guesses its tokens. The engine
 * loads on its own threads; meanwhile `read` says how the model reads text. Throws INVALID for a graph or tensor that
 * cannot be used, and what `read` throws.
 */
export const openWeights = async (
  request: LoadRequest,
  options: OpenModelOptions,
  { read, draft, moments }: Beside,
): Promise<OpenedWeights> => {
  const { graph, paths, memoryFile, packedFolder: folder } = request
  const threads = threadsOf(options)
  const device = options.moments === undefined ? deviceOf(options) : 'cpu'
  const { keepPacked = true, watch = false, warn = (message) => process.emitWarning(message) } = options
  const { speculate: speculation = usualSpeculation(draft !== null) } = options
  checkSpeculation(speculation)
  const draftBytes = draftBytesOf(options)
  if (draft !== null && device !== 'cpu')
    invalid(
      `A draft model was given, and the device is ${device}: guesses are judged on the CPU only. Take device "cpu", or leave the draft model out.`,
    )
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
  let vocabulary: TokenBytesHandle | undefined
  const readers = [request, ...(draft === null ? [] : [draft])].filter((each) => readsSubwords(each.graph))
  if (readers.length > 0) {
    named ??= await readText()
    if (text.vocabulary === undefined)
      invalid(
        `The memory of ${readers[0]!.dir} learns what its tokens stand for, and the package has no tokenizer that says it. Add the tokenizer's file, or take memory.json away.`,
      )
    vocabulary = tokenBytes(text.vocabulary!, request.vocabSize)
  }
  const opening = awaitNative((addon) =>
    addon.open(
      JSON.stringify(graph),
      memoryFile === undefined ? paths : [...paths, memoryFile],
      threads,
      {
        ...plain,
        watch,
        moments,
        vocabulary,
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
  speculate(engine, speculation)
  return {
    engine,
    device,
    fingerprint,
    text,
    async verify() {
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

    packed: packing.mapped ? packed!.path : null,

    async keep(to) {
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
  }
}
