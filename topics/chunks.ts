import { z } from 'zod'
import { KEPT, MAX_JOIN, MOST_ONCE, sessionId, type TopicContract } from './common.ts'

/** Characters of the `id` of an event, and of a request's. */
export const MOST_ID = 256
const id = z.string().max(MOST_ID).optional()

const onceOf = z.strictObject({
  key: z.string().min(1).max(MOST_ONCE.key),
  attempt: z.string().min(1).max(MOST_ONCE.attempt),
})
/**
 * What is to be done once, however often it is sent: of the events of a session with this key, those of one attempt
 * alone are taken, that whose event comes first. An attempt is one sending of them all, and has a name of its own.
 */
const once = onceOf.optional()

export const MAX_GENERATE_TOKENS = 1_000_000
/** Generated tokens of a record, at most. */
export const MAX_RUN = 16
/** Tokens before a request that its penalties may count, at most. */
export const MAX_PENALTY_LAST = 1024
/** Entries of a request's `logitBias`, and ids of its `stopTokens`, at most. */
export const MAX_BIASED = 1024
export const MAX_STOP_TOKENS = 64
/** Likeliest tokens that a record lists beside each token, at most. */
export const MAX_TOP_LOGPROBS = 20
/**
 * The engine refuses a smaller temperature. An event that the engine refuses would stop the partition, so the schema
 * refuses it first.
 */
export const MIN_TEMPERATURE = 1e-6

const forkOf = z.strictObject({
  session: sessionId,
  /** Where it must stand: the event is refused where its clock says something else when the event has its turn. */
  pulse: z.int().min(0).optional(),
})

/** Begins a session, or changes the settings of an open one. Optional: the first event of a session opens it. */
export const open = z.strictObject({
  type: z.literal('open'),
  id,
  once,
  /** Emit the surprisal of every token, in nats, with each observation. */
  surprisal: z.boolean().default(false),
  /** Tell of each line that was read what was new about it, with each observation. */
  novelty: z.boolean().default(false),
  /**
   * With `novelty`: a regular expression (docs/grammars.md) that is found in the first line of a record of several
   * lines, such as a stack trace. A line without it belongs to the record before, and a record is told of as one line.
   */
  join: z.string().min(1).max(MAX_JOIN).optional(),
  /** Of a model with an external memory: tell what the memory did, in `remembered` observations. */
  memory: z.boolean().default(false),
  /** Of a model that draws from several perspectives: tell what each draw found, in `perspectives` observations. */
  perspectives: z.boolean().default(false),
  /** Emit the mean of the hidden vectors of what was read, and the last one, with each observation. */
  embedding: z.boolean().default(false),
  /**
   * The session begins as a fork of this one, of the same partition: with its state, clock, chain and sums as they are
   * after all of its records before this one. Only where the session is new or closed.
   */
  from: forkOf.optional(),
})

/**
 * Text to read: as a string, or as base64 `bytes` where the text is not valid UTF-8 (or was cut inside a character).
 */
export const text = z.union([
  z.strictObject({ type: z.literal('text'), id, once, text: z.string() }),
  z.strictObject({ type: z.literal('text'), id, once, bytes: z.base64() }),
])

/** Token ids to read. */
export const tokens = z.strictObject({ type: z.literal('tokens'), id, once, tokens: z.array(z.int().min(0)) })

const isSchema = (value: unknown): boolean =>
  typeof value === 'boolean' || (typeof value === 'object' && value !== null && !Array.isArray(value))

/**
 * Which reading of grammars an event means. A new one gets a new number, and this stays the one that is meant where
 * none is named.
 */
const version = z.literal(1).default(1)

const callText = z.string().max(256)

/**
 * What binds an answer: see docs/grammars.md. How large it may be, and what it may say, is checked when the event has
 * its turn.
 */
export const grammar = z.discriminatedUnion('type', [
  /** A JSON object. */
  z.strictObject({ type: z.literal('json'), version }),
  /** A value of JSON that this JSON Schema describes. */
  z.strictObject({
    type: z.literal('jsonSchema'),
    version,
    schema: z.unknown().refine(isSchema, 'expected a JSON Schema: an object, or true or false'),
  }),
  /** A text that this regular expression of ECMAScript matches from its beginning to its end. */
  z.strictObject({ type: z.literal('regex'), version, pattern: z.string() }),
  /** A text that the rule `root` of this grammar in GBNF reads. */
  z.strictObject({ type: z.literal('gbnf'), version, text: z.string() }),
  /**
   * Calls of tools: `open`, the calls, `close`. A call is `before`, the name of its tool, `middle`, the arguments as a
   * JSON object, `after`.
   */
  z.strictObject({
    type: z.literal('calls'),
    version,
    open: callText,
    close: callText,
    /** Between two calls. */
    between: callText,
    before: callText,
    middle: callText,
    after: callText,
    tools: z
      .array(
        z.strictObject({
          name: z.string().min(1).max(64),
          schema: z.unknown().refine(isSchema, 'expected a JSON Schema: an object, or true or false'),
        }),
      )
      .min(1)
      .max(128),
    /** Whether a text in which no call begins may stand before the calls, or in their place. */
    text: z.boolean(),
    /** Calls at most; 0: none may begin. */
    most: z.int().min(0).max(64),
  }),
])
export type Grammar = z.output<typeof grammar>
export type GrammarInput = z.input<typeof grammar>

const tokenId = z.int().min(0).max(0x7fffffff)

/** Ids in decimal, as members of an object, with a number each. */
const biases = z
  .record(
    z.string().regex(/^(0|[1-9]\d{0,9})$/, 'expected token ids in decimal as names'),
    z.number().min(-100).max(100),
  )
  .refine((map) => Object.keys(map).length <= MAX_BIASED, `expected at most ${MAX_BIASED} entries`)

/**
 * A request to continue, at most up to the tokenizer's end of text. Sampled tokens are fed to the memory like tokens
 * that are read.
 */
export const generate = z.strictObject({
  type: z.literal('generate'),
  id,
  once,
  requestId: z.string().min(1).max(MOST_ID),
  maxTokens: z.int().min(1).max(MAX_GENERATE_TOKENS),
  /** 0 is greedy. Otherwise at least `MIN_TEMPERATURE`, so that f32 can divide by it. */
  temperature: z
    .number()
    .min(0)
    .max(100)
    .refine((value) => value === 0 || value >= MIN_TEMPERATURE, `expected 0 or at least ${MIN_TEMPERATURE}`)
    .default(1),
  /** Keep the K likeliest tokens; 0 keeps all. */
  topK: z.int().min(0).max(0x7fffffff).default(0),
  /** Keep the likeliest tokens that together reach this probability; 1 keeps all. */
  topP: z.number().gt(0).max(1).default(1),
  /** Keep the tokens that have at least this share of the likeliest one's probability; 0 keeps all. */
  minP: z.number().min(0).max(1).default(0),
  /**
   * Penalties of tokens that were generated for the request, or are among the last `penaltyLast` ids that the context
   * was fed before it. Positive logits are divided by `repetitionPenalty`, others multiplied with it.
   */
  repetitionPenalty: z.number().min(0.01).max(100).default(1),
  /** Is subtracted from the logit of each of them. */
  presencePenalty: z.number().min(-2).max(2).default(0),
  /** Is subtracted as often as the token was there. */
  frequencyPenalty: z.number().min(-2).max(2).default(0),
  penaltyLast: z.int().min(0).max(MAX_PENALTY_LAST).default(64),
  /** Is added to the logits of these ids, before anything else. */
  logitBias: biases.default({}),
  /** List so many of the likeliest tokens beside each token, with their log probabilities. */
  topLogprobs: z.int().min(0).max(MAX_TOP_LOGPROBS).default(0),
  /** Ids that end the request like an end of text: neither part of the output nor fed. */
  stopTokens: z.array(tokenId).max(MAX_STOP_TOKENS).default([]),
  /** The model's own ends of text do not end the request; they are fed like other tokens. */
  ignoreEnd: z.boolean().default(false),
  /** Stop after any of these strings was generated. The string is part of the output. */
  stop: z.array(z.string().min(1).max(256)).max(16).default([]),
  /** Philox key; the counter is the pulse. */
  seed: z.int().min(0).default(0),
  /** Only what this grammar allows is drawn; the request ends where the grammar does. */
  grammar: grammar.optional(),
  /** A record of generated tokens ends at an index divisible by this number: 1 gives a record for each token. */
  run: z.int().min(1).max(MAX_RUN).default(MAX_RUN),
})

/**
 * The end of a request of this session that stands before this event and is not over: it ends as soon as it can,
 * whatever else waits in the session; a `generate` with `finish: "cancelled"`, an `adapt` with `endedBy: "cancel"`,
 * having learnt nothing.
 */
export const cancel = z.strictObject({ type: z.literal('cancel'), id, requestId: generate.shape.requestId })

/** The end of a document. With `reset` the memory returns to its first state; the clock is not set back. */
export const boundary = z.strictObject({ type: z.literal('boundary'), id, once, reset: z.boolean().default(false) })

/**
 * Of a model with an external memory: archives the whole blocks of its window, but for those that memory.json keeps
 * (`summarize_keep`).
 */
export const archive = z.strictObject({ type: z.literal('archive'), id, once })

/**
 * Of a model with an external memory: brings archived blocks back: these, or those that memory.json's policy chooses.
 */
export const retrieve = z.strictObject({
  type: z.literal('retrieve'),
  id,
  once,
  blocks: z.array(z.int().min(0)).min(1).max(4096).optional(),
})

/** Evaluations of one adaptation: with its window each is a pass over at most 65,536 tokens. */
export const MAX_EVALUATIONS = 65_536

/**
 * Of a model that adapts: the session learns the tokens that it read last, with a budget of so many evaluations
 * (docs/perspective.md).
 */
export const adapt = z.strictObject({
  type: z.literal('adapt'),
  id,
  once,
  evaluations: z.int().min(1).max(MAX_EVALUATIONS),
  /** Philox key of what is tried; the counter is the pulse. */
  seed: z.int().min(0).default(0),
  /** By which a `cancel` names it. */
  requestId: generate.shape.requestId.optional(),
})

/** The end of a session. Only `open` may follow: it begins a new context on the same clock. */
export const close = z.strictObject({ type: z.literal('close'), id, once })

/**
 * The session is deleted, whatever its status: its head and its stored state go, and a later event of its id begins a
 * new session.
 */
export const deletion = z.strictObject({ type: z.literal('delete'), id })

/** The schema of each type of event, in the order in which messages name them. */
const schemas = { open, text, tokens, generate, cancel, boundary, archive, retrieve, adapt, close, delete: deletion }
type ChunkType = keyof typeof schemas

/** Schema of the input topic: every event that a session takes (docs/formats.md). */
export const chunk = z.union(Object.values(schemas))
/** An event of the input topic as readers have it, with every default. */
export type Chunk = z.output<typeof chunk>
/** An event as writers give it: members that have defaults may be missing. */
export type ChunkInput = z.input<typeof chunk>

export const CHUNK_TYPES = Object.keys(schemas) as readonly ChunkType[]

/** The schema of each type, so that an error message names only fields of that type. */
export const CHUNK_SCHEMAS: Readonly<Record<ChunkType, z.ZodType<Chunk>>> = schemas

/** Fields that nobody knows are left out of an event, and of its `once`. */
const tolerant = { once: onceOf.strip().optional() }

/** The same, leaving out fields that nobody knows; a known field that an event cannot have is still refused. */
export const TOLERANT_SCHEMAS: typeof CHUNK_SCHEMAS = {
  open: open.extend({ ...tolerant, from: forkOf.strip().optional() }).strip(),
  text: z.union([
    text.options[0].extend({ ...tolerant, bytes: z.undefined().optional() }).strip(),
    text.options[1].extend({ ...tolerant, text: z.undefined().optional() }).strip(),
  ]),
  tokens: tokens.extend(tolerant).strip(),
  generate: generate.extend(tolerant).strip(),
  cancel: cancel.strip(),
  boundary: boundary.extend(tolerant).strip(),
  archive: archive.extend(tolerant).strip(),
  retrieve: retrieve.extend(tolerant).strip(),
  adapt: adapt.extend(tolerant).strip(),
  close: close.extend(tolerant).strip(),
  delete: deletion.strip(),
}

export const chunks: TopicContract = {
  name: 'chunks',
  purpose: 'Input: what each session reads, and requests to generate.',
  key: 'session id, UTF-8',
  value: chunk,
  settings: KEPT,
  examples: [
    { type: 'open', surprisal: true },
    { type: 'open', embedding: true },
    { type: 'open', from: { session: 'prompt' } },
    { type: 'open', from: { session: 'prompt', pulse: 1536 } },
    { type: 'text', text: 'It was the best of times, ', id: 'page-1' },
    { type: 'text', bytes: 'aXQgd2FzIHRoZSB3b3JzdCBvZiB0aW1lcyw=' },
    { type: 'tokens', tokens: [105, 116] },
    { type: 'generate', requestId: 'r1', maxTokens: 64, temperature: 0.8, topP: 0.95, seed: 7, stop: ['\n\n'] },
    { type: 'generate', requestId: 'r2', maxTokens: 64, minP: 0.05, repetitionPenalty: 1.1, logitBias: { 10: -100 } },
    { type: 'generate', requestId: 'r3', maxTokens: 64, once: { key: 'order-17', attempt: 'a1' } },
    { type: 'cancel', requestId: 'r1' },
    { type: 'boundary', reset: false },
    { type: 'archive' },
    { type: 'retrieve', blocks: [3, 11] },
    { type: 'adapt', evaluations: 40, seed: 1, requestId: 'a1' },
    { type: 'close' },
    { type: 'delete' },
  ],
}
