/** The parts of a head that belong to the record in hand: the place in it, and the observation in progress. */
import type { Observation } from '../../../topics/observations.ts'
import type { Generated } from '../../../topics/tokens.ts'
import type { Head } from '../../state/head.ts'
import { causeOf, type Output, type SessionEvent } from '../types.ts'
import { embeddingOf } from './pooling.ts'

/** An observation that begins at this pulse: nothing read yet. */
export const spanFrom = (fromPulse: number): Head['span'] => ({
  fromPulse,
  tokens: 0,
  predictions: 0,
  bytes: 0,
  nats: 0,
  surprisal: [],
})

/** The cursor before the first token of this record. */
export const cursorAt = ({ record, event, hash }: SessionEvent) => ({
  topic: record.topic,
  partition: record.partition,
  offset: record.offset,
  token: 0,
  complete: false,
  chunk: event.id ?? null,
  hash,
})

/**
 * The last tokens event of a request that ends before another token: readers of the topic wait for one with a `finish`.
 */
export const endOfRequest = (
  head: Head,
  { record, event }: SessionEvent,
  requestId: string,
  finish: NonNullable<Generated['finish']>,
): Output => {
  const pulse = head.conductor.globalStep
  const value: Generated = {
    type: 'generated',
    version: 1,
    session: head.session,
    requestId,
    index: head.generation?.index ?? 0,
    ids: [],
    text: '',
    logprobs: [],
    fromPulse: pulse,
    toPulse: pulse,
    finish,
    cause: causeOf(record, event.id ?? null),
  }
  return { to: 'tokens', value }
}

/** Tells what was read since the last `observed` event, and begins a new span. */
export const observe = (
  head: Head,
  work: SessionEvent,
  last: boolean,
  readsText: boolean,
): { head: Head; output: Output } => {
  const { span } = head
  const value: Observation = {
    type: 'observed',
    version: 1,
    session: head.session,
    cause: causeOf(work.record, work.event.id ?? null),
    fromPulse: span.fromPulse,
    toPulse: span.fromPulse + span.tokens,
    tokens: span.tokens,
    predictions: span.predictions,
    nats: span.nats,
    bitsPerByte: span.bytes === 0 || !readsText ? null : span.nats / Math.LN2 / span.bytes,
    ...(head.settings.surprisal ? { surprisal: span.surprisal } : {}),
    ...(head.settings.novelty && readsText ? { lines: span.lines ?? [] } : {}),
    ...(span.hidden && { embedding: embeddingOf(span.hidden, span.tokens) }),
    last,
  }
  return {
    head: { ...head, span: spanFrom(head.conductor.globalStep) },
    output: { to: 'observations', value },
  }
}
