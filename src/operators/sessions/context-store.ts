/**
 * The contexts of a process, of all its partitions or of a SessionManager: made, forked and processed here, and kept
 * where there is room for them (context-tiers.ts). Callers get contexts like the engine's own, and cannot tell where
 * the state of one is.
 */

import type { Context, EngineContext } from '../../engine/context.ts'
import type { Model } from '../../engine/types.ts'
import type { WorkItem, WorkResult } from '../../engine/work.ts'
import { ContinuoError, codeOf } from '../../errors.ts'
import { failpoint } from '../../failpoint.ts'
import type { KeptBlock } from '../../memory.ts'
import { type BlockCacheOptions, type BlockCacheStats, openBlockCache } from '../../state/block-cache.ts'
import { createShares } from '../pipeline/shares.ts'
import { createAdaptations } from './adaptations.ts'
import { type ContextTiersOptions, type ContextTiersStats, createContextTiers, type Entry } from './context-tiers.ts'
import { createFair } from './fair.ts'

export interface ContextStoreOptions extends ContextTiersOptions {
  /** Of a model whose memory lies outside: where archived blocks are. */
  readonly blocks?: BlockCacheOptions | undefined
  /**
   * Called for each adaptation that did something: how long the engine took, replays included, and how many evaluations
   * it used.
   */
  readonly onAdapted?: ((told: AdaptationTime) => void) | undefined
}
/** What an adaptation cost. */
export interface AdaptationTime {
  readonly seconds: number
  readonly evaluations: number
}
/** Where the contexts of a process are, and how often they moved. */
export interface ContextStoreStats extends ContextTiersStats {
  /** null: the model has no external memory. */
  readonly blocks: BlockCacheStats | null
  /** Retrievals of archived blocks by their reason, replays included. */
  readonly retrievals: Readonly<Record<string, number>>
}

/** Where contexts are made. */
export interface Contexts {
  createContext(): Context
  /** As `forkContext` of the model, of a context that was made here. */
  forkContext(context: Context): Context | Promise<Context>
}

/** Closes the context as soon as its state is kept elsewhere, at once or later; false: it stays. */
export type Release = (context: Context) => boolean

/** Makes and runs all contexts of a process; the tiers decide where each lies. */
export interface ContextStore {
  /**
   * A context at its first state; it takes memory from its first use on. `name` stands in messages. `release` is called
   * when spill files have reached their bound and this context was in one for longest: it closes the context when its
   * state is kept elsewhere, at once or later.
   */
  createContext(name?: string, release?: Release): Context
  /**
   * As `forkContext` of the model, of a context that was created here. A spilled context is read back first. A fork
   * that was spilled shares blocks again, when it comes back, with those of its kin that are in memory.
   */
  forkContext(context: Context, name?: string, release?: Release): Promise<Context>
  /**
   * As `submit` of the model, for a context that was created here. Rejects with `SpillLost` when its spill file is
   * missing or was changed. `share`: whom the work counts for (shares.ts); default: the session with its forks.
   */
  submit(item: WorkItem, share?: string): Promise<WorkResult>
  /** As `logits` of the model, of a context that was created here. */
  logits(context: Context): Promise<Float32Array>
  readonly stats: ContextStoreStats
  /** Blocks with these numbers (`StateParts.numbers`) are kept from now on. */
  keep(numbers: readonly number[], kept: (at: number) => KeptBlock): void
  /**
   * Removes the spill files, and with them the contexts that are in one. Resolves when none is being written any more.
   */
  close(): Promise<void>
}

/** Of an adaptation that was ended before it began. */
const notBegun = ({ pulse, origin, chain }: Context): WorkResult => ({
  ...{ nats: new Float32Array(0), generated: new Int32Array(0), logprobs: new Float32Array(0), ended: null },
  head: { pulse, origin, chain },
})

export const createContextStore = (
  model: Pick<Model, 'createContext' | 'openContext' | 'forkContext' | 'submit' | 'logits' | 'layout' | 'blocks'>,
  options: ContextStoreOptions = {},
): ContextStore => {
  const tiers = createContextTiers(model, options)
  const { files } = tiers
  const cache = model.blocks && openBlockCache(model.blocks, { warn: options.warn, ...options.blocks })
  const retrievals: Record<string, number> = {}
  const entries = new WeakMap<Context, Entry>()
  const fair = createFair()
  const shares = createShares()

  const adaptations = createAdaptations()

  const adapt = async (item: WorkItem): Promise<WorkResult> => {
    const began = performance.now()
    if (item.request?.type === 'adapt') item.request.onBegin?.()
    const answer = model.submit(item)
    failpoint('adapt.running')
    const result = await answer
    const { evaluations = 0 } = result.adapted ?? {}
    if (evaluations > 0) options.onAdapted?.({ seconds: (performance.now() - began) / 1000, evaluations })
    return result
  }

  const mended = (entry: Entry): void => {
    entry.broken = false
    entry.lost = null
  }

  const contextOf = (entry: Entry): Context => {
    const context: Context = {
      get pulse() {
        return (entry.real ?? entry.head).pulse
      },
      get origin() {
        return (entry.real ?? entry.head).origin
      },
      get chain() {
        return (entry.real ?? entry.head).chain
      },
      get bytes() {
        return entry.bytes
      },
      // Gates are counted by the engine's context, and that is closed when this one is spilled.
      gates() {
        tiers.own(entry)
        return entry.leaving === null ? (entry.real?.gates() ?? []) : []
      },
      async state() {
        return tiers.looking(entry, (real) => real.state(), files.read)
      },
      async capture(known) {
        return tiers.looking(
          entry,
          (real) => real.capture(known),
          (pages, who) => files.capture(pages, known, who),
        )
      },
      async load(state, head) {
        if (state !== null || entry.real !== null || entry.leaving !== null) {
          let made = false
          const open = (): Promise<EngineContext> => {
            made = true
            return model.openContext(state, head)
          }
          const loaded = async (real: EngineContext): Promise<void> => {
            if (!made) await real.load(state, head)
            if (state !== null && 'resting' in state && state.resting !== undefined)
              cache?.rest(real.numbers(), state.resting)
            tiers.clear(entry)
            mended(entry)
          }
          await tiers.present(entry, loaded, open)
        } else {
          // The first state takes no memory before it is used.
          tiers.own(entry)
          tiers.clear(entry)
          entry.bytes = tiers.first().bytes
          entry.head = { pulse: head.pulse, origin: head.origin, chain: head.chain }
          mended(entry)
        }
      },
      async restart() {
        // What is outside is not read for this: its head says where the clock stands.
        const fresh = (): Promise<EngineContext> => model.openContext(null, entry.head)
        await tiers.present(
          entry,
          async (real) => {
            await real.restart()
            tiers.clear(entry)
            mended(entry)
          },
          fresh,
        )
      },
      close: () => tiers.remove(entry),
    }
    entries.set(context, entry)
    return context
  }

  const knownEntry = (context: Context): Entry => {
    const entry = entries.get(context)
    if (entry === undefined) throw new ContinuoError('MISUSE', 'The context was not made here; use createContext().')
    tiers.own(entry)
    return entry
  }

  const create = (name: string | undefined, release: Release | undefined): { entry: Entry; context: Context } => {
    const entry = tiers.add(name, () => release?.(context) ?? false)
    const context = contextOf(entry)
    return { entry, context }
  }

  return {
    createContext: (name, release) => create(name, release).context,
    async forkContext(context, name, release) {
      const parent = knownEntry(context)
      if (parent.lost !== null) throw parent.lost
      const child = create(name, release)
      if (parent.real === null && parent.pages.hot === null) {
        child.entry.head = parent.head
        return child.context
      }
      return tiers.present(parent, async (from) => {
        const real = model.forkContext(from)
        parent.kin.add(child.entry)
        child.entry.kin = parent.kin
        child.entry.pages = files.share(parent.pages, from.frozen())
        tiers.born(child.entry, real)
        return child.context
      })
    },
    async submit(item, share) {
      const entry = knownEntry(item.context)
      const asked = item.tokens.length + (item.generate?.count ?? 0)
      const call = () =>
        tiers.present(entry, async (context) => {
          try {
            const work = { ...item, context }
            const result = await (item.request?.type === 'adapt' ? adapt(work) : model.submit(work))
            for (const told of result.events ?? [])
              if (told.type === 'retrieve') retrievals[told.reason] = (retrievals[told.reason] ?? 0) + 1
            return result
          } catch (error) {
            if (codeOf(error) === 'REFUSED' || codeOf(error) === 'UNAVAILABLE') entry.broken = true
            throw error
          }
        })
      if (item.request?.type !== 'adapt')
        return fair.run(share === undefined ? entry.kin : shares.groupOf(share), asked, call)
      // It takes no rows of the engine's steps, so it stands in no line with those that do.
      const leave = await adaptations.enter(item.request.signal)
      if (leave === null) return notBegun(item.context)
      try {
        return await call()
      } finally {
        leave()
      }
    },
    logits: (context) => tiers.present(knownEntry(context), (real) => model.logits(real)),
    stats: Object.assign(tiers.stats, { blocks: cache?.stats ?? null, retrievals }),
    keep: (numbers, kept) => cache?.keep(numbers, kept),
    async close() {
      await tiers.close()
      cache?.close()
    },
  }
}
