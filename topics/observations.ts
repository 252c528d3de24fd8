import { z } from 'zod'
import { cause, chain, count, endedBy, KEPT, sessionId, type TopicContract } from './common.ts'
import { lineExample, lineNovelty } from './novelty.ts'

const common = { version: z.literal(1), session: sessionId, cause }

export const opened = z.strictObject({ type: z.literal('opened'), ...common, pulse: count })

/**
 * The result of reading one input event. Each text and tokens event gives one; generate, boundary and close give one
 * where they flushed text that the tokenizer held back. With `surprisal`, a record of more than `SURPRISAL_SPAN` tokens
 * gives one for each span, all but the last with `last: false`; with `novelty` one of more than `NOVELTY_SPAN` lines
 * does.
 */
export const observed = z.strictObject({
  type: z.literal('observed'),
  ...common,
  /** The tokens that were read (not generated) were fed at pulses `fromPulse` … `toPulse − 1`. */
  fromPulse: count,
  toPulse: count,
  tokens: count,
  /** How many of them were predicted: all but the first of a context. */
  predictions: count,
  /** Total surprisal of the predicted tokens in nats. */
  nats: z.number(),
  /** nats / ln 2 per byte of the predicted tokens; null where no token was predicted. */
  bitsPerByte: z.number().nullable(),
  /** Nats of each token, null for the first of a context; only where `open` asked for it. */
  surprisal: z.array(z.number().nullable()).optional(),
  /** The lines that ended with these tokens; only where `open` asked with `novelty`. */
  lines: z.array(lineNovelty).optional(),
  /**
   * Of the hidden vectors behind these tokens, from which the model computes what comes next: their mean, and the last
   * one, f32 little-endian [channels] in base64. Only where `open` asked with `embedding`, and a token was read.
   */
  embedding: z.strictObject({ mean: z.base64(), last: z.base64() }).optional(),
  last: z.boolean(),
})

const block = count
const blocks = z.array(block)
const at = { pulse: count }
/** What an external memory did after the token of a pulse (docs/infinite-context.md). */
export const memoryEvent = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('segment'), ...at, block, distance: z.number() }),
  z.strictObject({ type: z.literal('release'), ...at, block }),
  z.strictObject({
    type: z.literal('archive'),
    ...at,
    block,
    reason: z.enum(['window', 'summarize']),
    k_norm: z.number(),
    v_norm: z.number(),
  }),
  z.strictObject({ type: z.literal('tombstone'), ...at, spans: z.array(z.tuple([block, block])) }),
  z.strictObject({ type: z.literal('summarize'), ...at }),
  z.strictObject({
    type: z.literal('retrieve'),
    ...at,
    reason: z.enum(['token', 'tombstone', 'period', 'event']),
    blocks,
    span: z.tuple([block, block]).optional(),
  }),
  z.strictObject({ type: z.literal('inject'), ...at, blocks, slots: count }),
  z.strictObject({ type: z.literal('node'), ...at, block, virtual: count, new: z.boolean() }),
  z.strictObject({ type: z.literal('split'), ...at, virtual: count, new: count, moved: blocks }),
  z.strictObject({ type: z.literal('merge'), ...at, into: count, from: count }),
])
export type MemoryEvent = z.infer<typeof memoryEvent>

/** What the memory did in one step; only where `open` asked for it with `memory`. */
export const remembered = z.strictObject({ type: z.literal('remembered'), ...common, events: z.array(memoryEvent) })

/** A number that was computed; null: it is not finite. */
const computed = z.number().nullable()

/** The most stages of an `adapted` event, so that no event exceeds the record size of a log. */
export const MOST_STAGES = 4096

/** What an `adapt` event did. Nothing but this where the window had fewer than 2 tokens, and where it was ended. */
export const adapted = z.strictObject({
  type: z.literal('adapted'),
  ...common,
  pulse: count,
  /** Of the window. */
  tokens: count,
  /** Evaluations used. */
  evaluations: count,
  /**
   * The first `MOST_STAGES` of them: loss and anchor of the parameters before and of those tried, which stay where they
   * are accepted.
   */
  stages: z
    .array(
      z.strictObject({
        stage: z.enum(['adapters', 'router']),
        was: computed,
        now: computed,
        accepted: z.boolean(),
      }),
    )
    .max(MOST_STAGES),
  /** Tokens that went into the hyperdimensional memory. */
  bound: count,
  /** Mean surprisal of the window's tokens, nats; null where the window had fewer than 2. */
  loss: z.strictObject({ before: computed, after: computed }).nullable(),
  /** As asked; missing where the event has none. */
  requestId: z.string().optional(),
  /** It was ended before its own end, and nothing was learnt: no tokens, no evaluations. Missing: it was not. */
  endedBy: endedBy.optional(),
})
/** An event of the observations topic: what an adaptation did. */
export type Adapted = z.infer<typeof adapted>

/** What a draw found; null: it was not computed. */
const drawNote = z.strictObject({
  /** Whether the model was unsure, so that its perspectives were asked. */
  fired: z.boolean(),
  /** Of the model's own distribution, nats. */
  entropy: z.number(),
  /** The largest divergence of two perspectives. */
  jsd: z.number().nullable(),
  agreed: z.boolean().nullable(),
  hdm: z.strictObject({ token: count, distance: count, bank: count, hit: z.boolean() }).nullable(),
  /** Of the recalled token in what was drawn from. */
  weight: z.number().nullable(),
})

/** How the tokens of a `generated` event were drawn, and which experts they went to; only where `open` asked for it. */
export const perspectives = z.strictObject({
  type: z.literal('perspectives'),
  ...common,
  requestId: z.string(),
  /** Index of the first of them within the request. */
  index: count,
  /** They were fed at pulses `fromPulse` … `toPulse − 1`. */
  fromPulse: count,
  toPulse: count,
  /** [token][layer with experts][rank] */
  experts: z.array(z.array(z.array(count))),
  /** [token] */
  draws: z.array(drawNote),
})
export type Perspectives = z.infer<typeof perspectives>

export const closed = z.strictObject({
  type: z.literal('closed'),
  ...common,
  pulse: count,
  chain,
  tokens: count,
  generated: count,
  nats: z.number(),
  predictions: count,
})

/** The session was deleted, at this pulse: who keeps copies of what it read and generated can delete them too. */
export const deleted = z.strictObject({ type: z.literal('deleted'), ...common, pulse: count })

/** Schema of the observations topic: what was read, and what the memory did. */
export const observation = z.discriminatedUnion('type', [
  opened,
  observed,
  remembered,
  adapted,
  perspectives,
  closed,
  deleted,
])
/** An event of the observations topic. */
export type Observation = z.infer<typeof observation>
/** What a span of input cost: tokens, surprisal, chain. */
export type Observed = z.infer<typeof observed>

/** The most tokens of an `observed` event that lists surprisals, so that no event exceeds the record size of a log. */
export const SURPRISAL_SPAN = 4096

const caused = { topic: 'continuo.chunks', partition: 0, offset: 12, id: 'page-1' }

export const observations: TopicContract = {
  name: 'observations',
  purpose: 'Output: what the model made of each input event: how surprising it was, and where the clock stands.',
  key: 'session id, UTF-8',
  value: observation,
  settings: KEPT,
  examples: [
    { type: 'opened', version: 1, session: 'log-7', cause: caused, pulse: 0 },
    {
      type: 'observed',
      version: 1,
      session: 'log-7',
      cause: caused,
      fromPulse: 0,
      toPulse: 26,
      tokens: 26,
      predictions: 25,
      nats: 31.5,
      bitsPerByte: 1.8178,
      last: true,
    },
    {
      type: 'observed',
      version: 1,
      session: 'log-7',
      cause: caused,
      fromPulse: 39603,
      toPulse: 39674,
      tokens: 71,
      predictions: 71,
      nats: 220.8,
      bitsPerByte: 4.4866,
      lines: [lineExample],
      last: true,
    },
    {
      type: 'observed',
      version: 1,
      session: 'log-7',
      cause: caused,
      fromPulse: 0,
      toPulse: 2,
      tokens: 2,
      predictions: 1,
      nats: 2.5,
      bitsPerByte: 3.6067,
      embedding: { mean: 'AADAPwAAAMA=', last: 'AAAAQAAAgMA=' },
      last: true,
    },
    {
      type: 'remembered',
      version: 1,
      session: 'log-7',
      cause: caused,
      events: [{ pulse: 2175, type: 'archive', block: 0, reason: 'window', k_norm: 53.6, v_norm: 31.1 }],
    },
    {
      type: 'adapted',
      version: 1,
      session: 'log-7',
      cause: caused,
      pulse: 48,
      tokens: 12,
      evaluations: 14,
      stages: [
        { stage: 'adapters', was: 12.75, now: 11.98, accepted: true },
        { stage: 'router', was: 11.97, now: 12.47, accepted: false },
      ],
      bound: 7,
      loss: { before: 12.75, after: 11.97 },
    },
    {
      type: 'perspectives',
      version: 1,
      session: 'log-7',
      cause: caused,
      requestId: 'r1',
      index: 0,
      fromPulse: 48,
      toPulse: 50,
      experts: [
        [[5], [0]],
        [[11], [8]],
      ],
      draws: [
        { fired: false, entropy: 0.5, jsd: null, agreed: null, hdm: null, weight: null },
        {
          fired: true,
          entropy: 2.25,
          jsd: 0.375,
          agreed: false,
          hdm: { token: 101, distance: 431, bank: 3, hit: true },
          weight: 0.1875,
        },
      ],
    },
    {
      type: 'closed',
      version: 1,
      session: 'log-7',
      cause: caused,
      pulse: 26,
      chain: '0123456789abcdef0123456789abcdef',
      tokens: 26,
      generated: 0,
      nats: 31.5,
      predictions: 25,
    },
    { type: 'deleted', version: 1, session: 'log-7', cause: caused, pulse: 26 },
  ],
}
