/** A graph that is run step by step, and the plan of a block: for tests, traces and people who look. */
import type { EngineContext } from './context.ts'

/** Work of one node in a step. */
export interface TraceEntry {
  /** Its name in the graph. */
  readonly node: string
  /** Shape of one row of its result. */
  readonly shape: readonly number[]
  /** Rows of the step. */
  readonly rows: number
  /** Time it took. */
  readonly microseconds: number
  /** Bytes of the values and constants that it read and wrote, without state. */
  readonly bytes: number
}

/** How an executor runs a graph. */
export interface ExecutorOptions {
  /** A context of this model; default: a new one. */
  readonly context?: EngineContext
  /**
   * Plan volatile memory by liveness; default true. Without it every volatile keeps its own memory and can be fetched.
   */
  readonly memoryReuse?: boolean
  /** Time every node. */
  readonly trace?: boolean
  /** Look after every node whether it gave a number that is not finite; a step then rejects, naming the first. */
  readonly watch?: boolean
}

/** Numbers of a variable: floats narrower than f32 as their bits. */
export type Numbers = Float32Array | Uint16Array | Uint8Array | Int8Array | Int32Array | BigInt64Array

/** Numbers of a variable, with dtype and shape. */
export interface Fetched {
  /** As safetensors names it; of a tensor in blocks as GGUF does: Q4_K. */
  readonly dtype: string
  /** Of a volatile: rows first. */
  readonly shape: readonly number[]
  /** Blocks, and dtypes that have no array here, as bytes. */
  readonly data: Numbers
  /** Of a quantised constant as the file has it: its scales. */
  readonly scales?: Fetched
}

/** How a constant is fetched. */
export interface FetchOptions {
  /**
   * Constants only: the numbers that operations compute with, in f32, in the shape that the graph declares. Default
   * false: as the file has them.
   */
  readonly widened?: boolean
}

/** Runs a graph step by step, under the caller's eyes: `insert`, `step`, `fetch`. */
export interface Executor {
  /** The context that its steps move. */
  readonly context: EngineContext
  /**
   * One or more rows of a dynamic, one after the other. Throws MISUSE for what the host may not write, INVALID for a
   * wrong length or type.
   */
  insert(name: string, rows: Numbers | readonly number[]): void
  /**
   * Runs a block (default: the first) over the inserted rows. Rejects with INVALID when an input is missing or their
   * numbers of rows differ, with REFUSED when a row cannot be done.
   */
  step(block?: string): Promise<void>
  /**
   * A persistent, a volatile of the last step, or a constant: of a family a member, `W(2)`. A constant comes as its
   * tensor stands in the file, which is read again; or `widened`, from the engine's memory. Throws MISUSE for a
   * dynamic, for a volatile whose memory was given on and for a family without its member; INVALID for a member that is
   * not there or a constant above 2 GiB; REFUSED where the file is gone or lacks the tensor.
   */
  fetch(name: string, options?: FetchOptions): Fetched
  /** Each node of the last step: op, shape, rows, time, bytes. Throws MISUSE unless the executor traces. */
  trace(): readonly TraceEntry[]
}

/** Where a volatile lies while its block runs, and from which line to which it is alive. */
export interface PlannedValue {
  readonly name: string
  /** Bytes of one row. */
  readonly bytes: number
  readonly offset: number
  readonly first: number
  readonly last: number
}

/** A block as the engine will run it: loops unrolled, memory planned. */
export interface BlockPlan {
  /** Of the block. */
  readonly name: string
  /** Rows that a step may have. */
  readonly rows: number
  /** Instructions, loops unrolled. */
  readonly lines: number
  /** Bytes of one row: the arena with volatiles planned by liveness, and with memory of its own for each. */
  readonly peak: number
  /** Bytes of one row with memory of its own for each volatile. */
  readonly peakWithoutReuse: number
  /** Lines that run together: all rows at once, row by row, or rows one after the other. */
  readonly stages: readonly {
    readonly order: 'row_parallel' | 'row_local' | 'row_serial'
    readonly first: number
    readonly last: number
  }[]
  /** Where its volatiles lie. */
  readonly values: readonly PlannedValue[]
}
