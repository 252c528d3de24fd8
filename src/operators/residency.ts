/**
 * Residency: which contexts are in memory. All contexts of a process are made here and processed here; together they take at
 * most `maxBytes`. A context that needs room has the idle one that was not used for longest spilled to files (state/pages.ts); at
 * its next use the spilled one is a context of the engine again, with the same bytes, clock and chain.
 *
 *                use                    room                      settled          another needs room
 *   outside ───────────▶ waiting ────────────────▶ busy ─────────────────▶ idle ──────────────────────▶ leaving ──▶ outside
 *   idle ──────────────────────────────────────────▶
 *
 * Busy contexts stay. Where they fill the bound, others wait for their turn, in order; one that is larger than the bound goes
 * alone. A context counts until its spill file is written, and one that comes counts from when it was let in. Copying, hashing, reading and
 * writing go on beside the event loop. Callers get contexts like the engine's own, and cannot tell where the state of one is.
 */
import { giveBack } from '../bulk.ts'
import type { Context, ContextHead, EngineContext, Model, WorkItem, WorkResult } from '../engine/types.ts'
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import type { StateParts } from '../memory.ts'
import { createPages, type Pages } from '../state/pages.ts'
import { openSpillFolder } from '../state/spill.ts'
import { createQueue } from './queue.ts'

/** Where contexts are made. */
export interface Contexts {
  createContext(): Context
  /** As `forkContext` of the model, of a context that was made here. */
  forkContext(context: Context): Context | Promise<Context>
}

export interface ResidencyOptions {
  /** Bytes of contexts in memory at most; default: no bound. A context counts until its spill file is written. */
  readonly maxBytes?: number | undefined
  /** Bytes of spill files at most; default: no bound. Where one would be too many, its context stays in memory above that bound. */
  readonly maxSpillBytes?: number | undefined
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
  /** Of all spill files: those of contexts that are in one, and blocks that contexts in memory would not have to write again. */
  readonly spillBytes: number
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
  forkContext(context: Context, name?: string): Promise<Context>
  /** As `submit` of the model, for a context that was created here. Rejects with `SpillLost` when its spill file is missing or was changed. */
  submit(item: WorkItem): Promise<WorkResult>
  readonly stats: ResidencyStats
  /** Removes the spill files, and with them the contexts that are in one. Resolves when none is being written any more. */
  close(): Promise<void>
}

interface Slot {
  readonly name: string | undefined
  /** null: it is spilled, or nothing was ever fed to it since `head`. */
  real: EngineContext | null
  /** What of it lies in files. It is spilled where the hot part does. */
  pages: Pages
  /** While it is not in memory. */
  head: ContextHead
  bytes: number
  /** A call has it, or waits for it. */
  busy: boolean
  /** A call has it in memory, or on its way there. */
  active: boolean
  /** Settles when its spill file is written, or could not be. */
  leaving: Promise<void> | null
  /** Its state stopped being finite, or a call lost it; the engine takes only load, restart and close, and spilling it would keep nothing. */
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
}

/** Time in which memory is used instead, after a spill file could not be written, before the disk is tried again, ms. */
const RETRY = 1000

export const createResidency = (
  model: Pick<Model, 'createContext' | 'openContext' | 'forkContext' | 'submit' | 'layout'>,
  {
    maxBytes = Number.POSITIVE_INFINITY,
    maxSpillBytes = Number.POSITIVE_INFINITY,
    spillDir,
    warn = (message) => process.emitWarning(message),
  }: ResidencyOptions = {},
): Residency => {
  const bounds = { 'resident contexts': maxBytes, 'spill files': maxSpillBytes }
  for (const [what, bound] of Object.entries(bounds))
    if (!(bound > 0))
      throw new ContinuoError('INVALID', `The bound of ${what} is ${bound}, expected a number of bytes above 0.`)
  const folder = openSpillFolder(spillDir)
  const files = createPages(model.layout, folder, maxSpillBytes)
  const slots = new WeakMap<Context, Slot>()
  /** In memory and free to go, in order of last use. */
  const idle = new Set<Slot>()
  const leaving = new Set<Slot>()
  const waiting = createQueue<Waiting>()
  /** Memory of all that wait. */
  let wanted = 0
  let initial: (ContextHead & { readonly bytes: number }) | null = null
  /** Contexts in memory, or on their way there, that calls have. */
  let active = 0
  /** Memory of those on their way there. */
  let coming = 0
  let retryAt = Number.NEGATIVE_INFINITY
  let closed = false
  const stats = {
    residentBytes: 0,
    resident: 0,
    spilled: 0,
    get spillBytes() {
      return files.bytes
    },
    spillReads: 0,
    spillWrites: 0,
    failures: 0,
  }

  const label = ({ name }: Slot): string => (name === undefined ? 'a context' : `session "${name}"`)

  const own = (slot: Slot): void => {
    if (slot.closed) throw new ContinuoError('MISUSE', 'The context is closed; create another.')
    if (slot.busy) throw new ContinuoError('MISUSE', 'The context is busy: another call has it. Await that call first.')
  }

  /** Accounts for what the engine says of the context in memory. */
  const measure = (slot: Slot): void => {
    stats.residentBytes += slot.real!.bytes - slot.bytes
    slot.bytes = slot.real!.bytes
  }

  const arrived = (slot: Slot, real: EngineContext): void => {
    slot.real = real
    slot.bytes = real.bytes
    stats.residentBytes += slot.bytes
    stats.resident += 1
    forget(slot)
  }

  /** It is not spilled any more. Its blocks keep their files, for the next time. */
  const forget = ({ pages }: Slot): void => {
    if (pages.hot === null) return
    files.cool(pages)
    stats.spilled -= 1
  }

  /** What it was is of no use any more. */
  const clear = (slot: Slot): void => {
    forget(slot)
    files.clear(slot.pages)
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
      if (slot.real === null || slot.busy || slot.leaving !== null) continue
      measure(slot)
      return
    }
  }

  /** Writes a context to files and takes it out of memory; where that fails, it stays as it was. */
  const written = async (slot: Slot): Promise<void> => {
    const { pulse, origin, chain } = slot.real!
    let parts: StateParts
    try {
      parts = await slot.real!.capture(files.leave(slot.pages))
    } catch (error) {
      // Its device was lost, say: there is nothing to keep, nor a reason to keep it here.
      slot.lost = error
      left(slot)
      return
    }
    try {
      await files.write(slot.pages, parts)
    } catch (error) {
      if (slot.closed) {
        clear(slot)
        return left(slot)
      }
      idle.add(slot)
      if (closed) return
      stats.failures += 1
      retryAt = performance.now() + RETRY
      warn(`${messageOf(error)} The context stays in memory, above the bound of ${maxBytes} bytes.`)
      return
    }
    slot.head = { pulse, origin, chain }
    left(slot)
    stats.spilled += 1
    stats.spillWrites += 1
    if (slot.closed) clear(slot)
  }

  const spill = (slot: Slot): void => {
    idle.delete(slot)
    leaving.add(slot)
    slot.leaving = written(slot).then(() => {
      slot.leaving = null
      leaving.delete(slot)
      if (slot.busy) idle.delete(slot)
      drain()
    })
  }

  /** Has idle contexts spilled until there is room for all that wait, or none is idle: one in use does not go before those that wait. */
  const makeRoom = (): void => {
    if (performance.now() < retryAt) return
    let going = [...leaving].reduce((sum, { bytes }) => sum + bytes, 0)
    for (const oldest of idle) {
      if (stats.residentBytes - going + coming + wanted <= maxBytes) return
      going += oldest.bytes
      spill(oldest)
    }
  }

  /** Whether a context of so many bytes can come now. Where spill files cannot be written the bound gives way: work goes on. */
  const mayEnter = (need: number): boolean => {
    if (stats.residentBytes + coming + need <= maxBytes) return true
    makeRoom()
    return leaving.size === 0 && (active === 0 || performance.now() < retryAt)
  }

  const activate = (slot: Slot): void => {
    slot.active = true
    active += 1
  }

  const drain = (): void => {
    for (let next = waiting.first; next !== undefined && mayEnter(next.slot.bytes); next = waiting.first) {
      waiting.delete(next)
      wanted -= next.slot.bytes
      activate(next.slot)
      coming += next.slot.bytes
      next.enter()
    }
  }

  /** The state of a context that is not in memory becomes one of the engine's. */
  const opened = async (slot: Slot): Promise<EngineContext> => {
    if (slot.lost !== null) throw slot.lost
    if (slot.pages.hot === null) return model.openContext(null, slot.head)
    const state = await files.read(slot.pages, label(slot))
    const real = await model.openContext(state, slot.head)
    giveBack(state)
    stats.spillReads += 1
    return real
  }

  /** Has the context in memory for a call: where its state is outside, waits for room and takes what `open` makes of it. */
  const bring = async (slot: Slot, open: (slot: Slot) => Promise<EngineContext>): Promise<void> => {
    if (slot.real !== null) return activate(slot)
    await new Promise<void>((resolve) => {
      wanted += slot.bytes
      waiting.add({ slot, enter: resolve })
      drain()
    })
    const reserved = slot.bytes
    try {
      arrived(slot, await open(slot))
    } finally {
      coming -= reserved
    }
  }

  /** The context is used no more for now. */
  const rest = (slot: Slot): void => {
    slot.busy = false
    if (slot.active) active -= 1
    slot.active = false
    if (slot.real !== null) {
      measure(slot)
      idle.delete(slot)
      if (!slot.broken) idle.add(slot)
      // One that is larger than the bound and alone would only go and come back with each call.
      if (stats.resident > 1) makeRoom()
    }
    drain()
  }

  /** Runs a call that has the context to itself, wherever its state is. */
  const alone = async <T>(slot: Slot, call: () => Promise<T>): Promise<T> => {
    own(slot)
    slot.busy = true
    idle.delete(slot)
    try {
      // No gap in which others could not see that it is in use.
      if (slot.leaving !== null) await slot.leaving
      return await call()
    } finally {
      rest(slot)
    }
  }

  /** The same with the context in memory. */
  const present = <T>(slot: Slot, call: (real: EngineContext) => Promise<T>, open = opened): Promise<T> =>
    alone(slot, async () => {
      await bring(slot, open)
      return call(slot.real!)
    })

  /** A copy: `outside` makes it of the files, where the context is in them, and then it stays there. */
  const copied = <T>(
    slot: Slot,
    inside: (real: EngineContext) => Promise<T>,
    outside: (pages: Pages, who: string) => Promise<T>,
  ): Promise<T> =>
    alone(slot, async () => {
      if (slot.real !== null) {
        activate(slot)
        return inside(slot.real)
      }
      if (slot.lost !== null) throw slot.lost
      if (slot.pages.hot !== null) return outside(slot.pages, label(slot))
      const context = await model.openContext(null, slot.head)
      try {
        return await inside(context)
      } finally {
        context.close()
      }
    })

  const first = (): ContextHead & { readonly bytes: number } => {
    if (initial !== null) return initial
    const context = model.createContext()
    const { pulse, origin, chain, bytes } = context
    context.close()
    initial = { pulse, origin, chain, bytes }
    return initial
  }

  const slotOf = (name: string | undefined): Slot => {
    const { bytes, ...head } = first()
    const slot: Slot = {
      name,
      real: null,
      pages: files.none(),
      head,
      bytes,
      busy: false,
      active: false,
      leaving: null,
      broken: false,
      lost: null,
      closed: false,
      kin: new Set(),
    }
    slot.kin.add(slot)
    return slot
  }

  const mended = (slot: Slot): void => {
    slot.broken = false
    slot.lost = null
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
      // Gates are counted by the engine's context, and that is closed when this one is spilled.
      gates() {
        own(slot)
        return slot.leaving === null ? (slot.real?.gates() ?? []) : []
      },
      async state() {
        return copied(slot, (real) => real.state(), files.read)
      },
      async capture(known) {
        return copied(
          slot,
          (real) => real.capture(known),
          (pages, who) => files.capture(pages, known, who),
        )
      },
      async load(state, head) {
        if (state !== null || slot.real !== null || slot.leaving !== null) {
          let made = false
          const open = (): Promise<EngineContext> => {
            made = true
            return model.openContext(state, head)
          }
          const loaded = async (real: EngineContext): Promise<void> => {
            if (!made) await real.load(state, head)
            files.clear(slot.pages)
            mended(slot)
          }
          await present(slot, loaded, open)
        } else {
          // The first state takes no memory before it is used.
          own(slot)
          clear(slot)
          slot.bytes = first().bytes
          slot.head = { pulse: head.pulse, origin: head.origin, chain: head.chain }
          mended(slot)
        }
      },
      async restart() {
        // What is outside is not read for this: its head says where the clock stands.
        const fresh = (): Promise<EngineContext> => model.openContext(null, slot.head)
        await present(
          slot,
          async (real) => {
            await real.restart()
            files.clear(slot.pages)
            mended(slot)
          },
          fresh,
        )
      },
      close() {
        own(slot)
        slot.closed = true
        slot.kin.delete(slot)
        // One that is leaving goes when it has left.
        if (slot.leaving !== null) return
        if (slot.real !== null) left(slot)
        clear(slot)
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
    async forkContext(context, name) {
      const parent = knownSlot(context)
      const child = slotOf(name)
      if (parent.lost !== null) throw parent.lost
      if (parent.real === null && parent.pages.hot === null) {
        child.head = parent.head
        return contextOf(child)
      }
      return present(parent, async (from) => {
        const real = model.forkContext(from)
        parent.kin.add(child)
        child.kin = parent.kin
        child.pages = files.share(parent.pages)
        arrived(child, real)
        rest(child)
        return contextOf(child)
      })
    },
    async submit(item) {
      const slot = knownSlot(item.context)
      return present(slot, async (context) => {
        try {
          return await model.submit({ ...item, context })
        } catch (error) {
          if (codeOf(error) === 'REFUSED' || codeOf(error) === 'UNAVAILABLE') slot.broken = true
          throw error
        }
      })
    },
    stats,
    async close() {
      closed = true
      await Promise.all([...leaving].map((slot) => slot.leaving))
      folder.close()
    },
  }
}
