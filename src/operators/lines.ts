/** The lines of what a session reads: what was new about each, and the alerts of those that stand out (docs/watch.md). */
import type { LineNovelty } from '../../topics/novelty.ts'
import { bounded } from '../bounded.ts'
import { ContinuoError, messageOf } from '../errors.ts'
import { openSearch } from '../grammar/search.ts'
import { sha256 } from '../hash.ts'
import type { Tokenizer } from '../models/tokenizer/types.ts'
import type { Begins } from '../novelty/lines.ts'
import { standsOut } from '../novelty/stands-out.ts'
import type { Head } from '../state/head.ts'
import type { History } from '../state/history.ts'
import { SessionLost } from './set-aside.ts'
import { causeOf, type Output, type Tokenized } from './types.ts'

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

/** Why lines cannot be joined as the event asks; null: they can, or it does not. */
export const faultOfJoin = (event: Tokenized['event']): string | null => {
  if (event.type !== 'open' || event.join === undefined) return null
  if (!event.novelty)
    return 'An "open" event has "join" without "novelty", and only lines that are told of are joined. Send "novelty": true with it, or leave "join" out.'
  try {
    openSearch(event.join, '"join"')
    return null
  } catch (error) {
    if (error instanceof ContinuoError && error.code === 'INVALID') return error.message
    throw error
  }
}

/** Regular expressions of records whose automata are kept. */
const searches = bounded<Begins>(64)

/** Throws SessionLost for an expression that no event can have given the session. */
const searchOf = (join: string): Begins => {
  try {
    return openSearch(join, '"join"')
  } catch (error) {
    throw new SessionLost(`The lines of the session cannot be joined: ${messageOf(error)}`, { cause: error })
  }
}

/** What begins a record of the session; null: each line. */
const beginsOf = ({ join }: Head['settings']): Begins => {
  if (join === undefined) return null
  const begins = searches.get(join) ?? searchOf(join)
  searches.set(join, begins)
  return begins
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
