/**
 * The port to a store of blobs: immutable runs of bytes, each written once under a name of its own. Three rules make it safe to share
 * among workers, and each caller keeps them (docs/architecture.md, Blobs): nobody writes a name twice, a record names a blob only when
 * the blob is durable, and a blob is removed only by who owns its partition, once no record names it.
 */
export interface BlobStore {
  /** As given, without credentials. */
  readonly url: string
  /** Resolves when the bytes are durable under the name. Rejects with UNAVAILABLE or DENIED; a part of a blob is never seen. */
  put(name: string, bytes: Uint8Array): Promise<void>
  /** null: there is none. Rejects with UNAVAILABLE or DENIED where that cannot be told. */
  get(name: string): Promise<Uint8Array | null>
  /** One that is not there is removed already. Rejects with UNAVAILABLE or DENIED. */
  remove(name: string): Promise<void>
  /** Names that begin with `folder` and a slash, in no order; what a killed writer left of a name counts as one. */
  list(folder: string): AsyncIterable<string>
  close(): void
}
