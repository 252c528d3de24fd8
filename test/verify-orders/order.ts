/**
 * An order: what happens to a log from its first event to the moment at which `verify` reads it. It is plain JSON, so
 * that an order that failed is kept as a file of `cases/` and read again.
 */
import type { Failpoint } from '../../src/failpoint.ts'
import type { ChunkInput } from '../../topics/chunks.ts'

/** One record of the input: its session, and its event; a string is the value as it is, for what is no event. */
export type Fed = readonly [session: string, event: ChunkInput | string]

/** Settings of a worker: those that move where commits fall, what is saved and what is removed. */
export interface Settings {
  readonly snapshotEvery: number
  /** ms */
  readonly commitInterval: number
  readonly maxContexts: number
  /** How long an event keeps its context while others wait for one, ms; default: that of a worker. */
  readonly roomTurn?: number
  /** How long an adaptation may compute, ms; default: that of a worker. */
  readonly adaptTime?: number
  readonly compactFloor: number
  readonly sessionShare: number
  /** Memory for about two contexts: others go to files. Of a worker in a process of its own it is always so. */
  readonly tight: boolean
}

/**
 * How a worker ends: when all is read; by a stop at its n-th commit; or by SIGKILL, where it passes a failpoint for the
 * n-th time. One that never passes it ends when all is read.
 */
export type End = 'idle' | { readonly stopAt: number } | { readonly killAt: `${Failpoint}@${number}` }

/**
 * What an operator does between two workers. `gc`: `continuo blobs gc`. `purge`: what `continuo delete` does behind the
 * event. `trim`: the input goes that no session needs any more, as a retention does it. `erase`: the records of a
 * session that is deleted (embedded log only).
 */
export type Deed = 'gc' | 'purge' | 'trim' | { readonly erase: string }

/** One worker, what it reads, and what comes behind it. */
export interface Run {
  readonly events: readonly Fed[]
  /** Come while it works, behind its first commit. */
  readonly late: readonly Fed[]
  readonly settings: Settings
  readonly end: End
  readonly deeds: readonly Deed[]
}

export interface Order {
  /** A key of models.ts. */
  readonly model: string
  readonly partitions: number
  readonly runs: readonly Run[]
}

export const eventsOf = ({ runs }: Order): number =>
  runs.reduce((sum, { events, late }) => sum + events.length + late.length, 0)
