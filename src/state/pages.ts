/**
 * States in spill files, in two kinds. Blocks that no later token writes (`StateParts`) are files of their own, each written once: they stay while
 * their context is back in memory, and belong to its forks as well. The rest, the hot part, is written at every spill and is removed when its
 * context comes back. So a context that leaves again writes what is new since it left.
 */
import { inParallel } from '../blobs/parallel.ts'
import { giveBack } from '../bulk.ts'
import type { StateLayout, StateParts } from '../memory.ts'
import { assemblyOf } from './manifest.ts'
import type { SpillFile, SpillFolder } from './spill.ts'

/** Files written or read at the same time, for one context. */
const AT_A_TIME = 4

interface BlockFile {
  readonly file: SpillFile
  /** Contexts that have it. */
  holders: number
}

/** What of one context lies in files. */
export interface Pages {
  /** null: the context is in memory, or was never used. */
  hot: SpillFile | null
  /** Of each growth of the layout its first blocks. */
  readonly blocks: BlockFile[][]
}

export interface PageFiles {
  none(): Pages
  /** Of each growth: how many blocks need not be written again. */
  known(pages: Pages): readonly number[]
  /**
   * Writes a copy of the context that was taken with these `known`, and takes its memory. Rejects as `SpillFolder.write`; nothing has
   * changed then.
   */
  write(pages: Pages, parts: StateParts): Promise<void>
  /** The whole state of a context that is outside. Rejects with `SpillLost`; `who` names the context in its message. */
  read(pages: Pages, who: string): Promise<Uint8Array>
  /** The same as a capture has it, without the blocks that the caller has. */
  capture(pages: Pages, known: readonly number[], who: string): Promise<StateParts>
  /** For a fork of the context, which is in memory. */
  share(pages: Pages): Pages
  /** The context is in memory again. */
  cool(pages: Pages): void
  /** The context began anew or is closed: none of its files is of use to it. */
  clear(pages: Pages): void
}

export const createPages = (layout: StateLayout, folder: SpillFolder): PageFiles => {
  const known = ({ blocks }: Pages): number[] => blocks.map(({ length }) => length)

  const cool = (pages: Pages): void => {
    if (pages.hot !== null) folder.drop(pages.hot)
    pages.hot = null
  }

  const readBlocks = (pages: Pages, g: number, from: number, who: string): Promise<Uint8Array[]> =>
    inParallel(pages.blocks[g]!.slice(from), AT_A_TIME, ({ file }) => folder.read(file, who))

  return {
    none: () => ({ hot: null, blocks: layout.growth.map(() => []) }),
    known,
    async write(pages, { hot, fresh }) {
      const written: SpillFile[] = []
      let failed = false
      const write = async (bytes: Uint8Array): Promise<SpillFile> => {
        const file = await folder.write(bytes)
        // Others may still be on their way when one fails.
        if (failed) folder.drop(file)
        else written.push(file)
        return file
      }
      try {
        const all = [hot, ...fresh.flat()]
        const [first, ...others] = await inParallel(all, AT_A_TIME, write)
        cool(pages)
        pages.hot = first!
        let at = 0
        for (const [g, { length }] of fresh.entries()) {
          pages.blocks[g]!.push(...others.slice(at, at + length).map((file) => ({ file, holders: 1 })))
          at += length
        }
        giveBack(...all)
      } catch (error) {
        failed = true
        for (const file of written) folder.drop(file)
        throw error
      }
    },
    async read(pages, who) {
      const hot = await folder.read(pages.hot!, who)
      if (pages.blocks.every(({ length }) => length === 0)) return hot
      const whole = assemblyOf(layout, hot, pages.blocks)
      for (const [g, own] of pages.blocks.entries())
        await inParallel(own, AT_A_TIME, ({ file }, block) =>
          folder.read(file, who, (bytes) => whole.place(g, block, bytes)),
        )
      const { state } = await whole.finish()
      return state
    },
    async capture(pages, has, who) {
      const frozen = known(pages)
      const hot = await folder.read(pages.hot!, who)
      const fresh: Uint8Array[][] = []
      for (const g of frozen.keys()) fresh.push(await readBlocks(pages, g, has[g] ?? 0, who))
      return { hot, frozen, fresh }
    },
    share(pages) {
      for (const block of pages.blocks.flat()) block.holders += 1
      return { hot: null, blocks: pages.blocks.map((own) => [...own]) }
    },
    cool,
    clear(pages) {
      cool(pages)
      for (const own of pages.blocks)
        for (const block of own.splice(0)) {
          block.holders -= 1
          if (block.holders === 0) folder.drop(block.file)
        }
    },
  }
}
