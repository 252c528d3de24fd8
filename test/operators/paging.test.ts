/** Contexts with blocks in spill files: each block is written once, whoever shares it, and is gone with the last that needs it. */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import type { Context } from '../../src/engine/types.ts'
import { openPackage } from '../../src/models/open.ts'
import { createResidency, type Residency } from '../../src/operators/residency.ts'
import { SpillLost } from '../../src/state/spill.ts'
import { feed, sameBytes } from '../engine/helpers.ts'
import { temporaryFolder } from '../engine/packages.ts'
import { openFamily } from '../families.ts'
import { ids } from '../sessions/helpers.ts'

let dir = ''
beforeAll(async () => {
  dir = (await openFamily('qwen3', temporaryFolder())).dir
})

/** Room for one context: whichever is used, the others are in files. */
const paging = async () => {
  const { model } = await openPackage(dir, { threads: 2 })
  const spillDir = temporaryFolder()
  const residency = createResidency(model, { maxBytes: 1, spillDir })
  onTestFinished(async () => {
    await residency.close()
    model.close()
  })
  const files = (): string[] =>
    readdirSync(spillDir).flatMap((folder) =>
      readdirSync(join(spillDir, folder)).map((name) => join(spillDir, folder, name)),
    )
  const sizes = (): number[] => files().map((path) => statSync(path).size)
  return { model, residency, files, sizes }
}

const fed = (residency: Residency, context: Context, tokens: readonly number[]) =>
  residency.submit({ context, tokens: Int32Array.from(tokens), nats: false })

/** The other context takes the place, and this one is in files. */
const away = async (residency: Residency, other: Context): Promise<void> => {
  const { spillWrites } = residency.stats
  await fed(residency, other, [1])
  await vi.waitFor(() => expect(residency.stats.spillWrites).toBe(spillWrites + 1))
}

const tokens = (count: number): number[] => ids(7, count, 250)

describe('the blocks of a context', () => {
  it('are written once, however often it leaves, and read with the rest', async () => {
    const { model, residency, files, sizes } = await paging()
    const [long, other] = [residency.createContext('long'), residency.createContext('other')]
    await fed(residency, long, tokens(700))
    await away(residency, other)
    // Two blocks and the hot part.
    const first = new Map(files().map((path) => [path, statSync(path).mtimeMs]))
    expect(first.size).toBe(3)
    const block = Math.max(...sizes())
    expect(sizes().filter((size) => size === block)).toHaveLength(2)
    await fed(residency, long, tokens(200))
    await away(residency, other)
    await vi.waitFor(() => expect(files()).toHaveLength(4))
    // The two are as they were, and one came.
    expect(
      files().filter((path) => first.get(path) === statSync(path).mtimeMs && statSync(path).size === block),
    ).toHaveLength(2)
    const whole = model.createContext()
    await feed(model, whole, tokens(700))
    await feed(model, whole, tokens(200))
    expect(sameBytes(await long.state(), await whole.state())).toBe(true)
    expect(residency.stats).toMatchObject({ resident: 1, spilled: 1, spillReads: 2, spillWrites: 3 })
    await fed(residency, long, [3])
    await feed(model, whole, [3])
    expect(sameBytes(await long.state(), await whole.state())).toBe(true)
    expect(long.chain).toBe(whole.chain)
  })

  it('are handed to a capture of the files one by one, those that are known left out', async () => {
    const { model, residency } = await paging()
    const [long, other] = [residency.createContext('long'), residency.createContext('other')]
    await fed(residency, long, tokens(900))
    const inside = await long.capture([1])
    await away(residency, other)
    const outside = await long.capture([1])
    expect(outside.frozen).toEqual([3])
    expect(outside.fresh.map((own) => own.length)).toEqual([2])
    expect(outside).toEqual(inside)
    expect(residency.stats.spillReads).toBe(0)
    expect(model.layout.growth).toHaveLength(1)
  })

  it('belong to its forks as well, and go with the last of them', async () => {
    const { model, residency, files } = await paging()
    const [parent, other] = [residency.createContext('parent'), residency.createContext('other')]
    await fed(residency, parent, tokens(600))
    await away(residency, other)
    const children: Context[] = []
    for (const name of ['a', 'b', 'c']) children.push(await residency.forkContext(parent, name))
    for (const [n, child] of children.entries()) await fed(residency, child, [n])
    await fed(residency, other, [1])
    // The hot parts of four contexts, and two blocks for all of them.
    await vi.waitFor(() => expect(residency.stats.spilled).toBe(4))
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

  it('are forgotten where the context begins anew: what it leaves then is its own', async () => {
    const { model, residency, files } = await paging()
    const [long, other] = [residency.createContext('long'), residency.createContext('other')]
    await fed(residency, long, tokens(600))
    await away(residency, other)
    await long.restart()
    await fed(residency, long, ids(3, 300, 250))
    await away(residency, other)
    await vi.waitFor(() => expect(files()).toHaveLength(2))
    const whole = model.createContext()
    await feed(model, whole, ids(3, 300, 250))
    const state = await whole.state()
    expect(sameBytes(await long.state(), state)).toBe(true)
    // The same where another state is put in.
    await other.load(state, whole)
    await away(residency, long)
    expect(sameBytes(await other.state(), state)).toBe(true)
  })

  it('that were changed in their file are refused, with the name of the session and of the file', async () => {
    const { residency, files } = await paging()
    const [long, other] = [residency.createContext('long'), residency.createContext('other')]
    await fed(residency, long, tokens(600))
    await away(residency, other)
    const size = Math.max(...files().map((path) => statSync(path).size))
    const path = files().find((each) => statSync(each).size === size)!
    const bytes = readFileSync(path)
    bytes[size >> 1]! ^= 1
    writeFileSync(path, bytes)
    await expect(fed(residency, long, [1])).rejects.toThrow(SpillLost)
    await expect(long.state()).rejects.toThrow(`session "long", ${path}`)
    await expect(long.capture([])).rejects.toThrow(SpillLost)
    await fed(residency, other, [1])
  })
})
