/** Where the matrices of a model's experts lie in its files: what a store is packed from (docs/experts.md). */

/** How the numbers of experts are stored; the names of native/experts/record.h. */
export type ExpertCoding = 'q8' | 'i4' | 'ternary3' | 'ternary2' | 'f32' | 'f16' | 'bf16'

/** What all experts of a package have in common. */
export interface ExpertSizes {
  readonly coding: ExpertCoding
  /** Experts of a layer. */
  readonly experts: number
  /** Inputs of gate and up, outputs of down. */
  readonly channels: number
  /** Outputs of gate and up, inputs of down. */
  readonly inner: number
  /** Inputs that share a scale; 0: floats. */
  readonly group: number
  /** Columns and rows of the torus on which they lie; null: on none. */
  readonly torus: readonly [columns: number, rows: number] | null
}

/** Part of a file. */
export interface Slice {
  readonly file: number
  readonly offset: number
  readonly bytes: number
}

/** The codes of a matrix, row-major, and its scales; null: floats. */
export interface MatrixPlace {
  readonly codes: Slice
  readonly scales: Slice | null
}

export interface ExpertsSource {
  readonly dir: string
  readonly files: readonly string[]
  readonly sizes: ExpertSizes
  /** Numbers of the layers with experts. */
  readonly layers: readonly number[]
  /**
   * Gate, up and down of each expert of a layer, one behind the other. Throws INVALID where the files have them
   * otherwise than config.json says.
   */
  placesOf(layer: number): readonly MatrixPlace[]
  /** What the package says the digest of its experts is; null: nothing. */
  readonly digest: string | null
}
