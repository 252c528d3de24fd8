/** What every store of blobs promises (src/blobs/store.ts). Nothing here knows where the bytes lie. */
import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { tryBlobStore } from '../../src/blobs/open.ts'
import { inShared, markIn, nameIn } from '../../src/blobs/shared.ts'
import type { BlobReader, BlobStore, SharedStore, Wanted } from '../../src/blobs/store.ts'

const bytesOf = (length: number, seed: number): Uint8Array => {
  const bytes = new Uint8Array(length)
  for (let at = 0; at < length; at += 1) bytes[at] = at * 31 + seed
  return bytes
}
const hashOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

const namesOf = async (store: SharedStore, folder: string): Promise<readonly string[]> => {
  const names: string[] = []
  for await (const name of store.list(folder)) names.push(name)
  return names.sort()
}

const putting = async (store: BlobStore, bytes: Uint8Array): Promise<Wanted> => {
  const hash = hashOf(bytes)
  return { hash, place: await store.put(hash, bytes), bytes: bytes.length }
}

/** What is found for each, with each asked for once. */
const getting = async (store: BlobReader, wanted: readonly Wanted[]): Promise<readonly (Uint8Array | null)[]> => {
  const found: (Uint8Array | null | undefined)[] = wanted.map(() => undefined)
  await store.get(wanted, async (at, bytes) => {
    expect(found[at], `a second answer for ${at}`).toBeUndefined()
    found[at] = bytes
  })
  return found.map((each) => {
    if (each === undefined) throw new Error('one was not answered')
    return each
  })
}

const isEqual = (a: Uint8Array | null, b: Uint8Array): boolean => a !== null && Buffer.compare(a, b) === 0

/** `use` opens a store that is empty, and closes it. */
export const contract = (name: string, use: (claim: (store: BlobStore) => Promise<void>) => Promise<void>): void => {
  describe(`the blobs of a partition in ${name}`, () => {
    test('come back as they were put, of any length, in any order, also when they are put at the same time', () =>
      use(async (store) => {
        const all = [1, 4096, 3_000_001, 900_000, 900_001, 77, 1_800_000].map((size, at) => bytesOf(size, at))
        const names = await Promise.all(all.map((bytes) => putting(store, bytes)))
        const order = [3, 0, 6, 5, 2, 4, 1]
        const found = await getting(
          store,
          order.map((at) => names[at]!),
        )
        expect(order.map((at, i) => isEqual(found[i]!, all[at]!))).toEqual(order.map(() => true))
      }))

    test('one that is asked for twice is given twice', () =>
      use(async (store) => {
        const bytes = bytesOf(1_000_000, 3)
        const name = await putting(store, bytes)
        const found = await getting(store, [name, name])
        expect(found.map((each) => isEqual(each, bytes))).toEqual([true, true])
      }))

    test('that are not there are null, beside those that are', () =>
      use(async (store) => {
        const [a, b] = [bytesOf(5000, 1), bytesOf(5000, 2)]
        const first = await putting(store, a)
        const second = await putting(store, b)
        const none = { ...first, place: 'ffffffffff' }
        const wrong = { ...second, hash: first.hash }
        const found = await getting(store, [none, second, wrong, first])
        expect(found[0]).toBeNull()
        expect(found[2]).toBeNull()
        expect(isEqual(found[1]!, b) && isEqual(found[3]!, a)).toBe(true)
        expect(await getting(store, [])).toEqual([])
      }))

    test('two copies of the same bytes have places of their own, and each is whole', () =>
      use(async (store) => {
        const bytes = bytesOf(2_500_000, 9)
        const [one, two] = await Promise.all([putting(store, bytes), putting(store, bytes)])
        expect(one.place).not.toBe(two.place)
        for (const name of [one, two]) expect(isEqual((await getting(store, [name]))[0]!, bytes)).toBe(true)
      }))

    test('a fault of who receives them ends the reading', () =>
      use(async (store) => {
        const names = [await putting(store, bytesOf(10, 1)), await putting(store, bytesOf(10, 2))]
        const reading = store.get(names, async () => {
          throw new Error('no room')
        })
        await expect(reading).rejects.toThrow('no room')
      }))
  })
}

/** The same for a store that is shared, and what only such a store can do. */
export const sharedContract = (
  name: string,
  use: (claim: (store: SharedStore) => Promise<void>) => Promise<void>,
): void => {
  /** The blobs of a partition, whose folder has its mark. */
  const marked = async (store: SharedStore): Promise<BlobStore> => {
    await store.begin('log/0')
    await store.put(markIn('log/0'), bytesOf(8, 1))
    return inShared(store, 'log/0')
  }
  contract(name, (claim) => use(async (store) => claim(await marked(store))))

  describe(`the blob store in ${name}`, () => {
    test('gives back what was put, of any length, and null for what was not', () =>
      use(async (store) => {
        const sizes = [0, 1, 4096, 3_000_001]
        await store.begin('a')
        await Promise.all(sizes.map((size) => store.put(`a/${size}`, bytesOf(size, 7))))
        for (const size of sizes) expect(Buffer.compare((await store.get(`a/${size}`))!, bytesOf(size, 7))).toBe(0)
        expect(await store.get('a/2')).toBeNull()
        expect(await store.get('b/1')).toBeNull()
      }))

    test('has each blob as a file where it says that its blobs are files, and no file for one that is gone', () =>
      use(async (store) => {
        if (store.pathOf === undefined) return
        const blobs = await marked(store)
        const bytes = bytesOf(500_000, 5)
        const blob = await putting(blobs, bytes)
        expect(readFileSync(blobs.pathOf!(blob)).equals(bytes)).toBe(true)
        expect(existsSync(blobs.pathOf!({ ...blob, place: 'f'.repeat(16) }))).toBe(false)
        await store.remove(nameIn('log/0', blob))
        expect(existsSync(blobs.pathOf!(blob))).toBe(false)
      }))

    test('lists the names of one folder and of no other', () =>
      use(async (store) => {
        const wanted = Array.from({ length: 20 }, (_, i) => `log/0/${i}`)
        for (const folder of ['log/0', 'log/00', 'log/1', 'other/0']) await store.begin(folder)
        await Promise.all([...wanted, 'log/00/1', 'log/1/1', 'other/0/1'].map((each) => store.put(each, bytesOf(8, 1))))
        expect(await namesOf(store, 'log/0')).toEqual(wanted.sort())
        expect(await namesOf(store, 'log/2')).toEqual([])
      }))

    test('says how large each blob of a folder is, and which folders there are', () =>
      use(async (store) => {
        const all = async <T>(source: AsyncIterable<T>): Promise<T[]> => {
          const found: T[] = []
          for await (const each of source) found.push(each)
          return found
        }
        expect(await all(store.folders(''))).toEqual([])
        for (const folder of ['log/0', 'log/12', 'other/0']) {
          await store.begin(folder)
          await store.put(`${folder}/a`, bytesOf(5000, 1))
          await store.put(`${folder}/b`, bytesOf(7, 1))
        }
        expect((await all(store.folders(''))).sort()).toEqual(['log', 'other'])
        expect((await all(store.folders('log'))).sort()).toEqual(['log/0', 'log/12'])
        expect(await all(store.folders('nothing'))).toEqual([])
        const sized = (await all(store.sized('log/0'))).sort((a, b) => (a.name < b.name ? -1 : 1))
        expect(sized).toEqual([
          { name: 'log/0/a', bytes: 5000 },
          { name: 'log/0/b', bytes: 7 },
        ])
        expect(await all(store.sized('log/1'))).toEqual([])
        // A folder ends when it is empty, and with the last of them the one that they are in.
        for (const name of ['log/0/a', 'log/0/b', 'other/0/a', 'other/0/b']) await store.remove(name)
        for (const folder of ['log/0', 'other/0', 'other/0']) await store.end(folder)
        expect(await all(store.folders(''))).toEqual(['log'])
        expect(await all(store.folders('log'))).toEqual(['log/12'])
        await store.end('log/12')
        expect((await all(store.sized('log/12'))).length).toBe(2)
      }))

    test('removes a blob, and takes one that is not there for removed', () =>
      use(async (store) => {
        await store.begin('log/0')
        await store.put('log/0/1', bytesOf(8, 1))
        await store.put('log/0/2', bytesOf(8, 2))
        await store.remove('log/0/1')
        await store.remove('log/0/1')
        await store.remove('log/9/1')
        expect(await store.get('log/0/1')).toBeNull()
        expect(await namesOf(store, 'log/0')).toEqual(['log/0/2'])
      }))

    test('two that put the same name leave the bytes of one of them', () =>
      use(async (store) => {
        const [a, b] = [bytesOf(200_000, 1), bytesOf(200_000, 2)]
        await store.begin('log/0')
        await store.put('log/0/1', a)
        await store.put('log/0/1', b)
        expect(Buffer.compare((await store.get('log/0/1'))!, b)).toBe(0)
      }))

    test('a blob that is missing is lost only beside the mark of its folder: without that the store is away', () =>
      use(async (store) => {
        const blobs = await marked(store)
        const blob = await putting(blobs, bytesOf(100, 1))
        await store.remove(nameIn('log/0', blob))
        expect(await getting(blobs, [blob])).toEqual([null])
        await store.remove(markIn('log/0'))
        await expect(getting(blobs, [blob])).rejects.toMatchObject({
          code: 'UNAVAILABLE',
          message: expect.stringContaining('it has no log/0/log'),
        })
      }))

    test('can say that it works, and leaves nothing of the attempt', () =>
      use(async (store) => {
        await tryBlobStore(store)
        expect(await namesOf(store, 'ping')).toEqual([])
      }))
  })
}
