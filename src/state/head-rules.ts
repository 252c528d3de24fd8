/**
 * What must hold between the fields of a head, beyond the form that the schema gives each of them. They are checked
 * before a head is sealed and before a stored head is used: one that breaks a rule would fail later, where its cause is
 * unknown.
 */
import { LINES_OF_TOKEN, NOVELTY_SPAN } from '../../topics/novelty.ts'
import { SURPRISAL_SPAN } from '../../topics/observations.ts'
import type { Head } from '../../topics/state.ts'

/**
 * The clock of a session that comes from a file may stand here at most. From here to 2⁵³, where JSON's whole numbers
 * end, are 4.5·10¹⁵ tokens: more than a session can read or write.
 */
export const LARGEST_IMPORTED_PULSE = 2 ** 52

/**
 * UTF-16 units of text that a tokenizer may hold back: five parts of at most 4,096 each, and their marks
 * (docs/formats.md, Held text).
 */
const MOST_HELD = 32_768
/** base64 of the three bytes that an unfinished character of UTF-8 can have. */
const MOST_UNFINISHED = 4
/** base64 of the longest stop string: 256 UTF-16 units, three bytes each. */
const MOST_TAIL = 1024
/**
 * Tokens that a step reads before it looks at how long the observation is: FEED_SLICE of operators/advance/advance.ts.
 */
const MOST_STEP = 256
const MOST_SURPRISAL = SURPRISAL_SPAN + MOST_STEP
const MOST_LINES = NOVELTY_SPAN + MOST_STEP * LINES_OF_TOKEN
/** The surprisal of a token is a difference of two f32, so it is less than twice the largest of them. */
const MOST_NATS = 2 * 3.4028235e38

/** A memory.json has no smaller blocks. */
const LEAST_BLOCK = 4

/** The properties of a model that the rules need. */
export interface Positions {
  /** Tokens that one context takes; null: there is no bound. */
  readonly positions: number | null
  /** null: its context is its memory. Missing: it is not known which model it is. */
  readonly outerMemory?: { readonly blockSize: number } | null
  /** null: its tokens are not drawn from several perspectives. Missing: as above. */
  readonly perspectives?: object | null
  /** Of a hidden vector. Missing: as above. */
  readonly channels?: number
}

const faultOfNats = (nats: number, predictions: number): string | null =>
  Number.isFinite(nats) && Math.abs(nats) <= predictions * MOST_NATS
    ? null
    : `${nats} nats cannot be the surprisal of ${predictions} tokens`

/** The same for the sums alone. */
export const faultOfSums = ({ totals, conductor }: Head): string | null => {
  const { tokens, generated, predictions, nats } = totals
  if (tokens + generated !== conductor.globalStep)
    return `its sums count ${tokens} tokens read and ${generated} generated, its clock ${conductor.globalStep} of both`
  if (predictions > tokens) return `${predictions} of ${tokens} tokens read cannot have been predicted`
  return faultOfNats(nats, predictions)
}

/** f64 and f32 in base64. */
const hiddenBytes = (text: string): number => Buffer.byteLength(text, 'base64')

const faultOfHidden = ({ span: { hidden, tokens }, settings }: Head, { channels }: Positions): string | null => {
  if (hidden === undefined)
    return settings.embedding && tokens > 0 ? `an observation of ${tokens} tokens has none of their vectors` : null
  if (!settings.embedding || tokens === 0) return 'an observation in progress has vectors that it was not asked for'
  const [sum, last] = [hiddenBytes(hidden.sum), hiddenBytes(hidden.last)]
  const width = channels ?? last / 4
  return sum === 8 * width && last === 4 * width && width > 0
    ? null
    : `the vectors of an observation have ${sum} and ${last} bytes, expected 8 and 4 for each of ${channels ?? 'its'} channels`
}

const faultOfSpan = (head: Head, model: Positions): string | null => {
  const { span, cursor, conductor, settings } = head
  const { fromPulse, tokens, predictions, nats, surprisal, lines } = span
  if (cursor.complete && tokens > 0) return `an observation of ${tokens} tokens is in progress in a finished record`
  if (tokens > cursor.token)
    return `an observation of ${tokens} tokens is in progress after ${cursor.token} of its record`
  if (fromPulse + tokens !== conductor.globalStep)
    return `an observation from pulse ${fromPulse} on has ${tokens} tokens at pulse ${conductor.globalStep}`
  if (predictions > tokens) return `${predictions} of the ${tokens} tokens observed cannot have been predicted`
  const listed = settings.surprisal ? tokens : 0
  if (surprisal.length !== listed || listed > MOST_SURPRISAL)
    return `an observation of ${tokens} tokens lists the surprisal of ${surprisal.length}`
  if (lines !== undefined && (!settings.novelty || lines.length > MOST_LINES))
    return `an observation in progress tells of ${lines.length} lines, expected ${settings.novelty ? `${MOST_LINES} at most` : 'none'}`
  return faultOfHidden(head, model) ?? faultOfNats(nats, predictions)
}

const faultOfGeneration = ({ generation, cursor }: Head): string | null => {
  if (generation === null) return null
  const { index, unfinished, tail } = generation
  if (cursor.complete) return `a generation is in progress at token ${index}, and its record is finished`
  if (index === 0 || index > cursor.token)
    return `a generation is in progress at token ${index}, after ${cursor.token} tokens of its record`
  if (unfinished.length > MOST_UNFINISHED) return 'its unfinished character has more than 3 bytes'
  return tail.length > MOST_TAIL ? 'the end of its generated text is longer than any stop string' : null
}

const faultOfFork = ({ from, born, session, conductor }: Head): string | null => {
  if (from === undefined) return null
  if (born < 0) return `it was forked from session "${from.session}" by a record of another log`
  if (from.session === session) return 'it was forked from itself'
  return from.pulse > conductor.globalStep
    ? `it was forked at pulse ${from.pulse}, after its clock, which stands at ${conductor.globalStep}`
    : null
}

const faultOfClaims = ({ claims = [], cursor }: Head): string | null => {
  const late = claims.find(({ offset }) => offset > cursor.offset)
  if (late !== undefined)
    return `it was asked for "${late.key}" at offset ${late.offset}, after its last record, at ${cursor.offset}`
  return new Set(claims.map(({ key }) => key)).size < claims.length ? 'it names a key of what is done once twice' : null
}

const faultOfArchived = ({ archived, conductor }: Head, { outerMemory }: Positions): string | null => {
  if (archived === undefined) return null
  if (outerMemory === null) return `it counts ${archived} archived blocks, and the model has no external memory`
  const tokens = conductor.globalStep - conductor.origin
  const most = Math.floor(tokens / (outerMemory?.blockSize ?? LEAST_BLOCK))
  return archived > most
    ? `it counts ${archived} archived blocks, and the ${tokens} tokens of its context fill ${most} at most`
    : null
}

const faultOfSettings = ({ settings }: Head, { perspectives }: Positions): string | null => {
  if (settings.join !== undefined && !settings.novelty) return 'it joins lines and tells of none'
  return settings.perspectives && perspectives === null
    ? 'it asks what perspectives find, and the model does not draw from several'
    : null
}

/** The rule that the head breaks, as the second half of a sentence ("Session … cannot be used: …"); null: none. */
export const faultOf = (head: Head, model: Positions = { positions: null }): string | null => {
  const { positions } = model
  const { cursor, conductor, status, stopped } = head
  const { globalStep, origin } = conductor
  if (cursor.rng !== globalStep)
    return `its next draw has counter ${cursor.rng}, its clock stands at pulse ${globalStep}`
  if (origin > globalStep) return `its context began at pulse ${origin}, after its clock, which stands at ${globalStep}`
  if (positions !== null && globalStep - origin > positions)
    return `its context holds ${globalStep - origin} tokens, and the model has ${positions} positions`
  // A session that was set aside may have been closed since.
  if (status !== 'closed' && (status === 'stopped') !== (stopped !== undefined))
    return `its status is "${status}" and it ${stopped === undefined ? 'does not say why' : 'says why it was set aside'}`
  if (status !== 'open' && !cursor.complete) return `it is ${status} in the middle of a record`
  if (cursor.held.length > MOST_HELD)
    return `it holds back ${cursor.held.length} characters, more than a tokenizer does (${MOST_HELD})`
  const fault =
    faultOfSums(head) ?? faultOfSpan(head, model) ?? faultOfGeneration(head) ?? faultOfFork(head) ?? faultOfClaims(head)
  return fault ?? faultOfArchived(head, model) ?? faultOfSettings(head, model)
}
