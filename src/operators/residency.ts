/**
 * Residency: which contexts are in memory. All contexts of a process are made here and processed here; together they take at
 * most `maxBytes`. Who needs room pushes out whoever was not used for longest: an idle context becomes a page (state/pages.ts)
 * and is a context of the engine again at its next use, with the same bytes, clock and chain.
 *
 *            use                      room                      settled
 *   away ───────────▶ waiting ───────────────────▶ busy ─────────────────▶ idle ──▶ away (a page)
 *   idle ──────────────────────────────────────────▶                        ▲ │
 *                                                                           └─┘ reset, restore
 *
 * Busy contexts stay. Where they fill the bound, others wait for their turn, in order; one that is larger than the bound goes
 * alone. What is given out are contexts like the engine's own, so whoever holds one cannot tell where its state is.
 */
import type { Context, ContextHead, Model, WorkItem, WorkResult } from '../engine/types.ts'
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import { openPages, type Page } from '../state/pages.ts'

export interface ResidencyOptions {
  /** Bytes of contexts in memory at most; default: no bound. A context on its way to a page counts until it is written. */
  readonly maxBytes?: number | undefined
  /** Where the folder with the pages is made; default: the system's folder for temporary files. */
  readonly pageDir?: string | undefined
  /** Told when a context cannot be paged and so stays in memory. */
  readonly warn?: (message: string) => void
}

export interface ResidencyStats {
  /** Memory of the contexts in memory. */
  readonly residentBytes: number
  /** Contexts in memory, and in pages. */
  readonly resident: number
  readonly paged: number
  /** So far. */
  readonly pageIns: number
  readonly pageOuts: number
  /** Attempts to write a page that failed. */
  readonly failures: number
}

export interface Residency {
  /** A context at its first state; it takes memory from its first use on. `name` stands in messages. */
  createContext(name?: string): Context
  /** As the model's; the context is one of these. Rejects with `PageLost` when its page is missing or was changed. */
  submit(item: WorkItem): Promise<WorkResult>
  readonly stats: ResidencyStats
  /** Removes the pages. Contexts that are in one are lost. */
  close(): void
}

interface Slot {
  readonly name: string | undefined
  /** null: it is in the page, or nothing was ever fed to it. */
  real: Context | null
  page: Page | null
  /** While it is away. */
  head: ContextHead
  bytes: number
  busy: boolean
  /** Its state stopped being finite, or a call lost it; the engine takes only reset, restore and close, and no page could help. */
  broken: boolean
  /** Why its state is gone, found when it was to become a page; whoever uses it next hears that. */
  lost: unknown
  closed: boolean
}

interface Waiting {
  readonly slot: Slot
  readonly enter: () => void
  readonly refuse: (error: unknown) => void
}

/** After a page could not be written, memory is used instead for so long before the disk is tried again, ms. */
const RETRY = 1000

export const createResidency = (
  model: Pick<Model, 'createContext' | 'submit'>,
  {
    maxBytes = Number.POSITIVE_INFINITY,
    pageDir,
    warn = (message) => process.emitWarning(message),
  }: ResidencyOptions = {},
): Residency => {
  if (!(maxBytes > 0)) {
    throw new ContinuoError(
      'INVALID',
      `The bound of resident contexts is ${maxBytes}, expected a number of bytes above 0.`,
    )
  }
  const pages = openPages(pageDir)
  const slots = new WeakMap<Context, Slot>()
  /** In memory and free to go, in order of last use. */
  const idle = new Set<Slot>()
  const waiting: Waiting[] = []
  let newborn: (ContextHead & { readonly bytes: number }) | null = null
  let active = 0
  let retryAt = Number.NEGATIVE_INFINITY
  const stats = { residentBytes: 0, resident: 0, paged: 0, pageIns: 0, pageOuts: 0, failures: 0 }

  const label = ({ name }: Slot): string => (name === undefined ? 'a context' : `session "${name}"`)

  const own = (slot: Slot): void => {
    if (slot.closed) throw new ContinuoError('MISUSE', 'The context is closed; create another.')
    if (slot.busy) throw new ContinuoError('MISUSE', 'The context is busy: submit() has it. Await that call first.')
  }

  /** Accounts for what the engine says of the context in memory. */
  const measure = (slot: Slot): void => {
    stats.residentBytes += slot.real!.bytes - slot.bytes
    slot.bytes = slot.real!.bytes
  }

  const arrived = (slot: Slot, real: Context): void => {
    slot.real = real
    slot.bytes = real.bytes
    stats.residentBytes += slot.bytes
    stats.resident += 1
    if (slot.page !== null) forget(slot)
  }

  const forget = (slot: Slot): void => {
    pages.drop(slot.page!)
    slot.page = null
    stats.paged -= 1
  }

  const left = (slot: Slot): void => {
    idle.delete(slot)
    slot.real!.close()
    slot.real = null
    stats.residentBytes -= slot.bytes
    stats.resident -= 1
  }

  /** Whether the context is away now. If not, it stays as it was. */
  const pageOut = (slot: Slot): boolean => {
    if (performance.now() < retryAt) return false
    const { pulse, origin, chain } = slot.real!
    let state: Uint8Array
    try {
      state = slot.real!.serialize()
    } catch (error) {
      // Its device was lost, say: there is nothing to keep, nor a reason to keep it here.
      slot.lost = error
      left(slot)
      return true
    }
    try {
      slot.page = pages.write(state)
    } catch (error) {
      stats.failures += 1
      retryAt = performance.now() + RETRY
      warn(`${messageOf(error)} The context stays in memory, above the bound of ${maxBytes} bytes.`)
      return false
    }
    slot.head = { pulse, origin, chain }
    left(slot)
    stats.paged += 1
    stats.pageOuts += 1
    return true
  }

  /** Whether `need` more bytes can be taken now. Where pages cannot be written the bound gives way: work goes on. */
  const makeRoom = (need: number): boolean => {
    while (stats.residentBytes + need > maxBytes) {
      const [oldest] = idle
      if (oldest === undefined) return false
      if (!pageOut(oldest)) return true
    }
    return true
  }

  const pageIn = (slot: Slot): void => {
    if (slot.lost !== null) throw slot.lost
    const real = model.createContext()
    try {
      if (slot.page !== null) real.restore(pages.read(slot.page, label(slot)), slot.head)
    } catch (error) {
      real.close()
      throw error
    }
    if (slot.page !== null) stats.pageIns += 1
    arrived(slot, real)
  }

  /** The context in memory, for a call that cannot wait; the bound is kept afterwards by `rest`. */
  const present = (slot: Slot): Context => {
    if (slot.real === null) {
      makeRoom(slot.bytes)
      pageIn(slot)
    }
    return slot.real!
  }

  const drain = (): void => {
    for (;;) {
      const [next] = waiting
      if (next === undefined || !mayEnter(next.slot)) return
      waiting.shift()
      try {
        enter(next.slot)
        next.enter()
      } catch (error) {
        next.slot.busy = false
        next.refuse(error)
      }
    }
  }

  /** The context is used no more for now. */
  const rest = (slot: Slot): void => {
    measure(slot)
    idle.delete(slot)
    if (!slot.broken) idle.add(slot)
    // One that is larger than the bound and alone would only go and come back with each call.
    if (stats.resident > 1) makeRoom(0)
    drain()
  }

  const mayEnter = ({ real, bytes }: Slot): boolean => real !== null || makeRoom(bytes) || active === 0

  const enter = (slot: Slot): void => {
    if (slot.real === null) pageIn(slot)
    idle.delete(slot)
    active += 1
  }

  const admitted = async (slot: Slot): Promise<void> => {
    slot.busy = true
    idle.delete(slot)
    if (slot.real !== null || (waiting.length === 0 && mayEnter(slot))) {
      try {
        return enter(slot)
      } catch (error) {
        slot.busy = false
        throw error
      }
    }
    return new Promise((resolve, reject) => waiting.push({ slot, enter: resolve, refuse: reject }))
  }

  const first = (): ContextHead & { readonly bytes: number } => {
    if (newborn !== null) return newborn
    const context = model.createContext()
    const { pulse, origin, chain, bytes } = context
    context.close()
    newborn = { pulse, origin, chain, bytes }
    return newborn
  }

  const createContext = (name?: string): Context => {
    const { bytes, ...head } = first()
    const slot: Slot = {
      name,
      real: null,
      page: null,
      head,
      bytes,
      busy: false,
      broken: false,
      lost: null,
      closed: false,
    }
    const context: Context = {
      get pulse() {
        return (slot.real ?? slot.head).pulse
      },
      get origin() {
        return (slot.real ?? slot.head).origin
      },
      get chain() {
        return (slot.real ?? slot.head).chain
      },
      get bytes() {
        return slot.bytes
      },
      reset() {
        own(slot)
        present(slot).reset()
        slot.broken = false
        rest(slot)
      },
      // What was told of a context that went to a page is gone with it.
      gates() {
        own(slot)
        return slot.real?.gates() ?? []
      },
      serialize() {
        own(slot)
        if (slot.real !== null) return slot.real.serialize()
        if (slot.page !== null) return pages.read(slot.page, label(slot))
        if (slot.lost !== null) throw slot.lost
        const context = model.createContext()
        try {
          return context.serialize()
        } finally {
          context.close()
        }
      },
      restore(state, head) {
        own(slot)
        if (slot.real !== null) slot.real.restore(state, head)
        else {
          makeRoom(slot.bytes)
          const real = model.createContext()
          try {
            real.restore(state, head)
          } catch (error) {
            real.close()
            throw error
          }
          arrived(slot, real)
        }
        slot.broken = false
        slot.lost = null
        rest(slot)
      },
      close() {
        own(slot)
        if (slot.real !== null) left(slot)
        if (slot.page !== null) forget(slot)
        slot.closed = true
        drain()
      },
    }
    slots.set(context, slot)
    return context
  }

  return {
    createContext,
    async submit(item) {
      const slot = slots.get(item.context)
      if (slot === undefined) throw new ContinuoError('MISUSE', 'The context was not made here; use createContext().')
      own(slot)
      await admitted(slot)
      try {
        return await model.submit({ ...item, context: slot.real! })
      } catch (error) {
        if (codeOf(error) === 'REFUSED' || codeOf(error) === 'UNAVAILABLE') slot.broken = true
        throw error
      } finally {
        active -= 1
        slot.busy = false
        rest(slot)
      }
    },
    stats,
    close: () => pages.close(),
  }
}
