/** Which contexts are in memory: the bound, the order, spilled ones that come back exactly, and those that do not. */
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import type { Context } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import {
  type ContextStore,
  type ContextStoreOptions,
  createContextStore,
} from '../../../src/operators/sessions/context-store.ts'
import { processName } from '../../../src/process-name.ts'
import { openSpillFolder, SpillLost } from '../../../src/state/spill.ts'
import { errorOf, feed, open, sameBytes } from '../../engine/helpers.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { ids, smallPackage } from '../../sessions/helpers.ts'

const USE = { what: 'Contexts', flag: '--spill-dir' }

let dir = ''
beforeAll(() => {
  dir = smallPackage()
})

const spilling = async (contexts: number, options: ContextStoreOptions = {}) => {
  const model = await open(dir)
  const spillDir = temporaryFolder()
  const maxBytes = contexts * model.contextBytes
  const store = createContextStore(model, { maxBytes, spillDir, ...options })
  const folder = (): string => join(spillDir, readdirSync(spillDir)[0]!)
  const files = (): string[] => readdirSync(folder()).map((name) => join(folder(), name))
  return { model, store, spillDir, files }
}

const fed = (store: ContextStore, context: Context, tokens: readonly number[]) =>
  store.submit({ context, tokens: Int32Array.from(tokens), nats: true })

const expectSame = async (a: Context, b: Context): Promise<void> => {
  expect([a.pulse, a.origin, a.chain]).toEqual([b.pulse, b.origin, b.chain])
  expect(sameBytes(await a.state(), await b.state())).toBe(true)
}

const alone = async (model: Model, ...calls: readonly (readonly number[])[]): Promise<Context> => {
  const context = model.createContext()
  for (const tokens of calls) await feed(model, context, tokens)
  return context
}

describe('a context in a spill file', () => {
  it('is a context like any other: same bytes, clock, origin and chain, also through reset, serialize and restore', async () => {
    const { model, store, files } = await spilling(1)
    const [a, b] = [store.createContext('a'), store.createContext('b')]
    await expectSame(a, model.createContext())
    await fed(store, a, ids(1, 20, 40))
    await fed(store, b, ids(2, 20, 40))
    expect(store.stats).toMatchObject({ resident: 1, spilled: 1, spillWrites: 1, spillReads: 0 })
    expect(store.stats.residentBytes).toBe(model.contextBytes)
    const whole = await alone(model, ids(1, 20, 40))
    await expectSame(a, whole)
    const state = await a.state()
    // Looking does not bring it back.
    expect(store.stats).toMatchObject({ spilled: 1, spillReads: 0 })
    await a.restart()
    await whole.restart()
    await expectSame(a, whole)
    // What a restart forgets is not read for it.
    expect(store.stats).toMatchObject({ resident: 1, spilled: 1, spillReads: 0, spillWrites: 2 })
    await b.load(state, { pulse: 20n, origin: 0n, chain: '0'.repeat(32) })
    await fed(store, a, ids(3, 4, 40))
    await feed(model, whole, ids(3, 4, 40))
    await expectSame(a, whole)
    expect([b.pulse, b.chain]).toEqual([20n, '0'.repeat(32)])
    expect(sameBytes(await b.state(), state)).toBe(true)
    await vi.waitFor(() => expect(files()).toHaveLength(1))
    b.close()
    await vi.waitFor(() => expect(files()).toHaveLength(0))
    expect(store.stats).toMatchObject({ resident: 1, spilled: 0 })
    await store.close()
  })

  it('is the one that was not used for longest', async () => {
    const { store } = await spilling(3)
    const contexts = ['a', 'b', 'c', 'd'].map((name) => store.createContext(name))
    const [a, b, c, d] = contexts as [Context, Context, Context, Context]
    for (const context of [a, b, c]) await fed(store, context, [1])
    await fed(store, a, [2])
    await fed(store, d, [1])
    expect(store.stats).toMatchObject({ resident: 3, spilled: 1, spillReads: 0 })
    // Of a, c and d nothing has to be read back; then b takes the place of c, which was used before them.
    for (const context of [c, a, d]) await fed(store, context, [3])
    expect(store.stats.spillReads).toBe(0)
    await fed(store, b, [3])
    for (const context of [a, d]) await fed(store, context, [4])
    expect(store.stats).toMatchObject({ spillReads: 1, spillWrites: 2 })
    await store.close()
  })

  it('never was busy: what is in work stays in memory, and others wait in order', async () => {
    const { model, store } = await spilling(2)
    const contexts = Array.from({ length: 30 }, (_, n) => store.createContext(`s${n}`))
    const order: number[] = []
    let most = 0
    await Promise.all(
      contexts.map(async (context, n) => {
        const call = fed(store, context, ids(n, 3, 40))
        expect(await errorOf(() => context.state())).toMatchObject({ code: 'MISUSE' })
        expect(await errorOf(() => fed(store, context, [1]))).toMatchObject({ code: 'MISUSE' })
        await call
        order.push(n)
        most = Math.max(most, store.stats.residentBytes)
      }),
    )
    // There are two at a time. When one ends, all that came before it have ended, but for the one that was in work
    // beside it.
    const before = (at: number): number[] => order.slice(at + 1).filter((later) => later < order[at]!)
    expect(order.map((_, at) => before(at)).filter((waiting) => waiting.length > 1)).toEqual([])
    expect(most).toBe(2 * model.contextBytes)
    expect(store.stats).toMatchObject({ resident: 2, spilled: 28, spillWrites: 28 })
    for (const [n, context] of contexts.entries()) await expectSame(context, await alone(model, ids(n, 3, 40)))
    await store.close()
  })

  it('larger than the bound goes alone, and works', async () => {
    const { model, store } = await spilling(0.5)
    const [a, b] = [store.createContext(), store.createContext()]
    for (let n = 0; n < 5; n += 1) {
      await Promise.all([fed(store, a, [n]), fed(store, b, [n + 1])])
      expect(store.stats.residentBytes).toBe(model.contextBytes)
    }
    // Alone it does not go to and fro.
    const before = store.stats.spillReads
    for (let n = 0; n < 5; n += 1) await fed(store, b, [n])
    expect(store.stats.spillReads - before).toBeLessThanOrEqual(1)
    await expectSame(a, await alone(model, [0, 1, 2, 3, 4]))
    await store.close()
  })
})

describe('a context whose state stopped being finite', () => {
  it('stays where it is: no spill file could bring it back, and only a reset or a restore does', async () => {
    const { model, store } = await spilling(1)
    const [broken, other] = [store.createContext('broken'), store.createContext('other')]
    const state = await broken.state()
    const view = new DataView(state.buffer, state.byteOffset, state.length)
    for (let at = 0; at < state.length; at += 4) view.setFloat32(at, 3e38, true)
    await broken.load(state, { pulse: 4n, origin: 0n, chain: broken.chain })
    expect((await errorOf(() => fed(store, broken, [1]))).message).toContain('finite')
    await fed(store, other, [1, 2])
    // It is the other one that makes room.
    const made = { spilled: 1, spillReads: 0, residentBytes: model.contextBytes }
    await vi.waitFor(() => expect(store.stats).toMatchObject(made))
    expect((await errorOf(() => fed(store, broken, [1]))).message).toMatch(/reset|restore/)
    expect(store.stats).toMatchObject({ spilled: 1, spillReads: 0 })
    await broken.restart()
    await fed(store, broken, [1, 2])
    await fed(store, other, [3])
    // Again one of many, and out of the way.
    expect(store.stats).toMatchObject({ resident: 1, spilled: 1, residentBytes: model.contextBytes })
    expect(broken.origin).toBe(5n)
    await expectSame(other, await alone(model, [1, 2, 3]))
    await store.close()
  })
})

describe('a spill file that is not what was written', () => {
  const damage: Record<string, (path: string) => void> = {
    missing: (path) => rmSync(path),
    shorter: (path) => writeFileSync(path, readFileSync(path).subarray(0, -1)),
    longer: (path) => writeFileSync(path, Buffer.concat([readFileSync(path), Buffer.of(0)])),
    'flipped in one bit': (path) => {
      const bytes = readFileSync(path)
      bytes[bytes.length >> 1]! ^= 16
      writeFileSync(path, bytes)
    },
    'a folder': (path) => {
      rmSync(path)
      mkdirSync(path)
    },
  }
  it.each(Object.keys(damage))('%s: an error that names session and file, each time; others go on', async (what) => {
    const { model, store, files } = await spilling(1)
    const [a, b, c] = ['a', 'b', 'c'].map((name) => store.createContext(name)) as [Context, Context, Context]
    await fed(store, a, [1])
    await fed(store, b, [2])
    const [path] = files()
    damage[what]!(path!)
    const calls = await Promise.allSettled([fed(store, c, [3]), fed(store, a, [2]), fed(store, b, [3])])
    expect(calls.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    const { reason } = calls[1] as PromiseRejectedResult
    expect(reason).toBeInstanceOf(SpillLost)
    expect(reason).toMatchObject({ code: 'REFUSED', message: expect.stringContaining(`session "a", ${path}`) })
    await expect(a.state()).rejects.toThrow(SpillLost)
    await expect(fed(store, a, [2])).rejects.toThrow(SpillLost)
    await expectSame(b, await alone(model, [2, 3]))
    await expectSame(c, await alone(model, [3]))
    // What it was can come back from elsewhere.
    const old = await alone(model, [1])
    await a.load(await old.state(), old)
    await fed(store, a, [2])
    await expectSame(a, await alone(model, [1, 2]))
    await store.close()
  })
})

describe('the folder of the spill files', () => {
  it('that cannot be written is an error when it was asked for', async () => {
    const model = await open(dir)
    const file = join(temporaryFolder(), 'file')
    writeFileSync(file, '')
    const { code, message } = await errorOf(() => createContextStore(model, { spillDir: file }))
    expect(code).toBe('DENIED')
    expect(message).toContain(file)
  })

  it('that is lost later costs memory, not work: the context stays, a warning says why, and the disk is tried again', async () => {
    const warnings: string[] = []
    const { model, store, spillDir } = await spilling(1, { warn: (message) => warnings.push(message) })
    rmSync(spillDir, { recursive: true })
    const [a, b] = [store.createContext('a'), store.createContext('b')]
    for (const n of [1, 2, 3]) {
      await fed(store, a, [n])
      await fed(store, b, [n])
    }
    expect(store.stats).toMatchObject({ resident: 2, spilled: 0, residentBytes: 2 * model.contextBytes })
    expect(warnings[0]).toMatch(/^Contexts cannot be written to .*stays in memory/)
    // Not once for each call.
    expect(warnings).toHaveLength(store.stats.failures)
    expect(warnings.length).toBeLessThan(4)
    await expectSame(a, await alone(model, [1, 2, 3]))
    await store.close()
  })

  it('is closed to others, and belongs to one process', async () => {
    const base = temporaryFolder()
    const spills = openSpillFolder(base, USE)
    const file = await spills.write(Uint8Array.of(1, 2, 3))
    const second = openSpillFolder(base, USE)
    expect([...(await spills.read(file, 'x'))]).toEqual([1, 2, 3])
    second.close()
    spills.close()
    expect(readdirSync(base)).toEqual([])
  })

  it('is swept when its process has ended, is another one by now, or is out of sight and touches it no more', () => {
    const base = temporaryFolder()
    const host = hostname().replaceAll(/[^\w.-]/g, '_')
    const own = processName()!
    const make = (middle: string, hoursAgo = 0): string => {
      const path = join(base, `continuo-pages~${middle}~abc`)
      mkdirSync(path)
      const time = Date.now() / 1000 - 3600 * hoursAgo
      utimesSync(path, time, time)
      return path
    }
    const [boot, ...rest] = [own.slice(0, 36), own.slice(37)]
    const elsewhere = `${boot}-1-1-5`
    const rebooted = `${'0'.repeat(8)}${boot.slice(8)}-${rest}`
    const kept = [
      make(`${host}~${own}`, 9),
      make(`another-container~${elsewhere}`, 0.9),
      make(`${host}~${rebooted}`),
      // An older version, which knew numbers.
      make(`another.host~4194305`, 9),
      make(`${host}~${process.pid}`, 9),
    ]
    const swept = [
      make(`${host}~${own.replace(/-\d+-\d+$/, '-4194305-1')}`),
      // A container's first process has the number that the first one of the container before had.
      make(`another-container~${own.replace(/\d+$/, '1')}`),
      make(`another-container~${elsewhere.replace(/5$/, '6')}`, 1.1),
      make(`${host}~${rebooted.replace(/\d+$/, '7')}`, 1.1),
      make(`${host}~4194305`),
    ]
    openSpillFolder(base, USE).close()
    expect(kept.filter((path) => !existsSync(path))).toEqual([])
    expect(swept.filter((path) => existsSync(path))).toEqual([])
  })

  it('is made beside what another user left there and nobody else may remove', async () => {
    const base = temporaryFolder()
    const spills = openSpillFolder(base, USE)
    const left = join(base, `continuo-pages~${hostname().replaceAll(/[^\w.-]/g, '_')}~4194305~abc`)
    mkdirSync(left)
    writeFileSync(join(left, '1.page'), '')
    chmodSync(left, 0o555)
    chmodSync(base, 0o777)
    const root = process.geteuid!() === 0
    try {
      // Root may remove anything.
      if (root) process.seteuid!(65_534)
      const second = openSpillFolder(base, USE)
      expect([...(await second.read(await second.write(Uint8Array.of(4)), 'x'))]).toEqual([4])
      second.close()
    } finally {
      if (root) process.seteuid!(0)
      chmodSync(left, 0o755)
    }
    expect(existsSync(left)).toBe(true)
    spills.close()
  })
})
