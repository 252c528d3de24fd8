/**
 * The blobs of one partition in a store that others share: in a folder of their own, each under `<sha256>.<place>`. The place is a random
 * number of each copy, so a name is written once and never again: what a sweep found dead cannot come to life under its hands. (The number
 * of the claim would not do: one owner may write the same bytes again after it found them dead.)
 */
import { randomBytes } from 'node:crypto'
import { inParallel } from '../parallel.ts'
import type { BlobName, BlobStore, SharedStore } from './store.ts'

/** Transfers at a time: enough for a disk or a network, and few blocks in memory. */
const READS = 16

export const nameIn = (folder: string, { hash, place }: BlobName): string => `${folder}/${hash}.${place}`

export const inShared = (store: SharedStore, folder: string): BlobStore => ({
  url: store.url,
  async put(hash, bytes) {
    const place = randomBytes(8).toString('hex')
    await store.put(nameIn(folder, { hash, place }), bytes)
    return place
  },
  async get(wanted, found) {
    await inParallel(wanted, READS, async (blob, at) => found(at, await store.get(nameIn(folder, blob))))
  },
  ...(store.pathOf && { pathOf: (blob: BlobName) => store.pathOf!(nameIn(folder, blob)) }),
})
