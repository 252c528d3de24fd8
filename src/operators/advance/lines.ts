/**
 * The lines of what a session reads: what was new about each, and the alerts of those that stand out (docs/watch.md).
 */
import type { LineNovelty } from '../../../topics/novelty.ts'
import { bounded } from '../../bounded.ts'
import { messageOf } from '../../errors.ts'
import { refusalOf } from '../../grammar/limits.ts'
import { openSearch } from '../../grammar/search.ts'
import { sha256 } from '../../hash.ts'
import type { Tokenizer } from '../../models/tokenizer/types.ts'
import type { Begins } from '../../novelty/lines.ts'
import { standsOut } from '../../novelty/stands-out.ts'
import type { Head } from '../../state/head.ts'
import type { History } from '../../state/history.ts'
import { causeOf, type Output, type Tokenized } from '../types.ts'
import { SessionLost } from './set-aside.ts'

/** The head behind lines that ended. */
export const judged = (head: Head, lines: readonly LineNovelty[]): Head => {
  if (lines.length === 0) return head
  const digest = sha256((head.novelty?.digest ?? '') + JSON.stringify(lines)).slice(0, 32)
  return {
    ...head,
    novelty: { lines: lines.at(-1)!.line, digest },
    span: { ...head.span, lines: [...(head.span.lines ?? []), ...lines] },
  }
}

/** The alerts of lines that stand out, where the input asks for them. */
export const alertsOf = (
  lines: readonly LineNovelty[],
  { session, event, record, alerts }: Tokenized,
): readonly Output[] => {
  if (alerts === undefined) return []
  const common = { type: 'alert', version: 1, session, cause: causeOf(record, event.id ?? null) } as const
  return lines.flatMap((line): Output[] => {
    const parts = standsOut(line, alerts)
    return parts.length === 0
      ? []
      : [{ to: 'alerts', value: { ...common, pulse: line.toPulse, standsOut: parts, line } }]
  })
}

/** Regular expressions of records whose automata are kept. */
const searches = bounded<NonNullable<Begins>>(64)

/** Throws INVALID for an expression that cannot be used. */
const searchOf = (join: string): NonNullable<Begins> => {
  const found = searches.get(join) ?? openSearch(join, '"join"')
  searches.set(join, found)
  return found
}

/** Why lines cannot be joined as the event asks; null: they can, or it does not. */
export const faultOfJoin = (event: Tokenized['event']): string | null => {
  if (event.type !== 'open' || event.join === undefined) return null
  const { join, novelty } = event
  return novelty
    ? refusalOf(() => searchOf(join))
    : 'An "open" event has "join" without "novelty", and only lines that are told of are joined. Send "novelty": true with it, or leave "join" out.'
}

/**
 * What begins a record of the session; null: each line. Throws SessionLost for an expression that no event can have
 * given it.
 */
const beginsOf = ({ join }: Head['settings']): Begins => {
  if (join === undefined) return null
  try {
    return searchOf(join)
  } catch (error) {
    throw new SessionLost(`The lines of the session cannot be joined: ${messageOf(error)}`, { cause: error })
  }
}

/** What was new about the line, or record, that the end of a text ends. */
export const endOfLines = ({ settings, conductor }: Head, history: History): readonly LineNovelty[] =>
  history.lines().end(conductor.globalStep, beginsOf(settings))

/** What was new about the lines that ended with `ids`, where the session asks for it. */
export const linesIn = (
  { settings, conductor: { globalStep } }: Head,
  history: History,
  ids: Int32Array,
  nats: Float32Array,
  tokenizer: Tokenizer | null,
): readonly LineNovelty[] => {
  if (!settings.novelty || tokenizer === null) return []
  const judge = history.lines()
  const begins = beginsOf(settings)
  const from = globalStep - ids.length
  const told: LineNovelty[] = []
  for (const [at, value] of nats.entries()) judge.token(tokenizer.bytesOf(ids[at]!), value, from + at, told, begins)
  return told
}
