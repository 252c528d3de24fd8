/** Which contexts are in memory: the bound, the order, spilled ones that come back exactly, and those that do not. */
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import type { Context, Model } from '../../src/engine/types.ts'
import { createResidency, type Residency, type ResidencyOptions } from '../../src/operators/residency.ts'
import { openSpillFolder, SpillLost } from '../../src/state/spill.ts'
import { errorOf, feed, open, sameBytes } from '../engine/helpers.ts'
import { temporaryFolder } from '../engine/packages.ts'
import { ids, smallPackage } from '../sessions/helpers.ts'

let dir = ''
beforeAll(() => {
  dir = smallPackage()
})

const spilling = async (contexts: number, options: ResidencyOptions = {}) => {
  const model = await open(dir)
  const spillDir = temporaryFolder()
  const maxBytes = contexts * model.contextBytes
  const residency = createResidency(model, { maxBytes, spillDir, ...options })
  const folder = (): string => join(spillDir, readdirSync(spillDir)[0]!)
  const files = (): string[] => readdirSync(folder()).map((name) => join(folder(), name))
  return { model, residency, spillDir, files }
}

const fed = (residency: Residency, context: Context, tokens: readonly number[]) =>
  residency.submit({ context, tokens: Int32Array.from(tokens), nats: true })

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
    const { model, residency, files } = await spilling(1)
    const [a, b] = [residency.createContext('a'), residency.createContext('b')]
    await expectSame(a, model.createContext())
    await fed(residency, a, ids(1, 20, 40))
    await fed(residency, b, ids(2, 20, 40))
    expect(residency.stats).toMatchObject({ resident: 1, spilled: 1, spillWrites: 1, spillReads: 0 })
    expect(residency.stats.residentBytes).toBe(model.contextBytes)
    const whole = await alone(model, ids(1, 20, 40))
    await expectSame(a, whole)
    const state = await a.state()
    // Looking does not bring it back.
    expect(residency.stats).toMatchObject({ spilled: 1, spillReads: 0 })
    await a.restart()
    await whole.restart()
    await expectSame(a, whole)
    // What a restart forgets is not read for it.
    expect(residency.stats).toMatchObject({ resident: 1, spilled: 1, spillReads: 0, spillWrites: 2 })
    await b.load(state, { pulse: 20n, origin: 0n, chain: '0'.repeat(32) })
    await fed(residency, a, ids(3, 4, 40))
    await feed(model, whole, ids(3, 4, 40))
    await expectSame(a, whole)
    expect([b.pulse, b.chain]).toEqual([20n, '0'.repeat(32)])
    expect(sameBytes(await b.state(), state)).toBe(true)
    await vi.waitFor(() => expect(files()).toHaveLength(1))
    b.close()
    await vi.waitFor(() => expect(files()).toHaveLength(0))
    expect(residency.stats).toMatchObject({ resident: 1, spilled: 0 })
    await residency.close()
  })

  it('is the one that was not used for longest', async () => {
    const { residency } = await spilling(3)
    const contexts = ['a', 'b', 'c', 'd'].map((name) => residency.createContext(name))
    const [a, b, c, d] = contexts as [Context, Context, Context, Context]
    for (const context of [a, b, c]) await fed(residency, context, [1])
    await fed(residency, a, [2])
    await fed(residency, d, [1])
    expect(residency.stats).toMatchObject({ resident: 3, spilled: 1, spillReads: 0 })
    // Of a, c and d nothing has to be read back; then b takes the place of c, which was used before them.
    for (const context of [c, a, d]) await fed(residency, context, [3])
    expect(residency.stats.spillReads).toBe(0)
    await fed(residency, b, [3])
    for (const context of [a, d]) await fed(residency, context, [4])
    expect(residency.stats).toMatchObject({ spillReads: 1, spillWrites: 2 })
    await residency.close()
  })

  it('never was busy: what is in work stays in memory, and others wait in order', async () => {
    const { model, residency } = await spilling(2)
    const contexts = Array.from({ length: 30 }, (_, n) => residency.createContext(`s${n}`))
    const order: number[] = []
    let most = 0
    await Promise.all(
      contexts.map(async (context, n) => {
        const call = fed(residency, context, ids(n, 3, 40))
        expect(await errorOf(() => context.state())).toMatchObject({ code: 'MISUSE' })
        expect(await errorOf(() => fed(residency, context, [1]))).toMatchObject({ code: 'MISUSE' })
        await call
        order.push(n)
        most = Math.max(most, residency.stats.residentBytes)
      }),
    )
    // There are two at a time, so one may end before the one that came before it, and before no other.
    expect(order.map((n, at) => Math.abs(n - at)).filter((places) => places > 1)).toEqual([])
    expect(most).toBe(2 * model.contextBytes)
    expect(residency.stats).toMatchObject({ resident: 2, spilled: 28, spillWrites: 28 })
    for (const [n, context] of contexts.entries()) await expectSame(context, await alone(model, ids(n, 3, 40)))
    await residency.close()
  })

  it('larger than the bound goes alone, and works', async () => {
    const { model, residency } = await spilling(0.5)
    const [a, b] = [residency.createContext(), residency.createContext()]
    for (let n = 0; n < 5; n += 1) {
      await Promise.all([fed(residency, a, [n]), fed(residency, b, [n + 1])])
      expect(residency.stats.residentBytes).toBe(model.contextBytes)
    }
    // Alone it does not go to and fro.
    const before = residency.stats.spillReads
    for (let n = 0; n < 5; n += 1) await fed(residency, b, [n])
    expect(residency.stats.spillReads - before).toBeLessThanOrEqual(1)
    await expectSame(a, await alone(model, [0, 1, 2, 3, 4]))
    await residency.close()
  })
})

describe('a context whose state stopped being finite', () => {
  it('stays where it is: no spill file could bring it back, and only a reset or a restore does', async () => {
    const { model, residency } = await spilling(1)
    const [broken, other] = [residency.createContext('broken'), residency.createContext('other')]
    const state = await broken.state()
    const view = new DataView(state.buffer, state.byteOffset, state.length)
    for (let at = 0; at < state.length; at += 4) view.setFloat32(at, 3e38, true)
    await broken.load(state, { pulse: 4n, origin: 0n, chain: broken.chain })
    expect((await errorOf(() => fed(residency, broken, [1]))).message).toContain('finite')
    await fed(residency, other, [1, 2])
    // It is the other one that makes room.
    const made = { spilled: 1, spillReads: 0, residentBytes: model.contextBytes }
    await vi.waitFor(() => expect(residency.stats).toMatchObject(made))
    expect((await errorOf(() => fed(residency, broken, [1]))).message).toMatch(/reset|restore/)
    expect(residency.stats).toMatchObject({ spilled: 1, spillReads: 0 })
    await broken.restart()
    await fed(residency, broken, [1, 2])
    await fed(residency, other, [3])
    // Again one of many, and out of the way.
    expect(residency.stats).toMatchObject({ resident: 1, spilled: 1, residentBytes: model.contextBytes })
    expect(broken.origin).toBe(5n)
    await expectSame(other, await alone(model, [1, 2, 3]))
    await residency.close()
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
    const { model, residency, files } = await spilling(1)
    const [a, b, c] = ['a', 'b', 'c'].map((name) => residency.createContext(name)) as [Context, Context, Context]
    await fed(residency, a, [1])
    await fed(residency, b, [2])
    const [path] = files()
    damage[what]!(path!)
    const calls = await Promise.allSettled([fed(residency, c, [3]), fed(residency, a, [2]), fed(residency, b, [3])])
    expect(calls.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    const { reason } = calls[1] as PromiseRejectedResult
    expect(reason).toBeInstanceOf(SpillLost)
    expect(reason).toMatchObject({ code: 'REFUSED', message: expect.stringContaining(`session "a", ${path}`) })
    await expect(a.state()).rejects.toThrow(SpillLost)
    await expect(fed(residency, a, [2])).rejects.toThrow(SpillLost)
    await expectSame(b, await alone(model, [2, 3]))
    await expectSame(c, await alone(model, [3]))
    // What it was can come back from elsewhere.
    const old = await alone(model, [1])
    await a.load(await old.state(), old)
    await fed(residency, a, [2])
    await expectSame(a, await alone(model, [1, 2]))
    await residency.close()
  })
})

describe('the folder of the spill files', () => {
  it('that cannot be written is an error when it was asked for', async () => {
    const model = await open(dir)
    const file = join(temporaryFolder(), 'file')
    writeFileSync(file, '')
    const { code, message } = await errorOf(() => createResidency(model, { spillDir: file }))
    expect(code).toBe('DENIED')
    expect(message).toContain(file)
  })

  it('that is lost later costs memory, not work: the context stays, a warning says why, and the disk is tried again', async () => {
    const warnings: string[] = []
    const { model, residency, spillDir } = await spilling(1, { warn: (message) => warnings.push(message) })
    rmSync(spillDir, { recursive: true })
    const [a, b] = [residency.createContext('a'), residency.createContext('b')]
    for (const n of [1, 2, 3]) {
      await fed(residency, a, [n])
      await fed(residency, b, [n])
    }
    expect(residency.stats).toMatchObject({ resident: 2, spilled: 0, residentBytes: 2 * model.contextBytes })
    expect(warnings[0]).toMatch(/cannot be spilled to .*stays in memory/)
    // Not once for each call.
    expect(warnings).toHaveLength(residency.stats.failures)
    expect(warnings.length).toBeLessThan(4)
    await expectSame(a, await alone(model, [1, 2, 3]))
    await residency.close()
  })

  it('is closed to others, belongs to one process, and is swept when that process is gone', async () => {
    const base = temporaryFolder()
    const spills = openSpillFolder(base)
    const file = await spills.write(Uint8Array.of(1, 2, 3))
    const gone = join(
      base,
      file.path
        .slice(base.length + 1)
        .split('/')[0]!
        .replace(`~${process.pid}~`, '~4194305~'),
    )
    mkdirSync(gone)
    const foreign = join(base, 'continuo-pages~another.host~4194305~abc')
    mkdirSync(foreign)
    const second = openSpillFolder(base)
    expect([existsSync(gone), existsSync(foreign), existsSync(file.path)]).toEqual([false, true, true])
    expect([...(await spills.read(file, 'x'))]).toEqual([1, 2, 3])
    second.close()
    spills.close()
    expect(readdirSync(base)).toEqual(['continuo-pages~another.host~4194305~abc'])
  })

  it('is made beside what another user left there and nobody else may remove', async () => {
    const base = temporaryFolder()
    const spills = openSpillFolder(base)
    const left = spills.dir!.replace(`~${process.pid}~`, '~4194305~')
    mkdirSync(left)
    writeFileSync(join(left, '1.page'), '')
    chmodSync(left, 0o555)
    chmodSync(base, 0o777)
    const root = process.geteuid!() === 0
    try {
      // Root may remove anything.
      if (root) process.seteuid!(65_534)
      const second = openSpillFolder(base)
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
