/** What the addon does for expert stores (native/binding/experts.cc). */
import { loadAddon } from '../addon.ts'
import { awaitNative, callNative } from '../engine/native.ts'
import type { ExpertCoding } from './source.ts'

/** What packing or checking a layer found. */
export interface LayerReport {
  /** Number of the layer in the model. */
  readonly layer: number
  readonly coding: ExpertCoding
  readonly channels: number
  readonly inner: number
  readonly group: number
  readonly fileBytes: number
  /** Of one expert: with padding, and without. */
  readonly recordBytes: number
  readonly payloadBytes: number
  readonly experts: number
  /** Pairs of neighbours on the torus; 0 where they were not compared. */
  readonly pairs: number
  readonly deltas: number
  /** Of all deltas, without padding. */
  readonly deltaBytes: number
  /** Of the pairs: the share of trits that differ. 0 for other codings. */
  readonly trits: { readonly mean: number; readonly least: number; readonly most: number }
  /** The source digest of the layer: 64 hexadecimal digits. */
  readonly digest: string
}

/**
 * Records of a layer's file read at random past the page cache, `depth` pieces of 128 KiB at once: what the disk gives
 * by itself. `one`: a record begins when the one before it has ended.
 */
export const measureReads = (
  path: string,
  reads: number,
  depth: number,
  one: boolean,
): Promise<{ readonly bytes: number; readonly seconds: number; readonly direct: boolean }> =>
  awaitNative((addon) => addon.measureReads(path, reads, depth, one, 'automatic'))

/** Drops a file's pages from the page cache, as far as the system does. */
export const dropPages = (path: string): void => callNative((addon) => addon.dropPages(path))

export interface PackLayerRequest {
  readonly path: string
  readonly layer: number
  readonly coding: ExpertCoding
  readonly channels: number
  readonly inner: number
  readonly group: number
  /** 0, 0: no torus. */
  readonly columns: number
  readonly rows: number
  readonly files: readonly string[]
  /** Of each matrix: file, offset and bytes of the codes, offset and bytes of the scales. */
  readonly places: Float64Array
  readonly threads: number
}

interface Experts {
  packExperts(request: PackLayerRequest): Promise<LayerReport>
  checkExperts(path: string, threads: number): Promise<LayerReport>
  exchange(a: string, b: string): boolean
}

const experts = (): Experts => loadAddon() as Experts

/** Writes one file of a store. Throws INVALID, REFUSED or UNAVAILABLE. */
export const packLayer = (request: PackLayerRequest): Promise<LayerReport> =>
  awaitNative(() => experts().packExperts(request))

/** Reads all of one file of a store. Throws REFUSED with the first fault, or UNAVAILABLE. */
export const checkLayer = (path: string, threads: number): Promise<LayerReport> =>
  awaitNative(() => experts().checkExperts(path, threads))

/** Puts two paths in each other's place in one step. False where the file system cannot. */
export const exchange = (a: string, b: string): boolean => experts().exchange(a, b)
