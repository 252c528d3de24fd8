/**
 * tokenize: text becomes token ids. The tail of a text that could still merge with what follows is held back, so that how a
 * document was cut into chunks cannot be seen in the tokens; `generate`, `boundary` and `close` flush it.
 *
 * What a session accepts depends on what it has read, so this is also the gate: text for a closed session, or a request to
 * continue an empty context, goes to the dead letters and leaves the session as it was.
 */
import { map, type OperatorFunction } from 'rxjs'
import type { Head } from '../state/head.ts'
import type { Rejected, Tokenized, Valid } from './types.ts'

/** The part of a tokenizer that the stream needs; `src/models/tokenizer/` implements it. */
export interface Tokenizer {
  /** The id that ends a generation; null: none does. */
  readonly eos: number | null
  /** What is held between two texts of one context. */
  readonly begun: string
  push(held: string, text: string): { readonly ids: Int32Array; readonly held: string }
  pushBytes(held: string, bytes: Uint8Array): { readonly ids: Int32Array; readonly held: string }
  flush(held: string): Int32Array
  bytesOf(id: number): Uint8Array
}

/** What the gate remembers of a session: its state after all events passed so far. */
export interface Gate {
  readonly closed: boolean
  readonly empty: boolean
  readonly held: string
}

const NEW: Gate = { closed: false, empty: true, held: '' }
const NONE = new Int32Array(0)

export const gateOf = (head: Head | undefined): Gate =>
  head === undefined
    ? NEW
    : {
        closed: head.status === 'closed',
        empty: head.conductor.globalStep === head.conductor.origin,
        held: head.cursor.held,
      }

const missing: Tokenizer = {
  eos: null,
  begun: '',
  push: () => ({ ids: NONE, held: '' }),
  pushBytes: () => ({ ids: NONE, held: '' }),
  flush: () => NONE,
  bytesOf: () => new Uint8Array(0),
}

const idsOf = (
  event: Valid['event'],
  { held, empty }: Gate,
  tokenizer: Tokenizer,
): { readonly ids: Int32Array; readonly held: string } => {
  /** The text ends and the context goes on, if it has begun. */
  const between = (ids: Int32Array): string => (empty && ids.length === 0 ? '' : tokenizer.begun)
  switch (event.type) {
    case 'open':
      return { ids: NONE, held }
    case 'text':
      return 'text' in event
        ? tokenizer.push(held, event.text)
        : tokenizer.pushBytes(held, Buffer.from(event.bytes, 'base64'))
    case 'tokens': {
      // Ids end a text: what was held back comes first.
      const flushed = tokenizer.flush(held)
      const ids = new Int32Array(flushed.length + event.tokens.length)
      ids.set(flushed)
      ids.set(event.tokens, flushed.length)
      return { ids, held: between(ids) }
    }
    case 'generate':
    case 'boundary': {
      const ids = tokenizer.flush(held)
      return { ids, held: event.type === 'boundary' && event.reset ? '' : between(ids) }
    }
    case 'close':
      return { ids: tokenizer.flush(held), held: '' }
  }
}

export const tokenizeEvent = (
  { record, session, event, hash }: Valid,
  gate: Gate,
  tokenizer: Tokenizer | null,
): { readonly out: Tokenized | Rejected; readonly gate: Gate } => {
  const reject = (reason: string) => ({ out: { kind: 'rejected', record, session, reason } as const, gate })
  if (gate.closed && event.type !== 'open') {
    return reject(
      `Session "${session}" is closed; a "${event.type}" event arrived. Send "open" first: it begins a new context.`,
    )
  }
  const { ids, held } = idsOf(event, gate, tokenizer ?? missing)
  const empty = event.type === 'boundary' && event.reset ? true : gate.empty && ids.length === 0
  if (event.type === 'generate' && empty) {
    return reject(
      `Session "${session}" has read nothing yet, so there is nothing to continue. Send text before "generate".`,
    )
  }
  const after: Gate =
    event.type === 'open'
      ? { ...gate, closed: false, empty: gate.closed || gate.empty }
      : { closed: event.type === 'close', empty, held }
  return { out: { kind: 'tokenized', record, session, event, hash, ids, held: after.held }, gate: after }
}

/** `headOf` gives the committed head of a session that this worker has not met yet. */
export const tokenize = (
  tokenizer: Tokenizer | null,
  headOf: (session: string) => Head | undefined,
): OperatorFunction<Valid | Rejected, Tokenized | Rejected> => {
  const gates = new Map<string, Gate>()
  return map((item) => {
    if (item.kind === 'rejected') return item
    const { out, gate } = tokenizeEvent(item, gates.get(item.session) ?? gateOf(headOf(item.session)), tokenizer)
    gates.set(item.session, gate)
    return out
  })
}
