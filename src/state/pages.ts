/**
 * States in spill files. Frozen blocks, which no later token writes (`StateParts`), are files of their own. Each is
 * written once, by the first that leaves of those that share it through forks, belongs to all of them, and stays while
 * its context is back in memory. The rest of the state, the hot part, is a file that is written at every spill and
 * removed when the context comes back. So a context that leaves again writes only what is new. Blocks that may sleep
 * (block-cache.ts) are no part of this: who has the pages holds them.
 */

import { giveBack } from '../bulk.ts'
import { ContinuoError } from '../errors.ts'
import {
  firstBytes,
  type KnownParts,
  type Runs,
  type StateLayout,
  type StateParts,
  type StateSource,
} from '../memory.ts'
import { inParallel } from '../parallel.ts'
import { assemblyOf } from './assembly.ts'
import type { RunOf } from './manifest.ts'
import type { SpillFile, SpillFolder } from './spill.ts'

/** Files written or read at the same time, for one context. */
const AT_A_TIME = 4

interface Block extends RunOf {
  /** null: none of the contexts that have it has left yet. */
  file: SpillFile | null
  /** Contexts that have it. */
  holders: number
}

/** What of one context lies in files. */
export interface Pages {
  /** null: the context is in memory, or was never used. */
  hot: SpillFile | null
  /** Of each growth of the layout, where the context left last: the runs in frozen blocks. */
  frozen: readonly Runs[]
  /** Those of them that lie in files or are shared with forks; while it is outside, all of them, in files. */
  readonly blocks: Block[][]
}

/** The spill files have reached their bound. */
export class SpillFull extends ContinuoError {
  /** Bytes that would have to go. */
  readonly missing: number

  constructor(message: string, missing: number) {
    super('UNAVAILABLE', message)
    this.missing = missing
    this.name = 'SpillFull'
  }
}

export interface PageFiles {
  /** Of all files. */
  readonly bytes: number
  none(): Pages
  /**
   * The context is to leave. Gives what of each growth need not be written again, as `KnownParts.ends` has it; these
   * files stay until `write` is over.
   */
  leave(pages: Pages): readonly number[]
  /**
   * Writes a copy of the context that was taken with what `leave` gave as known, and takes the copy's memory. Rejects
   * as `SpillFolder.write`, and with `SpillFull` where the files would take more than they may. Nothing has changed
   * then, but that contexts in memory may have lost files that they do not need.
   */
  write(pages: Pages, parts: StateParts): Promise<void>
  /**
   * The whole state of a context that is outside, of a layout in which nothing sleeps. Rejects with `SpillLost`; `who`
   * names the context in its message.
   */
  read(pages: Pages, who: string): Promise<Uint8Array>
  /**
   * The state as `Model.openContext` and `Context.load` take it: blocks of tables that grow go from their files to
   * where they stay. `kept`: how many blocks of each growth are there already; all that may sleep are. Loading it
   * rejects likewise.
   */
  source(pages: Pages, who: string, kept?: readonly number[]): Promise<StateSource>
  /** Of each growth, how many of its first blocks both share. */
  common(pages: Pages, other: Pages): readonly number[]
  /** As `read`, in the parts of a capture, without the blocks that the caller has. */
  capture(pages: Pages, known: KnownParts, who: string): Promise<StateParts>
  /** For a fork of the context, which is in memory and has these frozen runs of each growth. */
  share(pages: Pages, frozen: readonly Runs[]): Pages
  /** The context is in memory again. */
  cool(pages: Pages): void
  /** The context began anew or is closed: none of its files is of use to it. */
  clear(pages: Pages): void
}

/** `maxBytes`: what all files may take. */
export const createPages = (
  layout: StateLayout,
  folder: SpillFolder,
  maxBytes = Number.POSITIVE_INFINITY,
): PageFiles => {
  let bytes = 0
  /**
   * Of contexts in memory that are not leaving, those with blocks in files: the one that came back first is the first.
   */
  const clean = new Set<Pages>()
  const hasRings = layout.growth.some(({ places }) => places !== undefined)
  /** Of each growth all its blocks, those that sleep included. */
  const allOf = (pages: Pages): readonly (readonly RunOf[])[] =>
    pages.blocks.map((own, g) =>
      layout.growth[g]!.sleeps === true
        ? Array.from({ length: pages.frozen[g]?.end ?? 0 }, (_, run) => ({ run }))
        : own,
    )

  const drop = (file: SpillFile): void => {
    bytes -= file.bytes
    folder.drop(file)
  }

  const letGo = (own: Block[]): void => {
    for (const block of own.splice(0)) {
      block.holders -= 1
      if (block.holders === 0 && block.file !== null) drop(block.file)
    }
  }

  const stay = (pages: Pages): void => {
    if (pages.blocks.some((own) => own.some(({ file }) => file !== null))) clean.add(pages)
  }

  const cool = (pages: Pages): void => {
    if (pages.hot !== null) drop(pages.hot)
    pages.hot = null
    stay(pages)
  }

  const clear = (pages: Pages): void => {
    if (pages.hot !== null) drop(pages.hot)
    pages.hot = null
    clean.delete(pages)
    for (const own of pages.blocks) letGo(own)
  }

  /**
   * Room for so many bytes more, where files of contexts in memory make it: what they hold is written again when these
   * leave.
   */
  const makeRoom = (more: number): void => {
    for (const other of more > maxBytes ? [] : clean) {
      if (bytes + more <= maxBytes) return
      clear(other)
    }
    if (bytes + more <= maxBytes) return
    throw new SpillFull(
      `Spill files take ${bytes} bytes, and a context with ${more} bytes would bring them above their bound of ${maxBytes}. Give them more (--max-spill-bytes).`,
      bytes + more - maxBytes,
    )
  }

  /** Counts the bytes from the beginning of their writing on, and where it fails no more. */
  const counted = async <T>(more: number, writing: Promise<T>): Promise<T> => {
    bytes += more
    try {
      return await writing
    } catch (error) {
      bytes -= more
      throw error
    }
  }

  const read: PageFiles['read'] = async (pages, who) => {
    const hot = await folder.read(pages.hot!, who)
    if (pages.blocks.every(({ length }) => length === 0)) return hot
    const whole = assemblyOf(layout, hot, pages.blocks)
    for (const [g, own] of pages.blocks.entries())
      await inParallel(own, AT_A_TIME, ({ file }, block) =>
        folder.read(file!, who, (bytes) => whole.place(g, block, bytes)),
      )
    return (await whole.finish()).state
  }

  /** The hot part, its rings put together. */
  const withRings = async (pages: Pages, who: string): Promise<Uint8Array> => {
    const hot = await folder.read(pages.hot!, who)
    if (!hasRings) return hot
    const whole = assemblyOf(layout, hot, allOf(pages), true)
    for (const [g, own] of pages.blocks.entries()) {
      if (layout.growth[g]!.places === undefined) continue
      await inParallel(own, AT_A_TIME, ({ file }, block) =>
        folder.read(file!, who, (found) => whole.place(g, block, found)),
      )
    }
    return (await whole.finish()).state
  }

  return {
    get bytes() {
      return bytes
    },
    none: () => ({ hot: null, frozen: [], blocks: layout.growth.map(() => []) }),
    leave(pages) {
      clean.delete(pages)
      return pages.blocks.map((own, g) => {
        if (layout.growth[g]!.sleeps === true) return Number.POSITIVE_INFINITY
        return own.find(({ file }) => file === null)?.run ?? (own.at(-1)?.run ?? -1) + 1
      })
    },
    async write(pages, { hot, frozen, fresh }) {
      const written: SpillFile[] = []
      let failed = false
      const write = async (content: Uint8Array): Promise<SpillFile> => {
        const file = await folder.write(content)
        // Others may still be on their way when one fails.
        if (failed) folder.drop(file)
        else written.push(file)
        return file
      }
      // Others that share a block may have left meanwhile, and written it.
      const due = fresh.map((blocks, g) => {
        const there = new Set(pages.blocks[g]!.filter(({ file }) => file !== null).map(({ run }) => run))
        return blocks.filter(({ run }) => !there.has(run))
      })
      const all = [hot, ...due.flat().map((block) => block.bytes)]
      let more = 0
      for (const { length } of all) more += length
      try {
        makeRoom(more)
        const [first, ...others] = await counted(more, inParallel(all, AT_A_TIME, write))
        pages.hot = first!
        pages.frozen = frozen
        let at = 0
        for (const [g, own] of pages.blocks.entries()) {
          // Of a ring the next lap takes the place of earlier runs.
          const kept = own.filter(({ run }) => run >= frozen[g]!.first)
          for (const block of kept) block.holders += 1
          letGo(own)
          own.push(...kept)
          const shared = new Map(kept.map((block) => [block.run, block]))
          for (const { run } of due[g]!) {
            const file = others[at++]!
            const block = shared.get(run)
            if (block === undefined) own.push({ run, file, holders: 1 })
            else if (block.file === null) block.file = file
            else drop(file)
          }
        }
        giveBack(hot, ...fresh.flat().map((block) => block.bytes))
      } catch (error) {
        failed = true
        for (const file of written) folder.drop(file)
        stay(pages)
        throw error
      }
    },
    read,
    common(pages, other) {
      return pages.blocks.map((own, g) => {
        // A ring comes whole, with what is not in blocks: none of its blocks is taken over.
        if (layout.growth[g]!.places !== undefined) return 0
        const ends = own.findIndex((block, at) => block !== other.blocks[g]![at])
        return ends < 0 ? own.length : ends
      })
    },
    async source(pages, who, kept = []) {
      const isRing = (g: number): boolean => layout.growth[g]!.places !== undefined
      const fill: StateSource['fill'] = async (sink) => {
        const all = pages.blocks.flatMap((own, g) =>
          (isRing(g) ? [] : own)
            .map(({ file }, block) => ({ g, block, path: file!.path, hash: file!.sha256, file: file! }))
            .slice(kept[g] ?? 0),
        )
        const found = await sink.files(all)
        // What is wrong with a file is found out, and said, by reading it.
        for (const { g, block, file } of all.filter((_, at) => !found[at]))
          await folder.read(file, who, (bytes) => sink.bytes({ g, block }, bytes))
      }
      const blocks = allOf(pages).map(({ length }, g) => (isRing(g) ? 0 : length))
      const had = blocks.map((count, g) => (layout.growth[g]!.sleeps === true ? count : (kept[g] ?? 0)))
      return { hot: await withRings(pages, who), blocks, kept: had, fill }
    },
    async capture(pages, { ends, most }, who) {
      const wanted = pages.blocks.flatMap((own, g) =>
        own.filter(({ run }) => run >= (ends[g] ?? 0)).map(({ run, file }) => ({ g, run, file: file! })),
      )
      const taken = firstBytes(wanted, ({ file }) => file.bytes, most)
      const isPart = taken.length < wanted.length
      const hot = isPart ? new Uint8Array(0) : await folder.read(pages.hot!, who)
      const copies = await inParallel(taken, AT_A_TIME, async ({ g, run, file }) => ({
        g,
        block: { run, bytes: await folder.read(file, who) },
      }))
      const fresh = pages.blocks.map((_, wanted) => copies.flatMap(({ g, block }) => (g === wanted ? [block] : [])))
      return { hot, frozen: pages.frozen, fresh, ...(isPart && { more: true }) }
    },
    share(pages, frozen) {
      for (const [g, own] of pages.blocks.entries()) {
        if (layout.growth[g]!.sleeps === true) continue
        const { first, end } = frozen[g]!
        for (let run = Math.max(first, (own.at(-1)?.run ?? -1) + 1); run < end; run += 1)
          own.push({ run, file: null, holders: 1 })
        for (const block of own) block.holders += 1
      }
      const shared = { ...pages, hot: null, blocks: pages.blocks.map((own) => [...own]) }
      cool(shared)
      return shared
    },
    cool,
    clear,
  }
}
