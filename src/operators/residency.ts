/**
 * Residency: which contexts are in memory. All contexts of a process are made here and processed here; together they take at
 * most `maxBytes`. A context that needs room has the idle one that was not used for longest spilled to a file (state/spill.ts); at
 * its next use the spilled one is a context of the engine again, with the same bytes, clock and chain.
 *
 *               use                   room                      settled
 *   spilled ───────────▶ waiting ────────────────▶ busy ─────────────────▶ idle ──▶ spilled
 *   idle ─────────────────────────────────────────▶                         ▲ │
 *                                                                           └─┘ reset, restore
 *
 * Busy contexts stay. Where they fill the bound, others wait for their turn, in order; one that is larger than the bound goes
 * alone. Callers get contexts like the engine's own, and cannot tell where the state of one is.
 */
import { cutParts } from '../engine/growth.ts'
import type { Context, ContextHead, Model, WorkItem, WorkResult } from '../engine/types.ts'
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import { openSpillFolder, type SpillFile } from '../state/spill.ts'

export interface ResidencyOptions {
  /** Bytes of contexts in memory at most; default: no bound. A context counts until its spill file is written. */
  readonly maxBytes?: number | undefined
  /** Where the folder of the spill files is made; default: the system's folder for temporary files. */
  readonly spillDir?: string | undefined
  /** Called when a context cannot be spilled and so stays in memory. */
  readonly warn?: (message: string) => void
}

export interface ResidencyStats {
  /** Memory of the contexts in memory. */
  readonly residentBytes: number
  /** Contexts in memory, and in spill files. */
  readonly resident: number
  readonly spilled: number
  /** So far. */
  readonly spillReads: number
  readonly spillWrites: number
  /** Attempts to write a spill file that failed. */
  readonly failures: number
}

export interface Residency {
  /** A context at its first state; it takes memory from its first use on. `name` stands in messages. */
  createContext(name?: string): Context
  /**
   * As `forkContext` of the model, of a context that was created here. One that is spilled is read back first. A fork that was spilled
   * comes back with memory of its own.
   */
  forkContext(context: Context, name?: string): Context
  /** As `submit` of the model, for a context that was created here. Rejects with `SpillLost` when its spill file is missing or was changed. */
  submit(item: WorkItem): Promise<WorkResult>
  readonly stats: ResidencyStats
  /** Removes the spill files, and with them the contexts that are in one. */
  close(): void
}

interface Slot {
  readonly name: string | undefined
  /** null: it is spilled, or nothing was ever fed to it. */
  real: Context | null
  spilled: SpillFile | null
  /** While it is not in memory. */
  head: ContextHead
  bytes: number
  busy: boolean
  /** Its state stopped being finite, or a call lost it; the engine takes only reset, restore and close, and spilling it would keep nothing. */
  broken: boolean
  /** Why its state is gone, found when it was to be spilled: the next use throws it. */
  lost: unknown
  closed: boolean
  /** This slot and those of the contexts that share blocks with it through forks. All of them hold the same set. */
  kin: Set<Slot>
}

interface Waiting {
  readonly slot: Slot
  readonly enter: () => void
  readonly refuse: (error: unknown) => void
}

/** Time in which memory is used instead, after a spill file could not be written, before the disk is tried again, ms. */
const RETRY = 1000

export const createResidency = (
  model: Pick<Model, 'createContext' | 'forkContext' | 'submit' | 'layout'>,
  {
    maxBytes = Number.POSITIVE_INFINITY,
    spillDir,
    warn = (message) => process.emitWarning(message),
  }: ResidencyOptions = {},
): Residency => {
  if (!(maxBytes > 0)) {
    throw new ContinuoError(
      'INVALID',
      `The bound of resident contexts is ${maxBytes}, expected a number of bytes above 0.`,
    )
  }
  const folder = openSpillFolder(spillDir)
  const slots = new WeakMap<Context, Slot>()
  /** In memory and free to go, in order of last use. */
  const idle = new Set<Slot>()
  const waiting: Waiting[] = []
  let initial: (ContextHead & { readonly bytes: number }) | null = null
  let active = 0
  let retryAt = Number.NEGATIVE_INFINITY
  const stats = { residentBytes: 0, resident: 0, spilled: 0, spillReads: 0, spillWrites: 0, failures: 0 }

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
    if (slot.spilled !== null) forget(slot)
  }

  const forget = (slot: Slot): void => {
    folder.drop(slot.spilled!)
    slot.spilled = null
    stats.spilled -= 1
  }

  const left = (slot: Slot): void => {
    idle.delete(slot)
    slot.real!.close()
    slot.real = null
    stats.residentBytes -= slot.bytes
    stats.resident -= 1
    recount(slot)
  }

  /** Memory that it counted and shared is counted by another context now: one that is busy is measured when it rests. */
  const recount = ({ kin }: Slot): void => {
    for (const slot of kin) {
      if (slot.real === null || slot.busy) continue
      measure(slot)
      return
    }
  }

  /** Returns whether the context has left memory; if not, it stays as it was. */
  const spill = (slot: Slot): boolean => {
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
      slot.spilled = folder.write(state)
    } catch (error) {
      stats.failures += 1
      retryAt = performance.now() + RETRY
      warn(`${messageOf(error)} The context stays in memory, above the bound of ${maxBytes} bytes.`)
      return false
    }
    slot.head = { pulse, origin, chain }
    left(slot)
    stats.spilled += 1
    stats.spillWrites += 1
    return true
  }

  /** Whether `need` more bytes can be taken now. Where spill files cannot be written the bound gives way: work goes on. */
  const makeRoom = (need: number): boolean => {
    while (stats.residentBytes + need > maxBytes) {
      const [oldest] = idle
      if (oldest === undefined) return false
      if (!spill(oldest)) return true
    }
    return true
  }

  const load = (slot: Slot): void => {
    if (slot.lost !== null) throw slot.lost
    const real = model.createContext()
    try {
      if (slot.spilled !== null) real.restore(folder.read(slot.spilled, label(slot)), slot.head)
    } catch (error) {
      real.close()
      throw error
    }
    if (slot.spilled !== null) stats.spillReads += 1
    arrived(slot, real)
  }

  /** The context in memory, for a call that cannot wait; the bound is kept afterwards by `rest`. */
  const present = (slot: Slot): Context => {
    if (slot.real === null) {
      makeRoom(slot.bytes)
      load(slot)
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
    if (slot.real === null) load(slot)
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
    if (initial !== null) return initial
    const context = model.createContext()
    const { pulse, origin, chain, bytes } = context
    context.close()
    initial = { pulse, origin, chain, bytes }
    return initial
  }

  /** The state of a context that is not in memory. */
  const outside = (slot: Slot): Uint8Array => {
    if (slot.spilled !== null) return folder.read(slot.spilled, label(slot))
    if (slot.lost !== null) throw slot.lost
    const context = model.createContext()
    try {
      return context.serialize()
    } finally {
      context.close()
    }
  }

  const slotOf = (name: string | undefined): Slot => {
    const { bytes, ...head } = first()
    const slot: Slot = {
      name,
      real: null,
      spilled: null,
      head,
      bytes,
      busy: false,
      broken: false,
      lost: null,
      closed: false,
      kin: new Set(),
    }
    slot.kin.add(slot)
    return slot
  }

  const contextOf = (slot: Slot): Context => {
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
      // Gates are counted by the engine's context, and that was closed when this one was spilled.
      gates() {
        own(slot)
        return slot.real?.gates() ?? []
      },
      serialize() {
        own(slot)
        return slot.real === null ? outside(slot) : slot.real.serialize()
      },
      capture(known) {
        own(slot)
        return slot.real === null ? cutParts(model.layout, outside(slot), known) : slot.real.capture(known)
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
        if (slot.spilled !== null) forget(slot)
        slot.closed = true
        slot.kin.delete(slot)
        drain()
      },
    }
    slots.set(context, slot)
    return context
  }

  const knownSlot = (context: Context): Slot => {
    const slot = slots.get(context)
    if (slot === undefined) throw new ContinuoError('MISUSE', 'The context was not made here; use createContext().')
    own(slot)
    return slot
  }

  return {
    createContext: (name) => contextOf(slotOf(name)),
    forkContext(context, name) {
      const parent = knownSlot(context)
      const child = slotOf(name)
      if (parent.lost !== null) throw parent.lost
      if (parent.real === null && parent.spilled === null) return contextOf(child)
      const source = present(parent)
      // Until both are there: the child that arrives must not have its parent spilled.
      idle.delete(parent)
      try {
        const real = model.forkContext(source)
        parent.kin.add(child)
        child.kin = parent.kin
        arrived(child, real)
        rest(child)
      } finally {
        rest(parent)
      }
      return contextOf(child)
    },
    async submit(item) {
      const slot = knownSlot(item.context)
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
    close: () => folder.close(),
  }
}
