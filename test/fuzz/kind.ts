/**
 * What the fuzzers need to know of a format. A new one is a file in kinds/ that exports `open`: it makes good inputs,
 * damages them by a random source, and hands them to whoever reads that format. All else is here: who runs them, for
 * how long, what counts.
 */
import type { Random } from './mutate.ts'

export interface Kind {
  /** Names of the good inputs that are damaged; a file of the corpus begins with one and a dot. */
  readonly bases: readonly string[]
  /** A damaged input: of `base` and `random` alone. */
  readonly make: (base: string, random: Random) => Uint8Array
  /**
   * Reads an input and resolves with one word for how it ended. Rejects with a ContinuoError where the input is
   * refused; anything else it rejects with is a finding.
   */
  readonly run: (base: string, input: Uint8Array) => Promise<string>
  readonly close: () => Promise<void>
}

/** `folder` is empty, and goes away afterwards. */
export type OpenKind = (folder: string) => Promise<Kind>
