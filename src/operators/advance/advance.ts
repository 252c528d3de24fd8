/**
 * advance: what one event does to one session, as a sequence of steps. The same code serves the live stream, the replay
 * after a crash and `continuo verify`; they differ in what happens to the steps.
 *
 * A step ends where the record says so: after each FEED_SLICE tokens read, after as many tokens generated as the request's
 * `run` says. These numbers are part of the state format: a replay must pass through the very heads that were committed.
 */
import { MAX_RUN } from '../../../topics/chunks.ts'
import type { EndedBy } from '../../../topics/common.ts'
import { NOVELTY_SPAN } from '../../../topics/novelty.ts'
import { SURPRISAL_SPAN } from '../../../topics/observations.ts'
import type { Generated } from '../../../topics/tokens.ts'
import { type Context, ContextBroken, type ContextHead } from '../../engine/context.ts'
import type { ModelInfo } from '../../engine/types.ts'
import type { AdaptRequest, WorkItem, WorkResult } from '../../engine/work.ts'
import { ContinuoError, codeOf, messageOf } from '../../errors.ts'
import { failpoint } from '../../failpoint.ts'
import type { Matcher } from '../../grammar/index.ts'
import type { Tokenizer } from '../../models/tokenizer/types.ts'
import * as conductor from '../../state/conductor.ts'
import { type Fingerprints, type Head, pulseMismatch } from '../../state/head.ts'
import { createHistory, type History } from '../../state/history.ts'
import type { StoredRecord } from '../../streams/log.ts'
import { claimsBehind } from '../pipeline/once.ts'
import { shareOf } from '../pipeline/shares.ts'
import { causeOf, type Generate, type Output, type Step, type Tokenized } from '../types.ts'
import { AdaptingStopped, adaptedIn } from './adapted.ts'
import { matcherOf, submitBound } from './bound.ts'
import { createDetokenizer, NO_TEXT } from './detokenize.ts'
import { alternativesIn, drawing, followsItself } from './drawing.ts'
import { alertsOf, endOfLines, judged, linesIn } from './lines.ts'
import { memoryObservations } from './memory-observations.ts'
import { perspectivesIn } from './perspectives.ts'
import { pooled } from './pooling.ts'
import { reasonOf, SessionLost, setAside } from './set-aside.ts'
import { cursorAt, endOfRequest, observe, spanFrom } from './spans.ts'

export const FEED_SLICE = 256

/** Computes items of work: the engine of a model, or a layer before it (the context store, a probe). */
export interface Inference {
  /** Input records before this offset leave no trace in histories (`history` of the partition's cursor); default 0. */
  readonly historyFrom?: number
  readonly model: Fingerprints & Pick<ModelInfo, 'vocabSize'> & Partial<Pick<ModelInfo, 'endTokens' | 'perspectives'>>
  readonly tokenizer: Tokenizer | null
  /** `share`: whom the work counts for (shares.ts); default: the session. */
  submit(item: WorkItem, share?: string): Promise<WorkResult>
  /**
   * What ends the request in the record at `offset` after `index` tokens, or its adaptation; null: it goes on. Asked before each run. What is
   * computed again must be told what was decided then (`cancelled` records); absent: nothing ends before its own end.
   */
  readonly endedBy?: (offset: number, index: number) => EndedBy | null
  /**
   * Its signal fires when the adaptation in the record is to end. `advance` throws `AdaptingStopped` then, unless `endedBy` says why. Absent: it goes on
   * to its end.
   */
  readonly adapting?: (record: StoredRecord, id: string | null) => Pick<AdaptRequest, 'signal' | 'onBegin'>
  /** Runs another call that has the context to itself; absent where nobody closes contexts meanwhile. */
  readonly alone?: <T>(context: Context, call: () => Promise<T>) => Promise<T>
}

const alone = <T>({ alone: run }: Pick<Inference, 'alone'>, context: Context, call: () => Promise<T>): Promise<T> =>
  run === undefined ? call() : run(context, call)

/** A session in memory: its head after the last step, its context, and what that was fed last. */
export interface SessionState {
  head: Head
  context: Context
  history: History
}

const NO_BYTES = new Uint8Array(0)
const NO_TOKENS = new Int32Array(0)

/** The head of a session that begins with this record: nothing read, the cursor at the record's first token. */
export const initialHead = (work: Tokenized, model: Fingerprints, chain: string): Head => ({
  type: 'head',
  version: 1,
  session: work.session,
  model: model.fingerprint,
  layout: model.layoutFingerprint,
  status: 'open',
  settings: { surprisal: false },
  cursor: { ...cursorAt(work), held: '', rng: 0, pulse: 0 },
  conductor: conductor.begin(),
  chain,
  born: work.record.offset,
  totals: { tokens: 0, predictions: 0, nats: 0, generated: 0 },
  span: spanFrom(0),
  generation: null,
  snapshot: null,
})

/** A session that begins with this record. */
export const initialSession = (work: Tokenized, model: Fingerprints, context: Context): SessionState => ({
  head: initialHead(work, model, context.chain),
  context,
  history: createHistory(),
})

/** Whether the head stands inside this record. Throws REFUSED when the record is not the one it stood in. */
const resumes = (head: Head, { record, hash }: Tokenized): boolean => {
  if (head.cursor.offset !== record.offset || head.cursor.complete) return false
  if (head.cursor.hash !== hash) {
    throw new ContinuoError(
      'REFUSED',
      `Session "${head.session}" stands inside the record at offset ${record.offset} of ${record.topic} (sha256 ${head.cursor.hash.slice(0, 12)}…), but that record is now another one (${hash.slice(0, 12)}…). The topic was replaced; use another --group and prefix, or bring the old topic back.`,
    )
  }
  return true
}

/** The settings that an event gives its session. */
export const settingsOf = (event: Tokenized['event']): Head['settings'] => ({
  surprisal: event.type === 'open' && event.surprisal,
  ...(event.type === 'open' && event.novelty && { novelty: true as const, ...(event.join && { join: event.join }) }),
  ...(event.type === 'open' && event.memory && { memory: true as const }),
  ...(event.type === 'open' && event.perspectives && { perspectives: true as const }),
  ...(event.type === 'open' && event.embedding && { embedding: true as const }),
})

/** Takes over what the engine reports; stream and model must count the same pulses. */
const moved = (head: Head, result: WorkResult, tokens: number): Head => {
  const next = conductor.advance(head.conductor, tokens)
  const pulse = Number(result.head.pulse)
  if (pulse !== next.globalStep) throw pulseMismatch(next.globalStep, pulse)
  const left = (head.archived ?? 0) + (result.events ?? []).filter(({ type }) => type === 'archive').length
  return {
    ...head,
    ...(left > 0 && { archived: left }),
    conductor: next,
    chain: result.head.chain,
    cursor: { ...head.cursor, token: head.cursor.token + tokens, rng: pulse, pulse },
  }
}

/** Adds what reading `ids` cost, token by token in order, so that the sum does not depend on the cut. */
const surprised = (head: Head, ids: Int32Array, nats: Float32Array, tokenizer: Tokenizer | null): Head => {
  let { nats: spanNats, predictions, bytes } = head.span
  let { nats: totalNats, predictions: totalPredictions } = head.totals
  const surprisal: (number | null)[] = [...head.span.surprisal]
  for (const [at, value] of nats.entries()) {
    if (head.settings.surprisal) surprisal.push(Number.isNaN(value) ? null : value)
    if (Number.isNaN(value)) continue
    spanNats += value
    totalNats += value
    predictions += 1
    bytes += tokenizer?.bytesOf(ids[at]!).length ?? 1
    totalPredictions += 1
  }
  return {
    ...head,
    span: { ...head.span, tokens: head.span.tokens + nats.length, predictions, bytes, nats: spanNats, surprisal },
    totals: {
      ...head.totals,
      tokens: head.totals.tokens + nats.length,
      predictions: totalPredictions,
      nats: totalNats,
    },
  }
}

/** Whether the observation in progress is to be told before its record ends. */
const isLong = ({ settings, span }: Head): boolean =>
  (settings.surprisal && span.tokens >= SURPRISAL_SPAN) || (span.lines?.length ?? 0) >= NOVELTY_SPAN

/** The ids that end a generation: the package's, else the tokenizer's one, and those of the request. */
const endsOf = ({ ignoreEnd, stopTokens }: Generate, { model, tokenizer }: Inference): readonly number[] => {
  const own = model.endTokens ?? (tokenizer === null || tokenizer.eos === null ? [] : [tokenizer.eos])
  return [...(ignoreEnd ? [] : own), ...stopTokens]
}

/** Notes what the context was fed, where the record is one of which histories know. `own`: as `History.fed` has it. */
const remember = (
  { history }: SessionState,
  { record }: Tokenized,
  { historyFrom = 0 }: Inference,
  ids: ArrayLike<number>,
  own = 0,
): void => {
  if (own > 0 || record.offset >= historyFrom) history.fed(ids, own)
}

/** The head behind the last step of an event: its text may count for a request by a rule, which begins the count anew, and what is done once is done. */
const finished = ({ unanswered, claims, ...head }: Head, work: Tokenized): Head => {
  const { event, rule, held } = work
  const count = event.type === 'generate' || !rule?.counts ? 0 : (unanswered ?? 0) + 1
  return {
    ...head,
    ...(count > 0 && { unanswered: count }),
    ...claimsBehind(work, claims),
    cursor: { ...head.cursor, complete: true, held },
  }
}

/** Up to `count` tokens; `matcher`: where a request with a grammar stands in it. */
async function generateSlice(
  session: SessionState,
  work: Tokenized,
  event: Generate,
  count: number,
  engine: Inference,
  matcher: Matcher | null,
): Promise<Step> {
  const { context } = session
  const { tokenizer, model } = engine
  const noted = session.head.settings.perspectives && model.perspectives
  const state = session.head.generation ?? { index: 0, ...NO_TEXT }
  const detokenizer = createDetokenizer(state, event.stop)
  const item = {
    context,
    tokens: NO_TOKENS,
    nats: false,
    ...(noted && { perspectives: true }),
    generate: {
      ...drawing(event, () => session.history.tally(event.penaltyLast + state.index)),
      count,
      more: state.index + count < event.maxTokens,
      endTokens: endsOf(event, engine),
      ...(tokenizer !== null && { stop: { ...detokenizer.sought, vocabulary: tokenizer } }),
    },
  }
  const result =
    matcher === null
      ? { ...(await engine.submit(item)), over: null }
      : await submitBound(engine.submit, item, matcher, clockOf(session.head))
  const { ended, over } = result
  const told = memoryObservations(session.head, work, result)
  let head = moved(session.head, result, result.generated.length)
  const ids = [...result.generated]
  const logprobs = [...result.logprobs]
  remember(session, work, engine, ids, followsItself(event) ? state.index + ids.length : 0)
  let stopped = false
  for (const id of ids) stopped = detokenizer.push(tokenizer?.bytesOf(id) ?? NO_BYTES)
  if (stopped !== (ended === 'stop'))
    throw new ContinuoError(
      'INTERNAL',
      `The engine and the text disagree on whether a stop string ended at token ${state.index + ids.length}.`,
    )
  const decoded = detokenizer.end()
  const index = state.index + ids.length
  const whole = index === event.maxTokens ? 'length' : null
  const why = over === 'grammar' ? over : (whole ?? over ?? (ended === 'positions' ? 'context' : ended))
  const finish = stopped ? 'stop' : why
  const value: Generated = {
    type: 'generated',
    version: 1,
    session: head.session,
    requestId: event.requestId,
    index: state.index,
    ids,
    text: decoded.text,
    logprobs,
    ...(event.topLogprobs > 0 && { topLogprobs: alternativesIn(result) }),
    fromPulse: head.conductor.globalStep - ids.length,
    toPulse: head.conductor.globalStep,
    finish,
    cause: causeOf(work.record, event.id ?? null),
  }
  if (finish !== null) session.history.end()
  const generation = { index, ...decoded.state }
  head = {
    ...head,
    generation: finish === null ? generation : null,
    totals: { ...head.totals, generated: head.totals.generated + ids.length },
    // Generated tokens are no observation: the next span begins behind them.
    span: spanFrom(head.conductor.globalStep),
  }
  const drawn = noted ? perspectivesIn(value, result, noted) : []
  const outputs: readonly Output[] = [{ to: 'tokens', value }, ...drawn, ...told]
  const awaited = event.run < MAX_RUN
  return {
    record: work.record,
    session: head.session,
    outputs,
    head,
    done: finish !== null,
    ...(awaited && { awaited }),
  }
}

/** The event's own act, after its tokens were read. */
const conclude = async (
  session: SessionState,
  work: Tokenized,
  outputs: Output[],
  engine: Inference,
): Promise<Head> => {
  const { event, record } = work
  let { head } = session
  const common = { version: 1, session: head.session, cause: causeOf(record, event.id ?? null) } as const
  if (event.type === 'boundary' && event.reset) {
    await alone(engine, session.context, () => session.context.restart())
    session.history.clear()
    const next = conductor.reset(head.conductor)
    const { archived, novelty, ...rest } = head
    head = { ...rest, conductor: next, chain: session.context.chain }
  }
  if (event.type === 'archive' || event.type === 'retrieve') {
    const request =
      event.type === 'archive'
        ? { type: event.type }
        : { type: event.type, ...(event.blocks && { blocks: event.blocks }) }
    try {
      const result = await engine.submit({ context: session.context, tokens: NO_TOKENS, nats: false, request })
      outputs.push(...memoryObservations(head, work, result))
      head = moved(head, result, 0)
    } catch (error) {
      // The engine changed nothing. Text that was held back before the event has been read by now, which any event does.
      if (codeOf(error) !== 'INVALID') throw error
      outputs.push({ to: 'deadletters', reason: `The memory refused a "${event.type}" event: ${messageOf(error)}` })
    }
  }
  if (event.type === 'adapt') {
    const ended = (): EndedBy | null => engine.endedBy?.(record.offset, 0) ?? null
    let learnt: WorkResult | null = null
    if (ended() === null) {
      const watched = engine.adapting?.(record, event.id ?? null) ?? {}
      const { type, evaluations, seed } = event
      const request = { type, evaluations, seed: BigInt(seed), ...watched }
      failpoint('adapt.begun')
      learnt = await engine.submit({ context: session.context, tokens: NO_TOKENS, nats: false, request })
      const isBroken = learnt.adapted === undefined && watched.signal?.aborted === true
      if (isBroken && ended() === null) throw new AdaptingStopped()
      if (isBroken) learnt = null
      failpoint('adapt.done')
    }
    outputs.push(adaptedIn(head, work, learnt ?? {}, learnt === null ? ended() : null))
    if (learnt !== null) head = moved(head, learnt, 0)
  }
  if (event.type === 'open') {
    const { novelty, ...rest } = head
    const settings = settingsOf(event)
    if (!settings.novelty) session.history.forgetLines()
    head = { ...rest, ...(settings.novelty && novelty && { novelty }), settings }
  }
  if (event.type === 'close') {
    head = { ...head, status: 'closed' }
    const { tokens, generated, nats, predictions } = head.totals
    const pulse = head.conductor.globalStep
    outputs.push({
      to: 'observations',
      value: { type: 'closed', ...common, pulse, chain: head.chain, tokens, generated, nats, predictions },
    })
  }
  return head
}

/** Clock and chain of a head, as an engine's context takes them. */
export const clockOf = ({ conductor, chain }: Head): ContextHead => ({
  pulse: BigInt(conductor.globalStep),
  origin: BigInt(conductor.origin),
  chain,
})

/** Puts the memory back to its first state, at the clock and chain of this head; a broken context is of use again. */
export const blank = (
  engine: Pick<Inference, 'alone'>,
  { context, history }: Pick<SessionState, 'context' | 'history'>,
  head: Head,
): Promise<void> => {
  history.clear()
  return alone(engine, context, () => context.load(null, clockOf(head)))
}

/**
 * Yields the steps of one event and leaves the session after the last of them. `fresh` says that the session began with
 * this event. Ending the iteration between two steps leaves the session at a head from which the next call resumes.
 *
 * A stop in the middle of an adaptation, which `endedBy` does not explain, throws `AdaptingStopped`. What the session was fed of the event before
 * is in its context, and in no step: neither is to be used any more.
 *
 * A state that stops being finite ends the event: the last step sets the session aside, as it was after the step before. Which step
 * that is depends on the record alone, so a replay sets it aside at the same place.
 */
export async function* advance(
  session: SessionState,
  work: Tokenized,
  fresh: boolean,
  given: Inference,
): AsyncGenerator<Step> {
  const { record, event, ids } = work
  const share = shareOf(record)
  const engine: Inference = share === undefined ? given : { ...given, submit: (item) => given.submit(item, share) }
  let outputs: Output[] = []
  const readsText = engine.tokenizer !== null
  const resuming = !fresh && resumes(session.head, work)
  if (!resuming) {
    const reopened = session.head.status === 'closed'
    session.history.end()
    if (reopened) {
      await alone(engine, session.context, () => session.context.restart())
      session.history.clear()
    }
    const { stopped, archived, novelty, ...before } = session.head
    session.head = {
      ...before,
      ...(archived !== undefined && !reopened && { archived }),
      ...(novelty !== undefined && !reopened && { novelty }),
      settings: work.novelty ? { ...before.settings, novelty: true } : before.settings,
      status: 'open',
      // No replay leads through the past of a session that was set aside: an `open` after this `close` must find that in the head.
      ...(event.type === 'close' && stopped && { stopped }),
      cursor: { ...session.head.cursor, ...cursorAt(work) },
      conductor: reopened ? conductor.reset(session.head.conductor) : session.head.conductor,
      chain: reopened ? session.context.chain : session.head.chain,
      span: spanFrom(session.head.conductor.globalStep),
      generation: null,
    }
    if (fresh || reopened) {
      const cause = causeOf(record, event.id ?? null)
      const { session: id, conductor: clock } = session.head
      outputs.push({
        to: 'observations',
        value: { type: 'opened', version: 1, session: id, cause, pulse: clock.globalStep },
      })
    }
  }

  const emit = (step: Step): Step => {
    session.head = step.head!
    outputs = []
    return step
  }

  /** The last step of an event whose next `tokens` tokens broke the context. */
  const brokenBy = async (error: unknown, tokens: number): Promise<Step> => {
    if (!(error instanceof ContextBroken)) throw error
    const from = session.head.conductor.globalStep
    const why = `its state stopped being finite with the tokens of pulses ${from} to ${from + tokens}`
    const reason = reasonOf(session.head.session, why)
    const aside = setAside(session.head, work, { cause: 'computation', reason }, readsText)
    await blank(engine, session, aside.head)
    return emit({ ...aside, outputs: [...outputs, ...aside.outputs], failure: error })
  }

  // Read. `token` counts the record's tokens, so a resumed record goes on where it stood.
  while (session.head.cursor.token < ids.length) {
    const at = session.head.cursor.token
    const slice = ids.subarray(at, Math.min(ids.length, at - (at % FEED_SLICE) + FEED_SLICE))
    let result: WorkResult
    try {
      const hidden = session.head.settings.embedding === true
      result = await engine.submit({ context: session.context, tokens: slice, nats: true, ...(hidden && { hidden }) })
    } catch (error) {
      yield await brokenBy(error, slice.length)
      return
    }
    outputs.push(...memoryObservations(session.head, work, result))
    remember(session, work, engine, slice)
    let head = pooled(
      surprised(moved(session.head, result, slice.length), slice, result.nats, engine.tokenizer),
      result,
    )
    const read = head.cursor.token === ids.length
    const lines = [
      ...linesIn(head, session.history, slice, result.nats, engine.tokenizer),
      ...(read && work.novelty && readsText ? endOfLines(head, session.history) : []),
    ]
    head = judged(head, lines)
    outputs.push(...alertsOf(lines, work))
    if (!read && isLong(head)) {
      const observed = observe(head, work, false, readsText)
      outputs.push(observed.output)
      head = observed.head
    }
    // The last slice of a record that does nothing but read belongs to its final step.
    if (read && event.type !== 'generate') {
      session.head = head
      break
    }
    if (read) {
      const observed = observe(head, work, true, readsText)
      outputs.push(observed.output)
      head = observed.head
    }
    yield emit({ record, session: head.session, outputs, head, done: false })
  }

  if (event.type === 'generate') {
    const { tokenizer, model } = engine
    const matcher =
      event.grammar && tokenizer
        ? matcherOf(event, { vocabSize: model.vocabSize, tokenizer }, endsOf(event, engine), session)
        : null
    for (;;) {
      const index = session.head.generation?.index ?? 0
      const count = Math.min(event.run - (index % event.run), event.maxTokens - index)
      if (count <= 0)
        throw new SessionLost(
          `Session "${session.head.session}" stands at token ${index} of a request for ${event.maxTokens}, which ended before.`,
        )
      if ((engine.endedBy?.(record.offset, index) ?? null) !== null) {
        const ended = endOfRequest(session.head, work, event.requestId, 'cancelled')
        const head = finished({ ...session.head, generation: null }, work)
        session.history.end()
        yield emit({ record, session: head.session, outputs: [...outputs, ended], head, done: true })
        return
      }
      let step: Step
      try {
        step = await generateSlice(session, work, event, count, engine, matcher)
      } catch (error) {
        yield await brokenBy(error, count)
        return
      }
      if (!step.done) {
        yield emit(step)
        continue
      }
      yield emit({ ...step, head: finished(step.head!, work) })
      return
    }
  }

  // The end of a text ends its last line.
  const isEnd = (event.type === 'boundary' || event.type === 'close') && session.head.settings.novelty === true
  const lines = isEnd ? endOfLines(session.head, session.history) : []
  session.head = judged(session.head, lines)
  outputs.push(...alertsOf(lines, work))
  if (event.type === 'text' || event.type === 'tokens' || ids.length > 0 || lines.length > 0) {
    const observed = observe(session.head, work, true, readsText)
    outputs.push(observed.output)
    session.head = observed.head
  }
  const head = finished(await conclude(session, work, outputs, engine), work)
  yield emit({ record, session: head.session, outputs, head, done: true })
}
