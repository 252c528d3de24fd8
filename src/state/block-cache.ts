/**
 * Where the blocks are that may sleep (`SleepyBlocks`): what the external memories of a process have archived. Each
 * place has a bound, and where one is full, what was not used for longest leaves it.
 *
 *   full ───▶ in memory ───no room──▶ in a file of the process ───no room──▶ only where it is kept
 *                 ▲                              │                                    │
 *                 └────────────wanted────────────┴────────────────────────────────────┘
 *
 * A block is *kept* where its session's snapshot names it: in the blob store. Until then its file must stay. One that
 * is kept in a folder of this machine needs no file. No result depends on where a block is: whoever brings it checks
 * its sha256.
 */
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import type { BlockNews, KeptBlock, SleepyBlocks } from '../memory.ts'
import { openSpillFolder, type SpillFile } from './spill.ts'

/** Bounds and files of the cache of archived blocks. */
export interface BlockCacheOptions {
  /** Bytes of blocks in memory at most, but for those that are in use; default: 1 GiB. */
  readonly maxBytes?: number | undefined
  /**
   * Bytes of files at most; default: no bound. Where one would be too many, and nothing in them is kept, blocks stay in
   * memory.
   */
  readonly maxFileBytes?: number | undefined
  /** Where the folder of the files is made; default: the system's folder for temporary files. */
  readonly dir?: string | undefined
  /** Where to say that a file cannot be written; default: process.emitWarning. */
  readonly warn?: ((message: string) => void) | undefined
  /** Called for each block that came back. */
  readonly onRead?: ((tier: 'file' | 'store', seconds: number) => void) | undefined
}

/** Where archived blocks lie, and how often they were wanted. */
export interface BlockCacheStats {
  /** Of blocks in memory, and of files. */
  readonly bytes: number
  readonly fileBytes: number
  /** How often a block was used. */
  readonly uses: number
  /** Of these, how often it had been brought for that from a file, and from the blob store. */
  readonly fileUses: number
  readonly storeUses: number
  /** How often one was brought, used or not, and the bytes that were read for it. */
  readonly fileReads: number
  readonly storeReads: number
  readonly fileReadBytes: number
  readonly storeReadBytes: number
}

export interface BlockCache {
  readonly stats: BlockCacheStats
  /** These sleep, and are kept. Throws why one of them cannot be had, where that was found out before. */
  rest(numbers: ArrayLike<number>, kept: readonly KeptBlock[]): void
  /** These are kept from now on. */
  keep(numbers: ArrayLike<number>, kept: (at: number) => KeptBlock): void
  /** Removes the files. No block is brought any more. */
  close(): void
}

const DEFAULT_BYTES = 2 ** 30
/** Blocks that are brought at a time. */
const READS = 16
/** Time after which a trouble is told again, ms. */
const RETELL = 10_000
/** Damaged copies that are remembered. */
const MAX_LOST = 10_000

interface Entry {
  file: SpillFile | null
  kept: KeptBlock | null
  /** Why its only copy cannot be had: whoever wants it again is told the same. */
  lost?: unknown
}

const open = (
  port: SleepyBlocks,
  {
    maxBytes = DEFAULT_BYTES,
    maxFileBytes = Number.POSITIVE_INFINITY,
    dir,
    warn = (message) => process.emitWarning(message),
    onRead,
  }: BlockCacheOptions,
): BlockCache => {
  const folder = openSpillFolder(dir, { what: 'Archived blocks', flag: '--block-dir' })
  const size = port.blockBytes
  const entries = new Map<number, Entry>()
  /** In memory: the one that was used last is the last. */
  const awake = new Set<number>()
  /** With a file, in order of writing. */
  const filed = new Set<number>()
  /** Why a copy cannot be had. */
  const lost = new Map<string, unknown>()
  const wanted = new Set<number>()
  const counts = { uses: 0, fileUses: 0, storeUses: 0, fileReads: 0, storeReads: 0 }
  /** Brought, and not used since. */
  const brought = new Map<number, 'file' | 'store'>()
  let fileBytes = 0
  let reading = 0
  let evicting = false
  /** There was no room among the files, and since then none was dropped and no block was kept. */
  let isFull = false
  let closed = false
  let toldAt = Number.NEGATIVE_INFINITY

  const entryOf = (number: number): Entry => {
    const entry = entries.get(number) ?? { file: null, kept: null }
    entries.set(number, entry)
    return entry
  }

  const tell = (message: string): void => {
    if (performance.now() < toldAt + RETELL) return
    toldAt = performance.now()
    warn(message)
  }

  const dropFile = (number: number, entry: Entry): void => {
    if (entry.file === null) return
    fileBytes -= entry.file.bytes
    folder.drop(entry.file)
    entry.file = null
    filed.delete(number)
    isFull = false
  }

  /** Whether another file has its place now. */
  const hasRoom = (): boolean => {
    if (isFull) return false
    for (const number of filed) {
      if (fileBytes + size <= maxFileBytes) break
      const entry = entries.get(number)!
      if (entry.kept !== null) dropFile(number, entry)
    }
    isFull = fileBytes + size > maxFileBytes
    return !isFull
  }

  const writeFile = async (number: number, entry: Entry): Promise<void> => {
    if (!hasRoom()) {
      if (entry.kept === null)
        tell(
          `Files of archived blocks take ${fileBytes} bytes of ${maxFileBytes} (--block-dir-bytes), and nothing in them is in the blob store yet. Blocks stay in memory, above the bound of ${maxBytes} bytes (--block-cache-bytes).`,
        )
      return
    }
    fileBytes += size
    try {
      const bytes = port.copy(number)
      if (bytes === null) {
        fileBytes -= size
        return
      }
      const file = await folder.write(bytes)
      if (closed || entries.get(number) !== entry) {
        fileBytes -= size
        folder.drop(file)
        return
      }
      entry.file = file
      filed.add(number)
    } catch (error) {
      fileBytes -= size
      // The folder is gone then.
      if (!closed) tell(`${messageOf(error)} Archived blocks stay in memory, above the bound of ${maxBytes} bytes.`)
    }
  }

  /**
   * Has the block leave memory, where something else has its bytes and nobody needs it now. One that is needed is news
   * when it is not.
   */
  const leave = async (number: number): Promise<void> => {
    const entry = entryOf(number)
    if (entry.file === null && entry.kept?.isNear !== true) await writeFile(number, entry)
    // Its last context may have gone meanwhile.
    if (entries.get(number) !== entry) return
    if ((entry.file !== null || entry.kept !== null) && port.sleep(number)) awake.delete(number)
  }

  const evict = async (): Promise<void> => {
    if (evicting) return
    evicting = true
    try {
      for (const number of awake) {
        if (closed || awake.size * size <= maxBytes) break
        await leave(number)
      }
    } finally {
      evicting = false
    }
  }

  const fromFile = async (number: number, entry: Entry): Promise<Uint8Array | null> => {
    if (entry.file === null) return null
    try {
      return await folder.read(entry.file, 'an archived block')
    } catch (error) {
      dropFile(number, entry)
      if (entry.kept === null) entry.lost = error
      return null
    }
  }

  const fromStore = async ({ kept, lost: why }: Entry): Promise<Uint8Array> => {
    if (kept === null) throw why ?? new ContinuoError('INTERNAL', 'It is not known where an archived block lies.')
    try {
      return await kept.read()
    } catch (error) {
      if (codeOf(error) === 'REFUSED') {
        const [oldest] = lost.keys()
        if (lost.size === MAX_LOST) lost.delete(oldest!)
        lost.set(kept.key, error)
      }
      throw error
    }
  }

  const bring = async (number: number): Promise<void> => {
    const entry = entries.get(number)
    if (entry === undefined) {
      port.refuse(
        number,
        'It is not known where an archived block lies: the sessions or the worker that kept it were closed. Restore the session from a snapshot.',
      )
      return
    }
    const begin = performance.now()
    try {
      const near = await fromFile(number, entry)
      const bytes = near ?? (await fromStore(entry))
      const tier = near === null ? 'store' : 'file'
      counts[`${tier}Reads`] += 1
      onRead?.(tier, (performance.now() - begin) / 1000)
      brought.set(number, tier)
      port.wake(number, bytes)
      if (entries.get(number) === entry) awake.add(number)
    } catch (error) {
      port.refuse(number, messageOf(error))
    }
  }

  const bringNext = async (): Promise<void> => {
    if (reading === READS) return
    reading += 1
    for (const number of wanted) {
      if (closed) break
      wanted.delete(number)
      await bring(number)
    }
    reading -= 1
    void evict()
  }

  const heard = ({ full, used, wanted: asked, gone }: BlockNews): void => {
    for (const number of full) {
      entryOf(number)
      awake.add(number)
    }
    for (const number of used) {
      if (awake.delete(number)) awake.add(number)
      const tier = brought.get(number)
      if (tier !== undefined) counts[`${tier}Uses`] += 1
      brought.delete(number)
    }
    counts.uses += used.length
    for (const number of gone) {
      const entry = entries.get(number)
      if (entry !== undefined) dropFile(number, entry)
      entries.delete(number)
      awake.delete(number)
      wanted.delete(number)
      brought.delete(number)
    }
    for (const number of asked) wanted.add(number)
    for (let i = 0; i < Math.min(asked.length, READS); i += 1) void bringNext()
    void evict()
  }

  const listen = async (): Promise<void> => {
    for (;;) {
      const news = await port.news()
      const { full, used, wanted: asked, gone } = news
      if (closed || full.length + used.length + asked.length + gone.length === 0) return
      heard(news)
    }
  }
  void listen()

  return {
    stats: {
      get bytes() {
        return awake.size * size
      },
      get fileBytes() {
        return fileBytes
      },
      get uses() {
        return counts.uses
      },
      get fileUses() {
        return counts.fileUses
      },
      get storeUses() {
        return counts.storeUses
      },
      get fileReads() {
        return counts.fileReads
      },
      get storeReads() {
        return counts.storeReads
      },
      get fileReadBytes() {
        return counts.fileReads * size
      },
      get storeReadBytes() {
        return counts.storeReads * size
      },
    },
    rest(numbers, kept) {
      for (const { key } of kept) if (lost.has(key)) throw lost.get(key)
      for (const [at, block] of kept.entries()) entryOf(numbers[at]!).kept = block
    },
    keep(numbers, kept) {
      for (let at = 0; at < numbers.length; at += 1) {
        const entry = entries.get(numbers[at]!)
        if (entry !== undefined) entry.kept = kept(at)
      }
      isFull = false
      void evict()
    },
    close() {
      closed = true
      port.stop()
      folder.close()
    },
  }
}

/**
 * Of models whose blocks somebody has already: several owners of one model's contexts share its cache, with the bounds
 * of the first.
 */
const caches = new WeakMap<SleepyBlocks, { readonly cache: BlockCache; owners: number }>()

export const openBlockCache = (port: SleepyBlocks, options: BlockCacheOptions = {}): BlockCache => {
  const known = caches.get(port) ?? { cache: open(port, options), owners: 0 }
  caches.set(port, known)
  known.owners += 1
  let closed = false
  return {
    ...known.cache,
    close() {
      if (closed) return
      closed = true
      known.owners -= 1
      if (known.owners > 0) return
      caches.delete(port)
      known.cache.close()
    },
  }
}
