/**
 * tokenize: text becomes token ids. The tail of a text that could still merge with what follows is held back, so that
 * how a document was cut into chunks cannot be seen in the tokens; `generate`, `boundary` and `close` flush it.
 *
 * What a session accepts depends on what it has read, so this is also the gate: text for a closed session, a request to
 * continue an empty context, or more tokens than the context has positions left go to the dead letters and leave the
 * session as it was. All of that stands in the session's newest head, so an event is judged when its turn in the
 * session has come: how many positions a generation before it took is known only then.
 */
import type { ModelInfo } from '../../engine/types.ts'
import { ContinuoError } from '../../errors.ts'
import { faultOfGrammar } from '../../grammar/index.ts'
import type { Tokenizer } from '../../models/tokenizer/types.ts'
import type { Head } from '../../state/head.ts'
import { faultOfFork, NOBODY, type Others } from '../advance/fork.ts'
import { faultOfJoin } from '../advance/lines.ts'
import { idsOfToken, MOST_IDS } from '../advance/perspectives.ts'
import { type Cancel, isCancel, type Rejected, type Tokenized, type Valid } from '../types.ts'
import { faultOfPlace } from './input.ts'
import { takenBy } from './once.ts'
import { ruled } from './text-requests.ts'

const NONE = new Int32Array(0)

const missing: Tokenizer = {
  vocabSize: 0,
  eos: null,
  begun: '',
  push: () => ({ ids: NONE, held: '' }),
  pushBytes: () => ({ ids: NONE, held: '' }),
  flush: () => NONE,
  bytesOf: () => new Uint8Array(0),
}

/** The ids that an event makes the model read; `held` before it and after it. */
export const idsOf = (
  event: Valid['event'],
  { held, empty }: { readonly held: string; readonly empty: boolean },
  tokenizer: Tokenizer,
): { readonly ids: Int32Array; readonly held: string } => {
  /** The text ends and the context goes on, if it has begun. */
  const between = (ids: Int32Array): string => (empty && ids.length === 0 ? '' : tokenizer.begun)
  switch (event.type) {
    case 'open':
    case 'cancel':
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
    case 'generate': {
      if (!('bytes' in event)) {
        const ids = tokenizer.flush(held)
        return { ids, held: between(ids) }
      }
      const pushed = tokenizer.pushBytes(held, Buffer.from(event.bytes, 'base64'))
      const rest = tokenizer.flush(pushed.held)
      const ids = new Int32Array(pushed.ids.length + rest.length)
      ids.set(pushed.ids)
      ids.set(rest, pushed.ids.length)
      return { ids, held: between(ids) }
    }
    case 'archive':
    case 'retrieve':
    case 'adapt':
    case 'boundary': {
      const ids = tokenizer.flush(held)
      return { ids, held: event.type === 'boundary' && event.reset ? '' : between(ids) }
    }
    case 'close':
      return { ids: tokenizer.flush(held), held: '' }
    case 'delete':
      return { ids: NONE, held: '' }
  }
}

/** JSON carries whole numbers to 2⁵³; what a tokenizer holds back has room below it. */
const CLOCK_END = 2 ** 53 - 2 ** 20

/**
 * Numbers of a hidden vector that an observation can list: the head of a session that stands in a record has 16 bytes
 * for each.
 */
const MOST_CHANNELS = 32_768

/** The properties of a model by which events are judged. */
export interface Bounded {
  readonly positions: number | null
  readonly outerMemory?: ModelInfo['outerMemory']
  readonly adapts?: ModelInfo['adapts']
  readonly perspectives?: ModelInfo['perspectives']
  readonly channels?: ModelInfo['channels']
}

/**
 * Why a model, and a session of which so many blocks are archived, cannot do what the event asks of its memory; null:
 * they can.
 */
const faultOfMemory = (event: Valid['event'], outerMemory: Bounded['outerMemory'], archived: number): string | null => {
  const asks = event.type === 'archive' || event.type === 'retrieve'
  if (!outerMemory) {
    if (asks)
      return `The model has no external memory, and a "${event.type}" event arrived. Only a model with a memory.json takes it.`
    return event.type === 'open' && event.memory
      ? 'The model has no external memory, and an "open" event asks what it does. Leave "memory" out.'
      : null
  }
  if (event.type !== 'retrieve' || event.blocks === undefined) return null
  const { blocks } = event
  const { mostBlocks } = outerMemory
  if (blocks.length > mostBlocks)
    return `A "retrieve" event names ${blocks.length} blocks, expected at most the ${mostBlocks} that memory.json lets come back at a time.`
  if (new Set(blocks).size < blocks.length) return 'A "retrieve" event names a block twice; name each once.'
  const missing = blocks.find((block) => block >= archived)
  return missing === undefined
    ? null
    : `A "retrieve" event names block ${missing}, expected one of the ${archived} blocks that were archived before it${archived > 0 ? ` (0 to ${archived - 1})` : ''}.`
}

/** Why a model cannot do what the event asks of its experts, or tell it; null: it can. */
const faultOfExperts = (event: Valid['event'], { adapts, perspectives }: Bounded): string | null => {
  if (event.type === 'adapt' && !adapts)
    return 'The model has nothing that adapts, and an "adapt" event arrived. Only a perspective model with "fmea" or "hdm" takes it.'
  if (event.type !== 'open' || !event.perspectives) return null
  if (!perspectives)
    return 'The model does not draw from several perspectives, and an "open" event asks what they find. Leave "perspectives" out.'
  const ids = idsOfToken(perspectives)
  return ids > MOST_IDS
    ? `A token of this model goes to ${ids} experts, more than the ${MOST_IDS} that an observation can list. Leave "perspectives" out.`
    : null
}

/** Why the vectors that the event asks for cannot be told; null: they can. */
const faultOfEmbedding = (event: Valid['event'], { channels = 0 }: Bounded): string | null =>
  event.type === 'open' && event.embedding && channels > MOST_CHANNELS
    ? `A hidden vector of this model has ${channels} numbers, more than the ${MOST_CHANNELS} that an observation can list. Leave "embedding" out.`
    : null

/** Why what is generated cannot be bound as the event asks; null: it can. */
const faultOfBound = (event: Valid['event'], tokenizer: Tokenizer | null): string | null => {
  if (event.type !== 'generate' || event.grammar === undefined) return null
  return tokenizer === null
    ? 'The model has no tokenizer, so a grammar says nothing of its tokens. Leave "grammar" out.'
    : faultOfGrammar(event.grammar)
}

/** A `cancel` that ends no request. */
export const idleCancel = ({ record, session, event }: Cancel): Rejected => ({
  kind: 'rejected',
  record,
  session,
  reason: `A "cancel" event names request "${event.requestId}" of session "${session}", and no such request was waiting or being generated before it: it was over already, was cancelled before, or has another id.`,
})

/**
 * `head` is the newest of the session, undefined for a session that has none yet. `others` has the sessions that it may
 * be forked from; without them there are none.
 */
export const tokenizeEvent = (
  valid: Valid,
  head: Head | undefined,
  given: Tokenizer | null,
  model: Bounded,
  others: Others = NOBODY,
): Tokenized | Rejected => {
  // A cancel has no turn in its session: one that ends a request is finished by the request's last step (infer.ts).
  // Here it came too late.
  if (isCancel(valid)) return idleCancel(valid)
  const { record, session, hash, rule, novelty, alerts } = valid
  const reject = (reason: string): Rejected => ({ kind: 'rejected', record, session, reason })
  const tokenizer = given ?? missing
  const { positions, outerMemory } = model
  const inUse = head === undefined ? 0 : head.conductor.globalStep - head.conductor.origin
  const before = { held: head?.cursor.held ?? '', empty: inUse === 0 }
  let event = ruled(valid, head?.unanswered ?? 0)
  let read: ReturnType<typeof idsOf>
  try {
    read = idsOf(event, before, tokenizer)
    // A rule asks to continue where there is something to continue.
    if (event !== valid.event && inUse === 0 && read.ids.length === 0) {
      event = valid.event
      read = idsOf(event, before, tokenizer)
    }
  } catch (error) {
    if (error instanceof ContinuoError && error.code === 'INVALID') return reject(error.message)
    throw error
  }
  const { ids, held } = read
  const byRule = { ...(rule && { rule }), ...(novelty && { novelty }), ...(alerts !== undefined && { alerts }) }
  const tokenized: Tokenized = { kind: 'tokenized', record, session, event, hash, ids, held, ...byRule }
  // An event inside which the head stands was accepted before its first token.
  if (head !== undefined && head.cursor.offset === record.offset && !head.cursor.complete) return tokenized
  const taken = takenBy(valid, head)
  if (taken !== undefined)
    return {
      ...reject(
        `What was to be done once by the key "${taken.key}" of session "${session}" was sent before, at offset ${taken.offset}, and is done or under way. Nothing of this attempt is. Ask for something else by another key.`,
      ),
      first: taken.offset,
    }
  const misplaced = head === undefined && others.homes ? faultOfPlace(record, session, others.homes) : null
  if (misplaced !== null) return reject(misplaced)
  if (event.type === 'delete') {
    return head === undefined
      ? reject(
          `Partition ${record.partition} has no session "${session}" before this record, and a "delete" event arrived.`,
        )
      : tokenized
  }
  if (head?.status === 'closed' && event.type !== 'open') {
    return reject(
      `Session "${session}" is closed; a "${event.type}" event arrived. Send "open" first: it begins a new context.`,
    )
  }
  const stopped = head?.status === 'stopped' ? head.stopped : undefined
  if (stopped !== undefined && event.type !== 'close' && !(event.type === 'boundary' && event.reset)) {
    return reject(`${stopped.reason} A "${event.type}" event arrived.`)
  }
  const fault =
    faultOfMemory(event, outerMemory, head?.archived ?? 0) ??
    faultOfExperts(event, model) ??
    faultOfEmbedding(event, model) ??
    faultOfBound(event, given) ??
    faultOfJoin(event)
  if (fault !== null) return reject(fault)
  if (event.type === 'open' && event.from !== undefined) {
    const parent = others.newest(event.from.session)
    const unfit = faultOfFork({ record, session }, event.from, head, parent, others.homes?.home)
    return unfit === null ? { ...tokenized, held: parent!.cursor.held, parent: parent! } : reject(unfit)
  }
  if (head === undefined && event.type === 'adapt') {
    return reject(
      `Session "${session}" is not open; an "adapt" event arrived. Send what it shall learn from first, or "open".`,
    )
  }
  const asked = ids.length + (event.type === 'generate' ? event.maxTokens : 0)
  if (head !== undefined && head.conductor.globalStep > CLOCK_END - asked) {
    return reject(
      `The clock of session "${session}" stands at pulse ${head.conductor.globalStep} and cannot count ${asked} tokens more: it ends at ${CLOCK_END}. Nothing of the event was read. Go on with another session.`,
    )
  }
  if (event.type === 'generate' && inUse === 0 && ids.length === 0) {
    return reject(
      `Session "${session}" has read nothing yet, so there is nothing to continue. Send text before "generate".`,
    )
  }
  if (positions !== null && (event.type === 'text' || event.type === 'tokens' || 'bytes' in event)) {
    // With the text it would leave held back, for which `generate`, `boundary` and `close` must find room.
    const needed = inUse + ids.length + tokenizer.flush(held).length
    if (needed > positions) {
      return reject(
        `context overflow: ${needed} positions exceed the ${positions} of one context; session "${session}" has ${inUse} in use. Nothing of the event was read. Send less, "generate" what still fits, or begin anew with a "boundary" that has "reset".`,
      )
    }
  }
  return tokenized
}
