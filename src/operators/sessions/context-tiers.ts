/**
 * The tiers below a device on which the contexts of a process stand: memory, files, and what their owners keep
 * elsewhere, which for a worker is the log. (Between device and memory the engine moves blocks by itself:
 * native/runtime/model/device.h.) Each tier has a bound, and one rule for all: where one is full, what was not used for
 * longest goes one tier down.
 *
 *                use                    room                      settled          another needs room
 *   outside ───────────▶ waiting ────────────────▶ busy ─────────────────▶ idle ──────────────────────▶ leaving ──▶ outside
 *   idle ──────────────────────────────────────────▶                                          outside ──files full──▶ released
 *
 * Busy contexts stay. Where they fill the memory, others wait for their turn, in order; one that is larger than the
 * bound goes alone. A context counts until its files are written, and one that comes counts from when it was let in.
 * What moves to files are blocks (state/pages.ts). Copying, hashing, reading and writing go on beside the event loop.
 */
import { giveBack } from '../../bulk.ts'
import type { ContextHead, EngineContext } from '../../engine/context.ts'
import type { Model } from '../../engine/types.ts'
import { ContinuoError, messageOf } from '../../errors.ts'
import type { StateParts } from '../../memory.ts'
import { createPages, type PageFiles, type Pages, SpillFull } from '../../state/pages.ts'
import { openSpillFolder } from '../../state/spill.ts'
import { createQueue } from '../pipeline/queue.ts'

export interface ContextTiersOptions {
  /** Bytes of contexts in memory at most; default: no bound. A context counts until its spill file is written. */
  readonly maxBytes?: number | undefined
  /**
   * Bytes of spill files at most; default: no bound. Where one would be too many, its context stays in memory above
   * that bound.
   */
  readonly maxSpillBytes?: number | undefined
  /** Where the folder of the spill files is made; default: the system's folder for temporary files. */
  readonly spillDir?: string | undefined
  /** Called when a context cannot be spilled and so stays in memory. */
  readonly warn?: (message: string) => void
}

/** How much lies on the tiers of memory and spill files. */
export interface ContextTiersStats {
  /** Memory of the contexts in memory. */
  readonly residentBytes: number
  /** Contexts in memory, and in spill files. */
  readonly resident: number
  /** Contexts in spill files. */
  readonly spilled: number
  /**
   * Of all spill files: those of contexts that are in one, and blocks that contexts in memory would not have to write
   * again.
   */
  readonly spillBytes: number
  /** So far. */
  readonly spillReads: number
  /** Contexts written to spill files so far. */
  readonly spillWrites: number
  /** Attempts to write a spill file that failed. */
  readonly failures: number
}

/** A context, wherever it is. */
export interface Entry {
  readonly name: string | undefined
  /** Asks its owner to close it. Whether it does so, at once or as soon as its state is kept elsewhere. */
  readonly release: () => boolean
  /** null: it is spilled, or nothing was ever fed to it since `head`. */
  real: EngineContext | null
  /** What of it lies in files. It is spilled where the hot part does. */
  pages: Pages
  /** Of one in files: its blocks that may sleep. */
  held: ReturnType<EngineContext['held']>
  /** While it is not in memory. */
  head: ContextHead
  bytes: number
  /** A call has it, or waits for it. */
  busy: boolean
  /** A call has it in memory, or on its way there. */
  active: boolean
  /** Settles when its spill file is written, or could not be. */
  leaving: Promise<void> | null
  /**
   * Its state stopped being finite, or a call lost it; the engine takes only load, restart and close, and spilling it
   * would keep nothing.
   */
  broken: boolean
  /** Why its state is gone, found when it was to be spilled: the next use throws it. */
  lost: unknown
  closed: boolean
  /** This entry and those of the contexts that share blocks with it through forks. All of them hold the same set. */
  kin: Set<Entry>
}

export interface ContextTiers {
  readonly files: PageFiles
  readonly stats: ContextTiersStats
  /** A context in its first state, which takes no memory before it is used. */
  add(name: string | undefined, release: () => boolean): Entry
  /** Clock, chain and memory of a context in its first state. */
  first(): ContextHead & { readonly bytes: number }
  /** Throws MISUSE for a context that is closed or that a call has. */
  own(entry: Entry): void
  /**
   * Runs a call that has the context to itself and in memory. `open` makes it of what is outside; default: with the
   * state that it had.
   */
  present<T>(
    entry: Entry,
    call: (real: EngineContext) => Promise<T>,
    open?: (entry: Entry) => Promise<EngineContext>,
  ): Promise<T>
  /** Runs a call that only looks: `outside` gets the files of a context that is in them, and it stays there. */
  looking<T>(
    entry: Entry,
    inside: (real: EngineContext) => Promise<T>,
    outside: (pages: Pages, who: string) => Promise<T>,
  ): Promise<T>
  /** It is in memory, as this context of the engine, and idle: a fork of one that is. */
  born(entry: Entry, real: EngineContext): void
  /** What it has in files is of no use any more: it begins anew. */
  clear(entry: Entry): void
  /** It is gone. */
  remove(entry: Entry): void
  /**
   * Removes the spill files, and with them the contexts that are in one. Resolves when none is being written any more.
   */
  close(): Promise<void>
}

interface Waiting {
  readonly entry: Entry
  readonly enter: () => void
}

/**
 * Time in which memory is used instead, after a spill file could not be written, before the disk is tried again, ms.
 */
const RETRY = 1000
/**
 * Contexts with so many bytes together may be on their way to files, or a single larger context: each is copied for
 * that.
 */
const LEAVING_BYTES = 1 << 28

export const createContextTiers = (
  model: Pick<Model, 'createContext' | 'openContext' | 'forkContext' | 'layout'>,
  {
    maxBytes = Number.POSITIVE_INFINITY,
    maxSpillBytes = Number.POSITIVE_INFINITY,
    spillDir,
    warn = (message) => process.emitWarning(message),
  }: ContextTiersOptions = {},
): ContextTiers => {
  const bounds = { 'resident contexts': maxBytes, 'spill files': maxSpillBytes }
  for (const [what, bound] of Object.entries(bounds))
    if (!(bound > 0))
      throw new ContinuoError('INVALID', `The bound of ${what} is ${bound}, expected a number of bytes above 0.`)
  const folder = openSpillFolder(spillDir, { what: 'Contexts', flag: '--spill-dir' })
  const anySleeps = model.layout.growth.some(({ sleeps }) => sleeps)
  const files = createPages(model.layout, folder, maxSpillBytes)
  /** In memory and free to go, in order of last use. */
  const idle = new Set<Entry>()
  const leaving = new Set<Entry>()
  /** In files: the one that left first is the first. */
  const outside = new Set<Entry>()
  const waiting = createQueue<Waiting>()
  /** Memory of all that wait. */
  let wanted = 0
  let initial: (ContextHead & { readonly bytes: number }) | null = null
  /** Contexts in memory, or on their way there, that calls have. */
  let active = 0
  /** Memory of those on their way there. */
  let coming = 0
  let retryAt = Number.NEGATIVE_INFINITY
  /** There was no room among the files, and none was read back or closed since. */
  let isFull = false
  let toldAt = Number.NEGATIVE_INFINITY
  let closed = false
  const stats = {
    residentBytes: 0,
    resident: 0,
    get spilled() {
      return outside.size
    },
    get spillBytes() {
      return files.bytes
    },
    spillReads: 0,
    spillWrites: 0,
    failures: 0,
  }

  const label = ({ name }: Entry): string => (name === undefined ? 'a context' : `session "${name}"`)

  const own = (entry: Entry): void => {
    if (entry.closed) throw new ContinuoError('MISUSE', 'The context is closed; create another.')
    if (entry.busy)
      throw new ContinuoError('MISUSE', 'The context is busy: another call has it. Await that call first.')
  }

  /** Accounts for what the engine says of the context in memory. */
  const measure = (entry: Entry): void => {
    const { bytes } = entry.real!
    stats.residentBytes += bytes - entry.bytes
    entry.bytes = bytes
  }

  const arrived = (entry: Entry, real: EngineContext): void => {
    entry.real = real
    entry.bytes = real.bytes
    stats.residentBytes += entry.bytes
    stats.resident += 1
    forget(entry)
  }

  /** It is not spilled any more. Its blocks keep their files, for the next time. */
  const forget = (entry: Entry): void => {
    if (entry.pages.hot === null) return
    files.cool(entry.pages)
    letGo(entry)
    outside.delete(entry)
    isFull = false
  }

  const letGo = (entry: Entry): void => {
    entry.held?.drop()
    entry.held = null
  }

  /** What it was is of no use any more. */
  const clear = (entry: Entry): void => {
    files.clear(entry.pages)
    letGo(entry)
    outside.delete(entry)
    isFull = false
  }

  const left = (entry: Entry): void => {
    idle.delete(entry)
    entry.real!.close()
    entry.real = null
    stats.residentBytes -= entry.bytes
    stats.resident -= 1
    recount(entry)
  }

  /**
   * Memory that it counted and shared is counted by another context now: one that is busy is measured when it rests.
   */
  const recount = ({ kin }: Entry): void => {
    for (const entry of kin) {
      if (entry.real === null || entry.busy || entry.leaving !== null) continue
      measure(entry)
      return
    }
  }

  /**
   * Files have no room for so many bytes more: owners of contexts in them are asked, the oldest first. Work goes on
   * above the bound.
   */
  const filesFull = (bytes: number): void => {
    isFull = outside.size + leaving.size > 0
    // Where nothing is in files, nor on its way there, nobody will tell that there is room.
    if (!isFull) retryAt = performance.now() + RETRY
    let asked = 0
    for (const entry of [...outside]) {
      if (asked >= bytes) return
      if (!entry.busy && entry.release()) asked += entry.pages.hot?.bytes ?? entry.bytes
    }
    if (asked > 0 || performance.now() < toldAt + RETRY) return
    toldAt = performance.now()
    stats.failures += 1
    warn(
      `Spill files take ${files.bytes} bytes of ${maxSpillBytes} (--max-spill-bytes), and nothing in them may go. Contexts stay in memory, above the bound of ${maxBytes} bytes.`,
    )
  }

  /**
   * Writes a context to files and takes it out of memory. Where that fails it stays as it was, and this gives the
   * error.
   */
  const written = async (entry: Entry): Promise<unknown> => {
    const { pulse, origin, chain } = entry.real!
    let parts: StateParts
    try {
      parts = await entry.real!.capture({ pulse: Number(pulse), ends: files.leave(entry.pages) })
      entry.held = entry.real!.held()
    } catch (error) {
      // Its device was lost, say: there is nothing to keep, nor a reason to keep it here.
      entry.lost = error
      left(entry)
      clear(entry)
      return null
    }
    try {
      await files.write(entry.pages, parts)
    } catch (error) {
      if (!entry.closed) {
        letGo(entry)
        return error
      }
      left(entry)
      clear(entry)
      return null
    }
    entry.head = { pulse, origin, chain }
    left(entry)
    outside.add(entry)
    // Its owner can be asked now.
    isFull = false
    stats.spillWrites += 1
    if (entry.closed) clear(entry)
    return null
  }

  /** A context could not be written. */
  const stayed = (error: unknown): void => {
    if (error instanceof SpillFull) {
      filesFull(error.missing)
      return
    }
    stats.failures += 1
    retryAt = performance.now() + RETRY
    warn(`${messageOf(error)} The context stays in memory, above the bound of ${maxBytes} bytes.`)
  }

  const spill = (entry: Entry): void => {
    idle.delete(entry)
    leaving.add(entry)
    entry.leaving = written(entry).then((error) => {
      entry.leaving = null
      leaving.delete(entry)
      if (entry.real !== null && !entry.busy) idle.add(entry)
      if (error !== null && !closed) stayed(error)
      settle()
    })
  }

  /**
   * Has idle contexts spilled until there is room for all that wait, or none is idle: one in use does not go before
   * those that wait.
   */
  const makeRoom = (): void => {
    if (closed || isFull || performance.now() < retryAt) return
    let going = [...leaving].reduce((sum, { bytes }) => sum + bytes, 0)
    for (const oldest of idle) {
      if (stats.residentBytes - going + coming + wanted <= maxBytes) return
      if (going > 0 && going + oldest.bytes > LEAVING_BYTES) return
      going += oldest.bytes
      spill(oldest)
    }
  }

  /**
   * Whether a context of so many bytes can come now. Where spill files cannot be written the bound gives way: work goes
   * on.
   */
  const mayEnter = (need: number): boolean => {
    if (stats.residentBytes + coming + need <= maxBytes) return true
    makeRoom()
    return leaving.size === 0 && (active === 0 || isFull || performance.now() < retryAt)
  }

  const activate = (entry: Entry): void => {
    entry.active = true
    active += 1
  }

  const drain = (): void => {
    for (let next = waiting.first; next !== undefined && mayEnter(next.entry.bytes); next = waiting.first) {
      waiting.delete(next)
      wanted -= next.entry.bytes
      activate(next.entry)
      coming += next.entry.bytes
      next.enter()
    }
  }

  /**
   * A context in memory that shares first blocks with this one through forks, and the number of shared blocks of each
   * table; null where there is no such context.
   */
  const sharing = (entry: Entry): { real: EngineContext; kept: readonly number[] } | null => {
    for (const { real, busy, leaving: goes, broken, pages } of entry.kin) {
      if (real === null || busy || goes !== null || broken) continue
      const kept = files.common(entry.pages, pages)
      if (kept.every((count) => count === 0)) continue
      try {
        return { real: model.forkContext(real), kept }
      } catch {
        // Its device was lost, say. Then every block is read.
        return null
      }
    }
    return null
  }

  /** The state of a context that is not in memory becomes one of the engine's. */
  const opened = async (entry: Entry): Promise<EngineContext> => {
    if (entry.lost !== null) throw entry.lost
    if (entry.pages.hot === null) return model.openContext(null, entry.head)
    // Before anything else has its turn: the other context may be used or go from then on.
    const kin = sharing(entry)
    try {
      const parts = await files.source(entry.pages, label(entry), kin?.kept)
      const source = { ...parts, ...(entry.held && { held: entry.held.blocks }) }
      const real = kin?.real ?? (await model.openContext(source, entry.head))
      await kin?.real.load(source, entry.head)
      giveBack(source.hot)
      stats.spillReads += 1
      return real
    } catch (error) {
      kin?.real.close()
      throw error
    }
  }

  /**
   * Has the context in memory for a call: where its state is outside, waits for room and takes what `open` makes of it.
   */
  const bring = async (entry: Entry, open: (entry: Entry) => Promise<EngineContext>): Promise<void> => {
    if (entry.real !== null) return activate(entry)
    await new Promise<void>((resolve) => {
      wanted += entry.bytes
      waiting.add({ entry, enter: resolve })
      drain()
    })
    const reserved = entry.bytes
    try {
      arrived(entry, await open(entry))
    } finally {
      coming -= reserved
    }
  }

  /** Something came to rest, or left. */
  const settle = (): void => {
    // One that is larger than the bound and alone would only go and come back with each call.
    if (stats.resident > 1) makeRoom()
    drain()
  }

  /** The context is used no more for now. */
  const rest = (entry: Entry): void => {
    entry.busy = false
    if (entry.active) active -= 1
    entry.active = false
    if (entry.real !== null) {
      measure(entry)
      idle.delete(entry)
      if (!entry.broken) idle.add(entry)
    }
    settle()
  }

  /** Runs a call that has the context to itself, wherever its state is. */
  const alone = async <T>(entry: Entry, call: () => Promise<T>): Promise<T> => {
    own(entry)
    entry.busy = true
    idle.delete(entry)
    try {
      // No gap in which others could not see that it is in use.
      if (entry.leaving !== null) await entry.leaving
      return await call()
    } finally {
      rest(entry)
    }
  }

  const present = <T>(entry: Entry, call: (real: EngineContext) => Promise<T>, open = opened): Promise<T> =>
    alone(entry, async () => {
      await bring(entry, open)
      return call(entry.real!)
    })

  const looking = <T>(
    entry: Entry,
    inside: (real: EngineContext) => Promise<T>,
    outside: (pages: Pages, who: string) => Promise<T>,
  ): Promise<T> =>
    alone(entry, async () => {
      if (entry.real !== null) {
        activate(entry)
        return inside(entry.real)
      }
      if (entry.lost !== null) throw entry.lost
      if (entry.pages.hot !== null && !anySleeps) return outside(entry.pages, label(entry))
      const context = await opened(entry)
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

  return {
    files,
    stats,
    first,
    own,
    present,
    looking,
    clear,
    add(name, release) {
      const { bytes, ...head } = first()
      const flags = { busy: false, active: false, broken: false, closed: false }
      const empty = { real: null, held: null, leaving: null, lost: null }
      const entry: Entry = { name, release, pages: files.none(), head, bytes, kin: new Set(), ...flags, ...empty }
      entry.kin.add(entry)
      return entry
    },
    born(entry, real) {
      arrived(entry, real)
      rest(entry)
    },
    remove(entry) {
      own(entry)
      entry.closed = true
      entry.kin.delete(entry)
      // One that is leaving goes when it has left.
      if (entry.leaving !== null) return
      if (entry.real !== null) left(entry)
      clear(entry)
      settle()
    },
    async close() {
      closed = true
      await Promise.all([...leaving].map((entry) => entry.leaving))
      folder.close()
    },
  }
}
