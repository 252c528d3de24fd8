/**
 * What is alive in an append-only log of state, and what is not. The newest record of each key is live; older ones are
 * dead. When the dead outweigh the living, the oldest living are written again at the end (compacted) and the log is
 * trimmed behind them: restore cost follows what is alive, not history, and no log compaction is needed.
 *
 * Keys stand in the order of their offsets, because every write moves its key to the end.
 */

/** A record as the index counts it: what it holds, and about what a log adds. */
export const recordBytes = ({
  key,
  value,
  headers = [],
}: {
  readonly key: Uint8Array | null
  readonly value: Uint8Array | null
  readonly headers?: readonly (readonly [string, Uint8Array])[]
}): number =>
  headers.reduce(
    (sum, [name, content]) => sum + name.length + content.length,
    64 + (key?.length ?? 0) + (value?.length ?? 0),
  )

/** A record that is alive. */
export interface LiveEntry {
  /** Offset of the entry's first record. */
  readonly offset: number
  readonly bytes: number
}

/** Which records of a topic are alive, and how many bytes are dead. */
export interface LiveIndex<K = string> {
  /** The key's state now lies at `offset`; whatever it had before is dead. */
  put(key: K, entry: LiveEntry): void
  /** The key's state is dead. */
  drop(key: K): void
  /** Bytes that are in the log and belong to no key (garbage from the start). */
  waste(offset: number, bytes: number): void
  /** Where the key lies; undefined: nowhere. */
  get(key: K): LiveEntry | undefined
  /**
   * What a trim would free: up to the oldest living entry, or, when nothing is alive, up to the last entry this index
   * was given. Never further: behind it may lie what a newer owner wrote.
   */
  reclaimable(): { readonly before: number; readonly bytes: number }
  /** The log no longer holds anything below. */
  trimmed(before: number): void
  /**
   * Oldest keys to write again, at most `budget` bytes of them (at least one); empty while the living outweigh the
   * dead.
   */
  toCompact(budget: number): readonly K[]
  readonly live: number
  readonly total: number
  readonly floor: number
}

/** Bytes of one stretch of the log, so that a trim can be accounted for without an entry for every record. */
interface Stretch {
  last: number
  bytes: number
}

/** `floor`: dead bytes that are not worth any work. */
export const createLiveIndex = <K = string>(floor: number): LiveIndex<K> => {
  const stretchBytes = Math.min(64 * 1024, floor / 8)
  const entries = new Map<K, LiveEntry>()
  const stretches: Stretch[] = []
  let live = 0
  let total = 0

  const grow = (offset: number, bytes: number): void => {
    total += bytes
    const tail = stretches.at(-1)
    if (tail !== undefined && tail.bytes < stretchBytes) {
      tail.last = Math.max(tail.last, offset)
      tail.bytes += bytes
    } else stretches.push({ last: offset, bytes })
  }

  const drop = (key: K): void => {
    const old = entries.get(key)
    if (old === undefined) return
    live -= old.bytes
    entries.delete(key)
  }

  return {
    floor,
    put(key, entry) {
      drop(key)
      entries.set(key, entry)
      live += entry.bytes
      grow(entry.offset, entry.bytes)
    },
    drop,
    waste: grow,
    get: (key) => entries.get(key),
    reclaimable() {
      let before = (stretches.at(-1)?.last ?? -1) + 1
      for (const entry of entries.values()) {
        before = entry.offset
        break
      }
      let bytes = 0
      for (const stretch of stretches) {
        if (stretch.last >= before) break
        bytes += stretch.bytes
      }
      return { before, bytes }
    },
    trimmed(before) {
      while (stretches[0] !== undefined && stretches[0].last < before) total -= stretches.shift()!.bytes
    },
    toCompact(budget) {
      if (total - live <= Math.max(live, floor)) return []
      const keys: K[] = []
      let bytes = 0
      for (const [key, entry] of entries) {
        if (keys.length > 0 && bytes + entry.bytes > budget) break
        keys.push(key)
        bytes += entry.bytes
      }
      return keys
    },
    get live() {
      return live
    },
    get total() {
      return total
    },
  }
}
