/** How a model is opened: where it runs, what it keeps in memory, how it guesses. */

/** Where a model runs; its numbers are the same bits on both. */
export type DeviceKind = 'cpu' | 'cuda'

/** What happens at a model's last position: refuse, or go on over the last positions. */
export type Overflow = 'refuse' | 'window'

/** How keys and values of a cache are kept. */
export type CacheDtype = 'f32' | 'f16' | 'bf16'

/** Bounds of `stepTarget`, and what it is where nothing is said. */
export const STEP_TARGET = { min: 1.1, max: 1000, usual: 2 } as const

/** Bounds of `Speculation.tokens`, and what it is where a draft model is given and nothing is said. */
export const SPECULATION = { min: 0, max: 64, drafting: 8 } as const

/** Bounds of `OpenModelOptions.draftBytes`, and what it is where nothing is said. */
export const DRAFT_BYTES = { min: 0, max: 2 ** 40, usual: 2 ** 28 } as const

/**
 * Guesses of the tokens that sessions draw next: a step judges them all in one pass over the weights, and keeps those
 * that are drawn. No result depends on it (docs/speculation.md).
 */
export interface Speculation {
  /** Guesses of a session in a step, at most; 0: none. Bounds: `SPECULATION`. */
  readonly tokens: number
  /**
   * Default true: as many as raise the tokens per second, by what was measured. False: as many as there are, whatever
   * they cost.
   */
  readonly adapt?: boolean
}

/** How the experts of a store are kept in memory and read. */
export interface ExpertOptions {
  /**
   * Where a mixture of others has a store beside its weights: `store` (default) reads its experts from there, `weights`
   * keeps them in memory.
   */
  readonly from?: 'store' | 'weights'
  /** Bound of the records in memory; default: half of the memory that is available. At least two of the largest. */
  readonly bytes?: number
  /**
   * On a device with memory of its own: bound of the experts that it keeps there; default: half of its memory that is
   * free when the model is open. Two of the largest are there in any case.
   */
  readonly deviceBytes?: number
  /** `direct` (default): past the page cache where the file system allows it. */
  readonly io?: 'direct' | 'buffered'
  /**
   * `automatic` (default): io_uring where the kernel allows it, else threads. `mapped`: page faults, for comparison;
   * with `io` buffered.
   */
  readonly backend?: 'automatic' | 'io_uring' | 'threads' | 'mapped'
  /** Reads of at most 1 MiB that are on their way at once, 8 to 32; default 16. */
  readonly depth?: number
  /** What leaves memory first; default `score` (docs/experts.md). */
  readonly policy?: 'score' | 'lfu' | 'lru'
  /** Whether an expert may be made of a neighbour in memory and their difference on disk; default true. */
  readonly deltas?: boolean
  /** Whether routes of the next layers are read ahead; default true. */
  readonly lookAhead?: boolean
  /** Whether frequencies.bin beside the store is read and written; default true. */
  readonly frequencies?: boolean
}

/** How a model is opened. */
export interface OpenModelOptions {
  /** Of a model whose experts lie in a store. */
  readonly experts?: ExpertOptions
  /**
   * What happens at the last position of a model that has one (GPT-2): `refuse` (the default), or `window`: attention
   * sees the last n_positions tokens, and position p takes the learned vector of p mod n_positions, for which the model
   * was not trained. Another model to all that checks fingerprints.
   */
  readonly overflow?: Overflow
  /**
   * How the keys and values that `attend` reads are kept: rounded to f16 or bf16 they take half the memory, and the
   * model is another one to all that checks fingerprints. Default: `cache_dtype` of config.json, else f32.
   */
  readonly cacheDtype?: CacheDtype
  /** The plain decoder, also where a memory.json lies beside its config.json. */
  readonly withoutMemory?: boolean
  /** Engine threads; default: the number of CPUs available, at most 16. */
  readonly threads?: number
  /**
   * Where the model runs; either way its numbers are the same bits. `auto` (the default) takes a CUDA device where
   * there is one that can be used (`cudaStatus`), else the CPU; `cuda` is UNAVAILABLE where there is none. The first
   * device that CUDA shows is taken: CUDA_VISIBLE_DEVICES chooses.
   */
  readonly device?: DeviceKind | 'auto'
  /**
   * While any context generates, a step takes at most about this many times what it takes without rows that read;
   * without generating rows steps are as large as they can be. More serves readers, less those that wait for tokens.
   * Bounds and default: `STEP_TARGET`.
   */
  readonly stepTarget?: number
  /** Default: what the variable CONTINUO_SPECULATE says (`N` or `N,always`), else no guesses; with a `draftModel` 8. */
  readonly speculate?: Speculation
  /**
   * A smaller package with the same tokenizer, on the CPU as this one: it guesses what sessions draw next, where their
   * own past does not guess better. It changes no result, no fingerprint and no log (docs/speculation.md).
   */
  readonly draftModel?: string
  /**
   * What its contexts take at most, in bytes; beyond it those go that were not used for longest. Bounds and default:
   * `DRAFT_BYTES`.
   */
  readonly draftBytes?: number
  /**
   * Use packed weights that lie beside the model or in Continuo's cache, and keep them in the cache for the next time
   * (`Model.keepPacked`); default true.
   */
  readonly keepPacked?: boolean
  /** Told of each phase of opening, when it has ended, with its duration in ms. */
  readonly onPhase?: (phase: string, ms: number) => void
  /**
   * Where to say that kept weights were of no use, or that tokenizer.json overrules config.json; default:
   * process.emitWarning.
   */
  readonly warn?: (message: string) => void
  /**
   * Look after every node whether it gave a number that is not finite, and name the first where a state breaks. Slower.
   */
  readonly watch?: boolean
  /**
   * Tensors of matrices: `Model.moments` gives what was multiplied with them. Takes 4 · inputs² bytes for each; on the
   * CPU alone.
   */
  readonly moments?: readonly string[]
}
