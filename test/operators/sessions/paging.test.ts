/**
 * Contexts with blocks in spill files: each block is written once, whoever shares it, and is gone with the last that
 * needs it.
 */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import type { Context } from '../../../src/engine/context.ts'
import { openPackage } from '../../../src/models/open.ts'
import {
  type ContextStore,
  type ContextStoreOptions,
  createContextStore,
} from '../../../src/operators/sessions/context-store.ts'
import { SpillLost } from '../../../src/state/spill.ts'
import { feed, sameBytes } from '../../engine/helpers.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { openFamily } from '../../families.ts'
import { ids } from '../../sessions/helpers.ts'

let dir = ''
beforeAll(async () => {
  dir = (await openFamily('qwen3', temporaryFolder())).dir
})

/** Room for one context: whichever is used, the others are in files. */
const paging = async (options: ContextStoreOptions = {}) => {
  const { model } = await openPackage(dir, { threads: 2 })
  const spillDir = temporaryFolder()
  const store = createContextStore(model, { maxBytes: 1, spillDir, ...options })
  onTestFinished(async () => {
    await store.close()
    model.close()
  })
  const files = (): string[] =>
    readdirSync(spillDir).flatMap((folder) =>
      readdirSync(join(spillDir, folder)).map((name) => join(spillDir, folder, name)),
    )
  // One that is dropped is removed at any time.
  const sizes = (): number[] => files().flatMap((path) => statSync(path, { throwIfNoEntry: false })?.size ?? [])
  return { model, store, files, sizes }
}

const fed = (store: ContextStore, context: Context, tokens: readonly number[]) =>
  store.submit({ context, tokens: Int32Array.from(tokens), nats: false })

/** The other context takes the place, and this one is in files. */
const away = async (store: ContextStore, other: Context): Promise<void> => {
  const { spillWrites } = store.stats
  await fed(store, other, [1])
  await vi.waitFor(() => expect(store.stats.spillWrites).toBe(spillWrites + 1))
}

const tokens = (count: number): number[] => ids(7, count, 250)

describe('the blocks of a context', () => {
  it('are written once, however often it leaves, and read with the rest', async () => {
    const { model, store, files, sizes } = await paging()
    const [long, other] = [store.createContext('long'), store.createContext('other')]
    await fed(store, long, tokens(700))
    await away(store, other)
    // Two blocks and the hot part.
    const first = new Map(files().map((path) => [path, statSync(path).mtimeMs]))
    expect(first.size).toBe(3)
    const block = Math.max(...sizes())
    expect(sizes().filter((size) => size === block)).toHaveLength(2)
    await fed(store, long, tokens(200))
    await away(store, other)
    await vi.waitFor(() => expect(files()).toHaveLength(4))
    // The two are as they were, and one came.
    expect(
      files().filter((path) => first.get(path) === statSync(path).mtimeMs && statSync(path).size === block),
    ).toHaveLength(2)
    const whole = model.createContext()
    await feed(model, whole, tokens(700))
    await feed(model, whole, tokens(200))
    expect(sameBytes(await long.state(), await whole.state())).toBe(true)
    expect(store.stats).toMatchObject({ resident: 1, spilled: 1, spillReads: 2, spillWrites: 3 })
    await fed(store, long, [3])
    await feed(model, whole, [3])
    expect(sameBytes(await long.state(), await whole.state())).toBe(true)
    expect(long.chain).toBe(whole.chain)
  })

  it('are handed to a capture of the files one by one, those that are known left out', async () => {
    const { model, store } = await paging()
    const [long, other] = [store.createContext('long'), store.createContext('other')]
    await fed(store, long, tokens(900))
    const known = { pulse: 900, ends: [1] }
    const inside = await long.capture(known)
    await away(store, other)
    const outside = await long.capture(known)
    expect(outside.frozen).toEqual([{ first: 0, end: 3 }])
    expect(outside.fresh.map((own) => own.length)).toEqual([2])
    expect(outside).toEqual(inside)
    expect(store.stats.spillReads).toBe(0)
    expect(model.layout.growth).toHaveLength(1)
  })

  it.each([
    ['once the parent was in files', true],
    ['of a parent that never was', false],
  ])('belong to its forks as well, %s, and go with the last of them', async (_, left) => {
    const { model, store, files } = await paging()
    const [parent, other] = [store.createContext('parent'), store.createContext('other')]
    await fed(store, parent, tokens(600))
    if (left) await away(store, other)
    const children: Context[] = []
    for (const name of ['a', 'b', 'c']) children.push(await store.forkContext(parent, name))
    for (const [n, child] of children.entries()) await fed(store, child, [n])
    await fed(store, other, [1])
    // The hot parts of four contexts, and two blocks for all of them.
    await vi.waitFor(() => expect(store.stats.spilled).toBe(4))
    await vi.waitFor(() => expect(files()).toHaveLength(4 + 2))
    for (const [n, child] of children.entries()) {
      const alone = model.createContext()
      await feed(model, alone, tokens(600))
      await feed(model, alone, [n])
      expect(sameBytes(await child.state(), await alone.state())).toBe(true)
      alone.close()
    }
    parent.close()
    await vi.waitFor(() => expect(files()).toHaveLength(3 + 2))
    for (const child of children) child.close()
    await vi.waitFor(() => expect(files()).toEqual([]))
  })

  it('are shared again by a fork that comes back while one of its kin is in memory', async () => {
    const { model } = await paging()
    const alone = model.createContext()
    await feed(model, alone, tokens(600))
    const { bytes } = alone
    const { store } = await paging({ maxBytes: 2 * bytes })
    const [parent, other] = [store.createContext('parent'), store.createContext('other')]
    await fed(store, parent, tokens(600))
    const children = [await store.forkContext(parent, 'a'), await store.forkContext(parent, 'b')]
    for (const [n, child] of children.entries()) await fed(store, child, [n])
    const spilled = async (count: number): Promise<void> => {
      await vi.waitFor(() => expect(store.stats.spilled).toBe(count))
    }
    await fed(store, parent, [9])
    // There is room for two that share nothing: the forks go.
    await fed(store, other, ids(3, 600, 250))
    await spilled(2)
    await fed(store, parent, [9])
    for (const child of children) await fed(store, child, [5])
    // The other one had to go for them, and the parent did not: each fork has the place for its last block.
    await spilled(1)
    expect(store.stats).toMatchObject({ spillReads: 2, resident: 3 })
    expect(store.stats.residentBytes).toBeLessThan(1.7 * bytes)
    for (const child of children) expect(child.bytes).toBeLessThan(bytes / 2)
    for (const [n, child] of children.entries()) {
      const whole = model.createContext()
      await feed(model, whole, [...tokens(600), n, 5])
      expect(sameBytes(await child.state(), await whole.state())).toBe(true)
      whole.close()
    }
    // Whoever is left counts what they shared, and goes on by itself.
    parent.close()
    children[0]!.close()
    await fed(store, children[1]!, [6])
    expect(children[1]!.bytes).toBeGreaterThan(0.9 * bytes)
    await feed(model, alone, [1, 5, 6])
    expect(sameBytes(await children[1]!.state(), await alone.state())).toBe(true)
  })

  it('are forgotten where the context begins anew: what it leaves then is its own', async () => {
    const { model, store, files } = await paging()
    const [long, other] = [store.createContext('long'), store.createContext('other')]
    await fed(store, long, tokens(600))
    await away(store, other)
    await long.restart()
    await fed(store, long, ids(3, 300, 250))
    await away(store, other)
    await vi.waitFor(() => expect(files()).toHaveLength(2))
    const whole = model.createContext()
    await feed(model, whole, ids(3, 300, 250))
    const state = await whole.state()
    expect(sameBytes(await long.state(), state)).toBe(true)
    // The same where another state is put in.
    await other.load(state, whole)
    await away(store, long)
    expect(sameBytes(await other.state(), state)).toBe(true)
  })

  it('that were changed in their file are refused, with the name of the session and of the file', async () => {
    const { store, files } = await paging()
    const [long, other] = [store.createContext('long'), store.createContext('other')]
    await fed(store, long, tokens(600))
    await away(store, other)
    const size = Math.max(...files().map((path) => statSync(path).size))
    const path = files().find((each) => statSync(each).size === size)!
    const bytes = readFileSync(path)
    bytes[size >> 1]! ^= 1
    writeFileSync(path, bytes)
    await expect(fed(store, long, [1])).rejects.toThrow(SpillLost)
    await expect(long.state()).rejects.toThrow(`session "long", ${path}`)
    await expect(long.capture({ pulse: 600, ends: [] })).rejects.toThrow(SpillLost)
    await fed(store, other, [1])
  })
})

/** Bytes of the hot part of one token, of a block, and of the hot part behind two of them and 88 tokens more. */
const sizesOf = async (): Promise<{ readonly small: number; readonly long: number; readonly block: number }> => {
  const { store, sizes } = await paging()
  const [long, other] = [store.createContext(), store.createContext()]
  await fed(store, long, tokens(600))
  await away(store, other)
  const block = Math.max(...sizes())
  await fed(store, long, [1])
  await vi.waitFor(() => expect(store.stats.spilled).toBe(1))
  const small = Math.min(...sizes())
  return { small, long: store.stats.spillBytes - small, block }
}

describe('spill files with a bound', () => {
  it('lose first what contexts in memory would only have to write again', async () => {
    const { small, long, block } = await sizesOf()
    expect(long).toBe(2 * block)
    // Enough for the long one with both blocks, or for its blocks and one other.
    const { model, store, files } = await paging({ maxSpillBytes: 2 * block + small + 100_000 })
    const [a, b, c] = ['a', 'b', 'c'].map((name) => store.createContext(name)) as [Context, Context, Context]
    await fed(store, a, tokens(600))
    await away(store, b)
    expect(files()).toHaveLength(3)
    await fed(store, a, [2])
    await vi.waitFor(() => expect(files()).toHaveLength(3))
    // Now a is in memory and b in a file; c takes the blocks' place by being as long.
    await fed(store, c, tokens(500))
    await vi.waitFor(() => expect(store.stats.spilled).toBe(2))
    expect(store.stats.spillBytes).toBeLessThanOrEqual(2 * block + small + 100_000)
    const whole = model.createContext()
    await feed(model, whole, tokens(600))
    await feed(model, whole, [2])
    expect(sameBytes(await a.state(), await whole.state())).toBe(true)
  })

  it('ask the owners of contexts in them to close these, the oldest first', async () => {
    const { small } = await sizesOf()
    const released: string[] = []
    const { model, store } = await paging({ maxBytes: 20_000, maxSpillBytes: Math.floor(2.5 * small) })
    const names = new Map<Context, string>()
    const close = (context: Context): boolean => {
      released.push(names.get(context)!)
      context.close()
      return true
    }
    const contexts = ['a', 'b', 'c', 'd', 'e'].map((name) => {
      const context = store.createContext(name, close)
      names.set(context, name)
      return context
    })
    for (const context of contexts) await fed(store, context, [5])
    await vi.waitFor(() => expect(store.stats).toMatchObject({ spilled: 2, resident: 1, failures: 0 }))
    expect(released).toEqual(['a', 'b'])
    expect(store.stats.spillBytes).toBe(2 * small)
    const alone = model.createContext()
    await feed(model, alone, [5])
    expect(sameBytes(await contexts[2]!.state(), await alone.state())).toBe(true)
  })

  it('let contexts that nobody can close stay in memory, and say so', async () => {
    const { small } = await sizesOf()
    const warnings: string[] = []
    const bound = Math.floor(1.5 * small)
    const { store } = await paging({ maxSpillBytes: bound, warn: (message) => warnings.push(message) })
    const contexts = ['a', 'b', 'c'].map((name) => store.createContext(name))
    for (const context of contexts) await fed(store, context, [5])
    await vi.waitFor(() => expect(store.stats).toMatchObject({ spilled: 1, resident: 2 }))
    expect(warnings[0]).toBe(
      `Spill files take ${small} bytes of ${bound} (--max-spill-bytes), and nothing in them may go. Contexts stay in memory, above the bound of 1 bytes.`,
    )
    contexts[0]!.close()
    expect(store.stats.spillBytes).toBe(0)
  })

  it('of no bytes are refused', async () => {
    await expect(paging({ maxSpillBytes: 0 })).rejects.toThrow('spill files is 0, expected a number of bytes above 0')
  })
})
