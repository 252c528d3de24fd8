/**
 * advance: what one event does to one session, as a sequence of steps. The same code serves the live stream, the replay
 * after a crash and `continuo verify`; they differ in what happens to the steps.
 *
 * A step ends where the record says so: after each FEED_SLICE tokens read, after as many tokens generated as the
 * request's `run` says. These numbers are part of the state format: a replay must pass through the very heads that were
 * committed.
 */
import { NOVELTY_SPAN } from '../../../topics/novelty.ts'
import { SURPRISAL_SPAN } from '../../../topics/observations.ts'
import { ContextBroken } from '../../engine/context.ts'
import type { WorkResult } from '../../engine/work.ts'
import { ContinuoError } from '../../errors.ts'
import type { Tokenizer } from '../../models/tokenizer/types.ts'
import * as conductor from '../../state/conductor.ts'
import type { Head } from '../../state/head.ts'
import { shareOf } from '../pipeline/shares.ts'
import { causeOf, type Output, type Step, type Tokenized } from '../types.ts'
import { matcherOf } from './bound.ts'
import { conclude, finished } from './concluding.ts'
import { endsOf, generateSlice } from './generating.ts'
import { alertsOf, endOfLines, judged, linesIn } from './lines.ts'
import { memoryObservations } from './memory-observations.ts'
import { pooled } from './pooling.ts'
import { alone, blank, type Inference, moved, remember, type SessionState } from './session-state.ts'
import { reasonOf, SessionLost, setAside } from './set-aside.ts'
import { cursorAt, endOfRequest, observe, spanFrom } from './spans.ts'

export const FEED_SLICE = 256

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

/**
 * Yields the steps of one event and leaves the session after the last of them. `fresh` says that the session began with
 * this event. Ending the iteration between two steps leaves the session at a head from which the next call resumes.
 *
 * A stop in the middle of an adaptation, which `endedBy` does not explain, throws `AdaptingStopped`. What the session
 * was fed of the event before is in its context, and in no step: neither is to be used any more.
 *
 * A state that stops being finite ends the event: the last step sets the session aside, as it was after the step
 * before. Which step that is depends on the record alone, so a replay sets it aside at the same place.
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
      // No replay leads through the past of a session that was set aside: an `open` after this `close` must find that
      // in the head.
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
