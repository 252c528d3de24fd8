/**
 * Two ports. `BlobStore` keeps the blobs of one partition: immutable runs of bytes, each named by its sha256 and by the
 * *place* of this copy of it. It has three adapters: a folder and S3, which are shared among partitions and logs
 * (shared.ts), and the topic of the partition (operators/blobs/topic.ts).
 *
 * The port asks for a place instead of taking a name, and neither lists nor removes, because a topic can do neither: a
 * record's offset is known once it is written, and what is dead leaves by a trim of all that lies before it. How dead
 * blobs leave is therefore a matter of each kind: operators/blobs/sweep.ts and operators/blobs/trim.ts.
 *
 * Three rules hold for all (docs/architecture.md, Blobs): no copy is written over another, a record names a blob only
 * when the blob is durable, and a blob is removed only by who owns its partition, once no record names it.
 */

/**
 * A blob as a manifest names it: the sha256 of its bytes, and what tells this copy of it from others. Hexadecimal, 64
 * and 16 digits.
 */
export interface BlobName {
  readonly hash: string
  readonly place: string
}

/** A blob to be read, with its size. */
export interface Wanted extends BlobName {
  readonly bytes: number
}

export interface BlobReader {
  /** Where, for messages; without credentials. */
  readonly url: string
  /**
   * Calls `found` once for each of `wanted`, by its index there and in any order, with what is stored, which may be
   * damaged: where the log refuses to read it, it is empty. null: there is none, and the store itself is there. Several
   * calls of `found` may be under way at once; the next one waits for one of them. Rejects with UNAVAILABLE or DENIED
   * where the store gives no answer. An error of `found` rejects the call with that error.
   */
  get(wanted: readonly Wanted[], found: (at: number, bytes: Uint8Array | null) => Promise<void>): Promise<void>
  /** Where blobs are files: the path of this one, if it is there. Who cannot use the file asks `get`. */
  pathOf?(blob: BlobName): string
}

export interface BlobStore extends BlobReader {
  /**
   * Resolves, with the place, when the bytes are durable. Rejects with UNAVAILABLE or DENIED, in a topic with FENCED.
   */
  put(hash: string, bytes: Uint8Array): Promise<string>
}

/**
 * The port to a store that is shared: runs of bytes under names, a folder and a slash in front. A name is written once.
 */
export interface SharedStore {
  /** As given, without credentials. */
  readonly url: string
  /**
   * Begins a folder: to be called once before the first name in it is put. Where a folder that was begun is missing
   * later, the store is away (not mounted, say), and what were written in its place would be gone when it comes back.
   */
  begin(folder: string): Promise<void>
  /**
   * Resolves when the bytes are durable under the name. Rejects with UNAVAILABLE or DENIED, also where its folder is
   * missing; a part of a blob is never seen.
   */
  put(name: string, bytes: Uint8Array): Promise<void>
  /** null: there is none. Rejects with UNAVAILABLE or DENIED where that cannot be told. */
  get(name: string): Promise<Uint8Array | null>
  /** Where what it keeps are files: the path of the one under this name, if it is there. */
  pathOf?(name: string): string
  /** One that is not there is removed already. Rejects with UNAVAILABLE or DENIED. */
  remove(name: string): Promise<void>
  /** Names that begin with `folder` and a slash, in no order; what a killed writer left of a name counts as one. */
  list(folder: string): AsyncIterable<string>
  /** The same with the bytes of each, which a folder has to be asked for one by one. */
  sized(folder: string): AsyncIterable<{ readonly name: string; readonly bytes: number }>
  /** Folders in this one, by their whole names; in the store itself where it is ''. */
  folders(folder: string): AsyncIterable<string>
  /** Ends a folder that was begun and is empty again. */
  end(folder: string): Promise<void>
  /** Ends connections. */
  close(): void
}
