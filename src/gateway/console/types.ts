/** The JSON that the console's page receives. Types only: the page's modules read this file too. */
import type { Head } from '../../../topics/state.ts'

/** Said once at the beginning of a stream. */
export interface Hello {
  /** Another one for each life of the gateway. */
  readonly instance: string
  readonly log: string
  readonly input: string
  readonly partitions: number
  readonly model: {
    readonly id: string
    readonly type: string
    readonly vocabSize: number
    /** It has a tokenizer. */
    readonly text: boolean
    /** Pulses between two firings of each memory level. */
    readonly levels: readonly number[]
    /** It has an external memory. */
    readonly outerMemory: boolean
    /** Columns and rows of the torus on which its experts lie. */
    readonly torus: readonly [number, number] | null
  }
  /** The gateway is told by workers what only they know. */
  readonly boards: boolean
}

export interface SessionRow {
  readonly id: string
  readonly partition: number
  readonly status: 'open' | 'closed' | 'stopped'
  readonly reason?: string
  readonly from?: string
  readonly phase: string
  readonly pulse: number
  readonly origin: number
  readonly tokens: number
  readonly generated: number
  readonly bits: number | null
  readonly offset: number
  readonly complete: boolean
  readonly generating: boolean
  /** The first eight digits. */
  readonly chain: string
  /** Pulse of the newest snapshot. */
  readonly snapshot: number | null
  readonly archived: number
  /** What its last `open` asked to be reported. */
  readonly settings: Head['settings']
  /** When its newest head was committed, ms since the epoch. */
  readonly at: number
  /** Thousandths of bits per token over stretches of at least 64 pulses, of the last 2,000 pulses; oldest first. */
  readonly trail: readonly number[]
}

export interface PartitionRow {
  readonly partition: number
  readonly group: string | null
  /** The member of the group that has it, shortened. */
  readonly owner: string | null
  /** Of the input: one past its last record, and where everything below is finished; null: not known yet. */
  readonly end: number | null
  readonly offset: number | null
  readonly sessions: number
  /** Of all its sessions together. */
  readonly pulse: number
  readonly commits: number
  /** Of the last commit. */
  readonly at: number | null
  /** Why the gateway cannot follow it. */
  readonly failure?: string
  /** By the worker that has it, where workers are asked. */
  readonly worker?: {
    readonly state: string
    readonly reason?: string
    readonly records: number
    readonly steps: number
    readonly contexts: number
    readonly bytes: number
    readonly commitMs: number | null
  }
}

export interface WorkerRow {
  /** null: in this process. */
  readonly url: string | null
  readonly reachable: boolean
  readonly instance: string | null
  readonly ready: boolean
  readonly device: string | null
  readonly began: number | null
  readonly partitions: number
  readonly residentBytes: number
  readonly resident: number
  readonly spilled: number
  readonly spillBytes: number
  /** Archived blocks of external memories: bytes in memory and in files, and how often one was used from each tier. */
  readonly blocks: {
    readonly bytes: number
    readonly fileBytes: number
    readonly uses: number
    readonly fileUses: number
    readonly storeUses: number
  } | null
  readonly experts: {
    readonly resident: number
    readonly residentBytes: number
    readonly bound: number
    readonly uses: number
    readonly hits: number
  } | null
  readonly engineSteps: number
  readonly engineTokens: number
  readonly speed: number
}

export interface CommitMark {
  readonly partition: number
  readonly at: number
  readonly offset: number
  /** Pulses that it added. */
  readonly pulses: number
  readonly sessions: number
  /** Heads that name another snapshot than before. */
  readonly snapshots: number
}

export interface TimelineEvent {
  readonly seq: number
  readonly at: number
  readonly kind: 'began' | 'lost' | 'resumed' | 'owner' | 'trouble' | 'back' | 'replayed' | 'verified'
  readonly tone: 'quiet' | 'good' | 'bad'
  readonly partition: number | null
  readonly text: string
}

/** Sums since the first record that is still there: the page draws rates from their differences. */
export interface PipelineRow {
  /** Of the input, all partitions: its end, and what is finished. */
  readonly end: number
  readonly offset: number
  readonly lag: number
  readonly read: number
  readonly generated: number
  readonly nats: number
  readonly predictions: number
  readonly commits: number
  readonly deadLetters: number
  readonly sessions: number
  readonly generating: number
  /** By the workers, where they are asked; else null. */
  readonly records: number | null
  readonly steps: number | null
  readonly commitMs: number | null
}

export interface VerifyState {
  readonly state: 'idle' | 'running' | 'done' | 'failed'
  readonly at: number | null
  readonly progress: { readonly partition: number; readonly offset: number; readonly end: number } | null
  readonly result: {
    readonly ok: boolean
    readonly moved: boolean
    readonly seconds: number
    readonly sessions: number
    readonly events: number
    readonly tokens: number
    readonly heads: number
    readonly snapshots: number
    readonly findings: number
    /** The first of them. */
    readonly shown: readonly string[]
  } | null
  readonly error: string | null
}

/** What changed since the last one. */
export interface Frame {
  /** ms since the epoch, of the gateway's clock. */
  readonly at: number
  /** Everything that was in the log at the gateway's start was read. */
  readonly caughtUp: boolean
  readonly pipeline: PipelineRow
  readonly partitions: readonly PartitionRow[]
  readonly workers: readonly WorkerRow[]
  readonly sessions: readonly SessionRow[]
  /** Ids of sessions that were deleted. */
  readonly gone: readonly string[]
  readonly commits: readonly CommitMark[]
  readonly events: readonly TimelineEvent[]
  readonly verify: VerifyState
}

/** A line of a session with "novelty" that may stand out (docs/watch.md). */
export interface FoundLine {
  readonly line: number
  /** It was read at pulses `from` … `to − 1`. */
  readonly from: number
  readonly to: number
  /** ms since the epoch, when it was committed. */
  readonly at: number
  /** By part (structure, values, rate, silence): the share of the last thousand lines with a lower score. */
  readonly ranks: Readonly<Record<string, number>>
  readonly bits: number
  /** Lines of its pattern before it; the first pulses of the first and the last of them, null without one. */
  readonly seen: number
  readonly before: { readonly first: number; readonly last: number } | null
  readonly text: string
  readonly pattern: string
  readonly words: readonly { readonly word: string; readonly bits: number }[]
  /** Other kinds of lines that were found silent here; missing where there are none. */
  readonly silent?: readonly { readonly pattern: string; readonly every: number; readonly lines: number }[]
}

/**
 * Server-sent events about one session. A text is an array of strings: one for each token, or a single string where
 * token boundaries are not known.
 */
export type SessionEvent =
  | {
      readonly type: 'read'
      readonly from: number
      readonly to: number
      readonly offset: number
      readonly text: readonly string[]
      /** Nats of each piece, null for what was not predicted; null: the session does not emit surprisal. */
      readonly nats: readonly (number | null)[] | null
      /** Nats per predicted token. */
      readonly mean: number | null
    }
  | {
      readonly type: 'written'
      readonly from: number
      readonly to: number
      readonly requestId: string
      readonly index: number
      readonly text: readonly string[]
      readonly nats: readonly number[]
      readonly finish: string | null
    }
  | { readonly type: 'mark'; readonly from: number; readonly text: string }
  | {
      readonly type: 'lines'
      /** The numbers of the lines that were told, the first and the last. */
      readonly first: number
      readonly last: number
      /** Those of them that may stand out: with a rank of 0.95 or more, and a score that is anything to look at. */
      readonly found: readonly FoundLine[]
    }
  | { readonly type: 'blocks'; readonly events: readonly Readonly<Record<string, unknown>>[] }
  | {
      readonly type: 'experts'
      readonly from: number
      /** [token][layer][rank] */
      readonly experts: readonly (readonly (readonly number[])[])[]
      /** Draws at which the perspectives were asked. */
      readonly fired: number
      readonly draws: number
    }
  | {
      readonly type: 'memory'
      readonly pulse: number
      readonly norms: readonly {
        readonly name: string
        readonly layer: number
        readonly level: number | null
        readonly norm: number | null
      }[]
      readonly window: { readonly used: number; readonly places: number } | null
      readonly levels: readonly {
        readonly period: number
        readonly memory: number | null
        readonly bufferRatio: number | null
        readonly gates: {
          readonly theta: number | null
          readonly eta: number | null
          readonly alpha: number | null
        } | null
      }[]
    }
