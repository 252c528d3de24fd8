/**
 * The TypeScript face of `native/`: validates, explains, hands over.
 *
 *   context:  open ──submit/logits──▶ busy ──settled──▶ open ──close──▶ closed
 *
 * Whatever is refused is refused before anything is written.
 */
import { dirname } from 'node:path'
import { uninitialised } from '../bulk.ts'
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import { blockBytes, PLAIN_MEMORY, type SleepyBlocks, type StateLayout, type StateSource } from '../memory.ts'
import { type Context, ContextBroken, type ContextHead, type EngineContext } from './context.ts'
import { executorOf } from './executor.ts'
import { expertPort } from './experts.ts'
import { fillFrom, isSource } from './filling.ts'
import { layoutFingerprint } from './fingerprint.ts'
import { type Graph, parametersOf } from './graph.ts'
import { frozenRuns, type Ranges, takeParts } from './growth.ts'
import { inspectFiles, inspectTensors } from './inspect.ts'
import { nativeItem } from './items.ts'
import { stateLayout } from './layout.ts'
import { observedIn } from './moments.ts'
import { awaitNative, type ContextHandle, callNative, type NativeItem } from './native.ts'
import type { OpenModelOptions } from './options.ts'
import { checkGraph } from './plan.ts'
import type { Vocabulary } from './token-bytes.ts'
import type { EngineStats, Model } from './types.ts'
import { type LoadRequest, openWeights, speculate, type TextIdentity } from './weights.ts'
import type { WorkItem, WorkResult } from './work.ts'

/**
 * Bytes of a context before its first token, at most. Windows and segments have no tensor in the file, so nothing else
 * bounds their size. A state is hashed and copied in one piece by snapshots and spilling.
 */
const maxStateBytes = 2 ** 30
/** An item that was taken is refused only where its context fails by what it computes. */
const brokenOr = (error: unknown): unknown =>
  codeOf(error) === 'REFUSED' ? new ContextBroken(messageOf(error)) : error

/** As many pulses again never pass: the engine's clock does not wrap. */
const maxPulse = 2n ** 63n

/**
 * Loads a graph of one's own and the weights it names from one file (`inspectFiles` says of which formats). Blocks
 * "step" and "predict" that return what a language model's do (native/graph/graph.h) make it one; any other graph is
 * driven through `createExecutor`.
 */
export const openGraph = async (
  graph: Graph,
  path: string,
  options: OpenModelOptions = {},
  vocabulary?: Vocabulary,
): Promise<Model> => {
  if (options.draftModel !== undefined)
    invalid("draftModel was given, but a graph of one's own has no tokenizer to compare with. Leave it out.")
  checkGraph(graph)
  const predict = graph.blocks.find(({ name }) => name === 'predict')?.nodes.at(-1)
  const logits = predict && 'return' in predict ? (predict.return as Record<string, string>).logits : undefined
  const isVolatile = graph.declarations.some(({ name, kind }) => kind === 'volatile' && name === logits)
  const vocabSize = isVolatile ? sizeOf(graph, logits) : 0
  const tensors = inspectTensors(path)
  return loadModel(
    { dir: dirname(path), modelType: 'graph', vocabSize, config: graph, graph, paths: [path], tensors },
    options,
    () => Promise.resolve({ vocabulary }),
  )
}

const misuse = (message: string): never => {
  throw new ContinuoError('MISUSE', message)
}
const invalid = (message: string): never => {
  throw new ContinuoError('INVALID', message)
}

const sizeOf = (graph: Graph, name: string | undefined): number => {
  const declaration = graph.declarations.find((each) => each.name === name)
  return declaration && 'shape' in declaration ? declaration.shape.reduce((product, extent) => product * extent, 1) : 0
}

/** Of the hidden vector: what block "predict" takes. */
const channelsOf = (graph: Graph): number =>
  sizeOf(graph, graph.blocks.find(({ name }) => name === 'predict')?.inputs[0])

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
 * Loads the weights a graph names, and those of a model that guesses its tokens. The engine does so on its own threads;
 * meanwhile `read` says how the model reads text. Throws INVALID for a graph or tensor that cannot be used, and what
 * `read` throws.
 */
export const loadModel = async (
  request: LoadRequest,
  options: OpenModelOptions = {},
  read: () => Promise<TextIdentity> = () => Promise.resolve({}),
  draft: LoadRequest | null = null,
): Promise<Model> => {
  const { dir, modelType, vocabSize, levels = [], memory = PLAIN_MEMORY, graph, paths } = request
  const layout = boundedLayout(graph)
  const observed = observedIn(graph, options.moments ?? [])
  const weights = await openWeights(request, options, { read, draft, moments: observed.members })
  const { engine, device, fingerprint } = weights
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
  /**
   * Runs `call` with the contexts marked busy; afterwards their heads are what the engine says, also when it failed.
   */
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

  const submitted = async (state: ContextState, work: NativeItem, { request }: WorkItem): Promise<WorkResult> => {
    const signal = request?.type === 'adapt' ? request.signal : undefined
    const stop = (): void => callNative((addon) => addon.stopAdapting(state.handle))
    try {
      return await withBusy([state], 'submit', () => {
        const answer = awaitNative((addon) => addon.submit(engine, work))
        if (signal?.aborted === true) stop()
        else signal?.addEventListener('abort', stop)
        return answer
      })
    } catch (error) {
      throw brokenOr(error)
    } finally {
      signal?.removeEventListener('abort', stop)
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
    channels: channelsOf(graph),
    levels,
    memory,
    parameters: parametersOf(graph),
    endTokens: weights.text.endTokens ?? null,
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
      speculate(engine, wanted)
    },

    async submit(item) {
      const state = idle(item.context, 'The item: the context')
      return submitted(state, nativeItem(item, state, vocabSize, 'The item'), item)
    },

    async process(items) {
      needOpen()
      const held = items.map((item, i) => idle(item.context, `Item ${i}: the context`))
      const twice = held.findIndex((state, i) => held.indexOf(state) !== i)
      if (twice >= 0)
        misuse(`Item ${twice}: its context is already item ${held.indexOf(held[twice]!)} of the same call.`)
      const work = items.map((item, i) => nativeItem(item, held[i]!, vocabSize, `Item ${i}`))
      const settled = await Promise.allSettled(held.map((state, i) => submitted(state, work[i]!, items[i]!)))
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

    verifyWeights: () => weights.verify(),

    moments(tensor) {
      needOpen()
      return observed.sum(tensor, (declaration, member) =>
        callNative((addon) => addon.moments(engine, declaration, member)),
      )
    },

    packed: weights.packed,

    async keepPacked(to) {
      needOpen()
      return weights.keep(to)
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
