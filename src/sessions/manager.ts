import {
  adapt as adaptSchema,
  type Chunk,
  generate as generateSchema,
  retrieve as retrieveSchema,
} from '../../topics/chunks.ts'
import { sessionId } from '../../topics/common.ts'
import type { MemoryEvent, Perspectives } from '../../topics/observations.ts'
import { streamCursor } from '../../topics/state.ts'
import type { Generated } from '../../topics/tokens.ts'
import type { Model } from '../engine/types.ts'
import { ContinuoError, messageOf } from '../errors.ts'
import type { Tokenizer } from '../models/tokenizer/types.ts'
import { expertsOf } from '../operators/advance/perspectives.ts'
import { clockOf, initialHead, type SessionState } from '../operators/advance/session-state.ts'
import { admit } from '../operators/sessions/admit.ts'
import { type ContextStore, type ContextStoreStats, createContextStore } from '../operators/sessions/context-store.ts'
import type { Tokenized } from '../operators/types.ts'
import { begin } from '../state/conductor.ts'
import { type Head, pulseMismatch, type StreamCursor } from '../state/head.ts'
import { diverging } from '../state/health.ts'
import { createHistory, historyIn, withHistory, withoutHistory } from '../state/history.ts'
import { hotTensors } from '../state/manifest.ts'
import { type MemoryReport, memoryStats } from '../state/memory-stats.ts'
import { type OuterMemoryView, outerMemoryOf } from '../state/outer-memory.ts'
import { encodeSnapshot } from '../state/snapshot.ts'
import { type CallEngine, type Observed, runCall } from './call.ts'
import {
  CALLS,
  callOf,
  checkUsable,
  checkWhole,
  invalid,
  misuse,
  openEntry,
  parsed,
  type SessionEntry,
  utf8,
} from './entry.ts'
import type { OnProbe } from './probe.ts'
import type {
  Adaptation,
  AdaptOptions,
  Assessment,
  GenerateOptions,
  Generation,
  Processed,
  Remembered,
  SessionHandle,
  SessionManagerOptions,
  SessionOptions,
} from './types.ts'

/** Many sessions of one model in this process. */
export class SessionManager {
  readonly #model: Model
  readonly #tokenizer: Tokenizer | null
  readonly #contexts: ContextStore
  readonly #sessions = new Map<string, SessionEntry>()
  readonly #onProbe: OnProbe | undefined
  readonly #probeEvery: number | undefined
  readonly #verifyWeights: boolean
  readonly #warn: (message: string) => void
  #closed = false

  /** Throws INVALID for an option that cannot be, DENIED or UNAVAILABLE for a folder that cannot be written. */
  constructor(model: Model, options: SessionManagerOptions = {}) {
    const { maxResidentBytes, maxSpillBytes, spillDir, onProbe, probeEvery } = options
    const { blockCacheBytes, blockDirBytes, blockDir } = options
    const { tokenizer = null, verifyWeights = true } = options
    const { warn = (message: string) => process.emitWarning(message) } = options
    checkWhole(maxResidentBytes, 'maxResidentBytes', 1)
    checkWhole(maxSpillBytes, 'maxSpillBytes', 1)
    checkWhole(blockCacheBytes, 'blockCacheBytes', 0)
    checkWhole(blockDirBytes, 'blockDirBytes', 0)
    checkWhole(probeEvery, 'probeEvery', 1)
    if (probeEvery !== undefined && onProbe === undefined)
      invalid('probeEvery goes with onProbe; alone it does nothing.')
    this.#model = model
    this.#tokenizer = tokenizer
    this.#onProbe = onProbe
    this.#probeEvery = probeEvery
    this.#verifyWeights = verifyWeights
    this.#warn = warn
    this.#contexts = createContextStore(model, {
      warn,
      maxBytes: maxResidentBytes,
      maxSpillBytes,
      spillDir,
      blocks: { maxBytes: blockCacheBytes, maxFileBytes: blockDirBytes, dir: blockDir },
    })
  }

  /** Contexts in memory and in spill files. */
  get stats(): ContextStoreStats {
    const { blocks, retrievals, ...stats } = this.#contexts.stats
    return { ...stats, blocks: blocks && { ...blocks }, retrievals: { ...retrievals } }
  }

  /** Begins a session at the memory's first state. Throws MISUSE for an id that is open already. */
  createSession(id: string, options: SessionOptions = {}): SessionHandle {
    this.#checkNew(id)
    const context = this.#contexts.createContext(id)
    const call = callOf(
      id,
      { type: 'open', surprisal: false, novelty: false, memory: false, perspectives: false, embedding: false },
      new Uint8Array(0),
      -1,
    )
    const work: Tokenized = { ...call, kind: 'tokenized', ids: new Int32Array(0), held: '' }
    const head = initialHead(work, this.#model, context.chain)
    return this.#enter(
      {
        ...head,
        // Its past lies in no log.
        born: -1,
        cursor: { ...head.cursor, complete: true },
        conductor: begin(options.phase ?? 'stream'),
      },
      context,
      createHistory(),
      options,
    )
  }

  /**
   * Feeds token ids, or text where the manager has a tokenizer (which may hold back a tail that could still merge with
   * what follows). Rejects with INVALID before the first token is fed when one is outside the vocabulary, with MISUSE
   * when the session is closed or its test is over, with REFUSED when the memory stops being finite or its spill file
   * is lost.
   */
  process(session: SessionHandle | string, input: ArrayLike<number> | string): Promise<Processed> {
    return this.#inTurn(session, async (entry) => {
      const { vocabSize } = this.#model
      if (typeof input === 'string') {
        if (this.#tokenizer === null) invalid('Text needs a tokenizer; create the manager with one, or feed token ids.')
        return this.#read(entry, { type: 'text', text: input }, utf8.encode(input))
      }
      const tokens = Array.from(input)
      const at = tokens.findIndex((token) => !Number.isInteger(token) || token < 0 || token >= vocabSize)
      if (at >= 0) invalid(`Token ${at} is ${tokens[at]}, expected a whole number from 0 to ${vocabSize - 1}.`)
      return this.#read(entry, { type: 'tokens', tokens }, new Uint8Array(Int32Array.from(tokens).buffer))
    })
  }

  /**
   * Continues what the session has read; generated tokens feed the memory like any others. Rejects with INVALID for
   * options that cannot be and for a session that has read nothing yet.
   */
  generate(session: SessionHandle | string, options: GenerateOptions): Promise<Generation> {
    return this.#inTurn(session, async (entry) => {
      const { onTokens, signal, perspectives: noted = false, ...sampling } = options
      const shape = this.#model.perspectives
      if (noted && shape === null)
        invalid('The model does not draw from several perspectives. Leave "perspectives" out.')
      const request = { seed: entry.seed, ...sampling, type: 'generate', requestId: CALLS }
      const event = parsed(generateSchema, request, 'The options of generate')
      const perspectives: Pick<Perspectives, 'draws' | 'experts'> = { draws: [], experts: [] }
      const top: NonNullable<Generated['topLogprobs']> = []
      const out = { ids: [] as number[], text: '', logprobs: [] as number[], finish: 'length' as Generation['finish'] }
      await this.#advance(entry, event, utf8.encode(JSON.stringify(event)), {
        tokens(run) {
          out.ids.push(...run.ids)
          out.logprobs.push(...run.logprobs)
          top.push(...(run.topLogprobs ?? []))
          out.text += run.text
          out.finish = run.finish ?? out.finish
          onTokens?.(run)
        },
        ...(noted && {
          drawn(result) {
            perspectives.draws.push(...(result.draws ?? []))
            perspectives.experts.push(...expertsOf(result, shape!))
          },
        }),
        signal,
      })
      const likeliest = event.topLogprobs > 0 ? { topLogprobs: top } : {}
      return { ...out, ...likeliest, ...(noted && { perspectives }), head: entry.head }
    })
  }

  /**
   * Archives the whole blocks of the session's window, but for those that memory.json keeps. Rejects with INVALID for a
   * model without an external memory.
   */
  archive(session: SessionHandle | string): Promise<Remembered> {
    return this.#inTurn(session, (entry) => this.#remember(entry, { type: 'archive' }))
  }

  /**
   * Brings archived blocks back: these, or those that memory.json's policy chooses. Rejects with INVALID for a model
   * without an external memory, for more blocks than come back at a time, for one that is named twice, and for one that
   * is not archived.
   */
  retrieve(session: SessionHandle | string, blocks?: readonly number[]): Promise<Remembered> {
    return this.#inTurn(session, (entry) => {
      const event = { type: 'retrieve', ...(blocks !== undefined && { blocks: [...blocks] }) }
      return this.#remember(entry, parsed(retrieveSchema, event, 'The blocks to retrieve'))
    })
  }

  /**
   * The session learns the tokens that it read last, with a budget of so many evaluations; nothing happens where it
   * read fewer than 2. Rejects with INVALID for a model that has nothing that adapts, and for options that cannot be.
   */
  adapt(session: SessionHandle | string, options: AdaptOptions): Promise<Adaptation> {
    return this.#inTurn(session, async (entry) => {
      const { signal, ...asked } = options
      const event = parsed(adaptSchema, { ...asked, type: 'adapt' }, 'The options of adapt')
      const told: Omit<Adaptation, 'head'>[] = []
      await this.#advance(entry, event, utf8.encode(JSON.stringify(event)), {
        observation(value) {
          if (value.type !== 'adapted') return
          const { pulse, tokens, evaluations, stages, bound, loss, endedBy } = value
          told.push({ pulse, tokens, evaluations, stages, bound, loss, ...(endedBy && { endedBy }) })
        },
        signal,
      })
      return { ...told[0]!, head: entry.head }
    })
  }

  /** What the session's external memory holds; null: the model has none. */
  memory(session: SessionHandle | string): Promise<OuterMemoryView | null> {
    return this.#inTurn(session, async (entry) => {
      checkUsable(entry)
      const { layout, outerMemory } = this.#model
      if (outerMemory === null) return null
      // Nothing that was archived is read for this.
      const ends = layout.growth.map(() => Number.POSITIVE_INFINITY)
      const { hot, frozen } = await entry.context.capture({ pulse: entry.head.conductor.globalStep, ends })
      const runs = frozen.map(({ first, end }) => Array.from({ length: end - first }, (_, at) => ({ run: first + at })))
      return outerMemoryOf(hotTensors(layout, hot, runs), hot, outerMemory.blockSize)
    })
  }

  /**
   * Context, conductor and stream cursor in one blob: the safetensors file that `continuo export` writes. `cursor` says
   * where the caller's stream stands (topic, partition, offset, token …); it comes back as `head.cursor` of the resumed
   * session. Rejects with REFUSED when the pulse it names is not the session's, with INVALID when it stands inside a
   * record while text is held back.
   */
  checkpointSession(session: SessionHandle | string, cursor: Partial<StreamCursor> = {}): Promise<Uint8Array> {
    return this.#inTurn(session, async (entry) => {
      checkUsable(entry)
      const { head, context } = entry
      const { globalStep } = head.conductor
      if (cursor.pulse !== undefined && cursor.pulse !== globalStep) throw pulseMismatch(cursor.pulse, globalStep)
      const place = parsed(streamCursor, { ...head.cursor, ...cursor, rng: globalStep }, 'The cursor of the checkpoint')
      if (place.held !== '' && !place.complete) {
        invalid(
          'A cursor inside a record (complete: false) cannot stand beside text that is held back. Name a place between two records, or end the text first.',
        )
      }
      const state = await context.state()
      const { stats } = await this.#look(entry, state)
      const inside = withHistory({ ...head, cursor: place, snapshot: null }, entry.history.kept())
      return encodeSnapshot(inside, state, this.#model.layout, stats)
    })
  }

  /**
   * Goes on from a checkpoint, or from a file that `continuo export` wrote, under its own id or another one. Throws
   * REFUSED, and nothing is changed, when it was damaged, when stream and model count different pulses, or when it
   * belongs to another model or state layout, or when it cannot be gone on with (operators/sessions/admit.ts: one token
   * is tried out on a copy); INVALID for a session that was closed or set aside, for one that holds back text inside a
   * record, and for one that holds back text where the manager has no tokenizer.
   */
  async resumeSession(
    blob: Uint8Array,
    options: SessionOptions & { readonly id?: string } = {},
  ): Promise<SessionHandle> {
    if (!(blob instanceof Uint8Array)) invalid('A checkpoint must be a Uint8Array.')
    const { head, state } = await admit(blob, this.#model, this.#tokenizer)
    const id = options.id ?? head.session
    this.#checkNew(id)
    const { cursor, conductor } = head
    if (cursor.held !== '' && !cursor.complete) {
      invalid(
        `Session "${head.session}" stands in the middle of the record at offset ${cursor.offset}, and what it held back before may be read already. Let the worker finish that record, then export again.`,
      )
    }
    const context = this.#contexts.createContext(id)
    try {
      await context.load(state, clockOf(head))
    } catch (error) {
      context.close()
      throw new ContinuoError('REFUSED', `Session "${id}" cannot be resumed: ${messageOf(error)}`, { cause: error })
    }
    const phase = options.phase ?? conductor.phase
    const placed = { ...withoutHistory(head), session: id, born: -1, conductor: { ...conductor, phase } }
    return this.#enter(placed, context, historyIn(head, this.#model.vocabSize), options)
  }

  /**
   * A new session that goes on from where this one stands, once the calls made on it so far have had their turns:
   * state, clock, origin, chain, sums and held text are its own copies from then on, as after `checkpointSession` and
   * `resumeSession`, whose options it takes. Phase and seed are the parent's where `options` do not say. Rejects with
   * MISUSE for an id that is open and for a session that is closed, with REFUSED for one whose memory is not finite or
   * lost.
   */
  async fork(session: SessionHandle | string, id: string, options: SessionOptions = {}): Promise<SessionHandle> {
    this.#checkNew(id)
    return this.#inTurn(session, async (entry) => {
      // Another call may have begun a session of this id meanwhile.
      this.#checkNew(id)
      checkUsable(entry)
      const { head, seed } = entry
      const { conductor } = head
      const context = await this.#contexts.forkContext(entry.context, id)
      const history = entry.history.copy()
      const phase = options.phase ?? conductor.phase
      const placed = { ...head, session: id, snapshot: null, conductor: { ...conductor, phase } }
      return this.#enter(placed, context, history, { seed, ...options })
    })
  }

  /**
   * What the session has cost and what became of its memory. In phase `test` it is the end: text that was held back is
   * read, and nothing can be fed afterwards, only checkpointed and closed.
   */
  assess(session: SessionHandle | string): Promise<Assessment> {
    return this.#inTurn(session, async (entry) => {
      checkUsable(entry)
      const { phase } = entry.head.conductor
      const rest = this.#tokenizer?.flush(entry.head.cursor.held) ?? []
      if (phase === 'test' && entry.status === 'open' && entry.left > 0 && rest.length > 0)
        await this.#advance(entry, { type: 'boundary', reset: false }, new Uint8Array(0), {})
      const { totals, conductor, chain } = entry.head
      const { health, stats } = await this.#look(entry, await entry.context.state())
      if (phase === 'test') entry.status = 'assessed'
      return {
        session: entry.handle.id,
        phase,
        ...totals,
        bitsPerToken: totals.predictions === 0 ? null : totals.nats / Math.LN2 / totals.predictions,
        pulse: conductor.globalStep,
        chain,
        health,
        memoryStats: stats,
      }
    })
  }

  /** Ends a session once its calls have had their turns; its id is free then. */
  closeSession(session: SessionHandle | string): Promise<void> {
    return this.#inTurn(session, async (entry) => this.#leave(entry))
  }

  /** The sessions that are not closed, in the order in which they were begun. */
  listSessions(): readonly SessionHandle[] {
    return [...this.#sessions.values()].map(({ handle }) => handle)
  }

  /**
   * Lets every call made so far finish, gives back all contexts and removes the spill files. The model stays open.
   * Rejects with REFUSED when the weights were changed meanwhile.
   */
  async close(): Promise<void> {
    if (this.#closed) misuse('The session manager is closed; create another.')
    this.#closed = true
    await Promise.all([...this.#sessions.values()].map(({ turn }) => turn))
    for (const entry of [...this.#sessions.values()]) this.#leave(entry)
    await this.#contexts.close()
    if (this.#verifyWeights) await this.#model.verifyWeights()
  }

  #checkNew(id: string): void {
    if (this.#closed) misuse('The session manager is closed; create another.')
    parsed(sessionId, id, 'The id of a session')
    if (this.#sessions.has(id)) misuse(`Session "${id}" is open already. Close it first, or use another id.`)
  }

  #enter(
    head: Head,
    context: SessionState['context'],
    history: SessionState['history'],
    options: SessionOptions,
  ): SessionHandle {
    let entry: SessionEntry
    try {
      entry = openEntry(head, context, history, options)
    } catch (error) {
      context.close()
      throw error
    }
    this.#sessions.set(head.session, entry)
    return entry.handle
  }

  #leave(entry: SessionEntry): void {
    if (entry.status === 'closed') return
    entry.status = 'closed'
    this.#sessions.delete(entry.handle.id)
    entry.context.close()
  }

  #entryOf(session: SessionHandle | string): SessionEntry {
    if (this.#closed) misuse('The session manager is closed; create another.')
    const id = typeof session === 'string' ? session : session.id
    const entry = this.#sessions.get(id)
    if (entry === undefined || (typeof session !== 'string' && entry.handle !== session)) {
      return misuse(
        `There is no session "${id}" here. It was closed, or belongs to another manager; create or resume it.`,
      )
    }
    return entry
  }

  /** Runs `call` when all calls made before it on this session are done, whether they succeeded or not. */
  async #inTurn<T>(session: SessionHandle | string, call: (entry: SessionEntry) => Promise<T>): Promise<T> {
    const entry = this.#entryOf(session)
    const mine = entry.turn.then(async () => {
      if (entry.status === 'closed') misuse(`Session "${entry.handle.id}" was closed before this call had its turn.`)
      return call(entry)
    })
    entry.turn = mine.catch(() => {})
    return mine
  }

  async #read(entry: SessionEntry, event: Chunk, content: Uint8Array): Promise<Processed> {
    const nats: number[] = []
    const events: MemoryEvent[] = []
    await this.#advance(entry, event, content, {
      nats: (values) => nats.push(...values),
      events: (more) => events.push(...more),
    })
    const told = events.length > 0 ? { events } : {}
    return { nats: Float32Array.from(nats), head: entry.head, ended: entry.left === 0, ...told }
  }

  async #remember(entry: SessionEntry, event: Chunk): Promise<Remembered> {
    const events: MemoryEvent[] = []
    const content = utf8.encode(JSON.stringify(event))
    await this.#advance(entry, event, content, { events: (more) => events.push(...more) })
    return { events, head: entry.head }
  }

  #advance(entry: SessionEntry, event: Chunk, content: Uint8Array, observed: Observed): Promise<void> {
    const engine: CallEngine = {
      model: this.#model,
      tokenizer: this.#tokenizer,
      submit: this.#contexts.submit,
      onProbe: this.#onProbe,
      probeEvery: this.#probeEvery,
    }
    return runCall(entry, event, content, observed, engine)
  }

  /** The memory's norms; says so when one of them is about to leave f32. */
  async #look({ handle, head, context }: SessionEntry, state: Uint8Array): Promise<MemoryReport> {
    const seen = await memoryStats(this.#model, head.conductor, state, context.gates())
    for (const sentence of diverging(handle.id, handle.pulse, seen.health)) this.#warn(sentence)
    return seen
  }
}
