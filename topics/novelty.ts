import { z } from 'zod'
import { count } from './common.ts'

const standing = z.strictObject({
  score: z.number().min(0),
  /** The share of the last thousand lines with a lower score; null while fewer than a hundred were read. */
  rank: z.number().min(0).max(1).nullable(),
})

/**
 * What was new about a line that was read (docs/watch.md). Lines are those of the session's text, whatever events it
 * came in; one without a byte is none.
 */
export const lineNovelty = z.strictObject({
  /** The number of the line in the session's context, from 1. */
  line: z.int().min(1),
  /** The line and its end were read at pulses `fromPulse` … `toPulse − 1`, texts of other events among them. */
  fromPulse: count,
  toPulse: count,
  /** Of the line without its end; and what they cost, bits. */
  bytes: count,
  bits: z.number(),
  /** A kind of line that was not there before. */
  structure: standing,
  /** A known kind with a number or a word that does not fit. */
  values: standing,
  /** The same line over and over; of lines that were told before there were rates it is missing. */
  rate: standing.optional(),
  /**
   * Other kinds of lines that came again and again and then did not: those that were found silent at this line.
   * `every`: lines from one to the next, as a geometric mean; `lines`: since the last one, whose first pulse is `last`.
   * Missing where there are none.
   */
  silence: standing
    .extend({
      kinds: z
        .array(z.strictObject({ pattern: z.string(), every: count, lines: z.int().min(1), last: count }))
        .min(1)
        .max(3),
    })
    .optional(),
  /**
   * Lines of the same pattern before this one, as far as they are remembered; the first pulses of the first and the
   * last of them.
   */
  seen: count,
  first: count.optional(),
  last: count.optional(),
  /**
   * Of a line with a rank of 0.95 or more: the line; the same with its words with digits replaced by `<*>`; and the
   * words that cost most, bits. Longer texts are cut and end with `…`.
   */
  text: z.string().optional(),
  pattern: z.string().optional(),
  words: z.array(z.strictObject({ word: z.string(), bits: z.number() })).optional(),
})
/** What was new about a line that was read. */
export type LineNovelty = z.infer<typeof lineNovelty>

/** As observations and alerts tell it. */
export const lineExample: LineNovelty = {
  line: 812,
  fromPulse: 39603,
  toPulse: 39674,
  bytes: 70,
  bits: 318.55,
  structure: { score: 50.573, rank: 1 },
  values: { score: 0, rank: 0 },
  rate: { score: 0, rank: 0 },
  seen: 0,
  text: '06:34:33 lamp: mantle cracked on bearing 210, burning the reserve wick',
  pattern: '<*> lamp: mantle cracked on bearing <*> burning the reserve wick',
  words: [{ word: 'mantle', bits: 53.91 }],
}

/** Lines of an `observed` event from which on another one begins, so that no event exceeds the record size of a log. */
export const NOVELTY_SPAN = 128
/** Of a token that ends more lines than these, the other line ends are bytes of a line. */
export const LINES_OF_TOKEN = 1
