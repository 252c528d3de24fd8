/** What every store of blobs promises (src/blobs/store.ts). Nothing here knows where the bytes lie. */
import { describe, expect, test } from 'vitest'
import { tryBlobStore } from '../../src/blobs/open.ts'
import type { BlobStore } from '../../src/blobs/store.ts'

const bytes = (length: number, seed: number): Uint8Array =>
  Uint8Array.from({ length }, (_, at) => (at * 31 + seed) & 0xff)

const namesOf = async (store: BlobStore, folder: string): Promise<readonly string[]> => {
  const names: string[] = []
  for await (const name of store.list(folder)) names.push(name)
  return names.sort()
}

/** `use` opens a store that is empty, and closes it. */
export const contract = (name: string, use: (claim: (store: BlobStore) => Promise<void>) => Promise<void>): void => {
  describe(`the blob store in ${name}`, () => {
    test('gives back what was put, of any length, and null for what was not', () =>
      use(async (store) => {
        const sizes = [0, 1, 4096, 3_000_001]
        await Promise.all(sizes.map((size) => store.put(`a/${size}`, bytes(size, 7))))
        for (const size of sizes) expect(Buffer.compare((await store.get(`a/${size}`))!, bytes(size, 7))).toBe(0)
        expect(await store.get('a/2')).toBeNull()
        expect(await store.get('b/1')).toBeNull()
      }))

    test('lists the names of one folder and of no other', () =>
      use(async (store) => {
        const wanted = Array.from({ length: 20 }, (_, i) => `log/0/${i}`)
        await Promise.all([...wanted, 'log/00/1', 'log/1/1', 'other/0/1'].map((each) => store.put(each, bytes(8, 1))))
        expect(await namesOf(store, 'log/0')).toEqual(wanted.sort())
        expect(await namesOf(store, 'log/2')).toEqual([])
      }))

    test('removes a blob, and takes one that is not there for removed', () =>
      use(async (store) => {
        await store.put('log/0/1', bytes(8, 1))
        await store.put('log/0/2', bytes(8, 2))
        await store.remove('log/0/1')
        await store.remove('log/0/1')
        await store.remove('log/9/1')
        expect(await store.get('log/0/1')).toBeNull()
        expect(await namesOf(store, 'log/0')).toEqual(['log/0/2'])
      }))

    test('two that put the same name leave the bytes of one of them', () =>
      use(async (store) => {
        const [a, b] = [bytes(200_000, 1), bytes(200_000, 2)]
        await store.put('log/0/1', a)
        await store.put('log/0/1', b)
        expect(Buffer.compare((await store.get('log/0/1'))!, b)).toBe(0)
      }))

    test('can say that it works, and leaves nothing of the attempt', () =>
      use(async (store) => {
        await tryBlobStore(store)
        expect(await namesOf(store, 'ping')).toEqual([])
      }))
  })
}
