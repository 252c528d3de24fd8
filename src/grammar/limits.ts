/**
 * How large a grammar may be, and how much is looked at for a token. All of it counts what stands in the event or
 * follows from it and from the vocabulary, so that a replay decides the same. Part of version 1 of grammars: another
 * number is another version.
 */
import { ContinuoError } from '../errors.ts'

/** Of a schema as JSON without white space, and of a grammar's text, in bytes of UTF-8. */
export const MOST_BYTES = 65_536
/** Of a regular expression, in UTF-16 units. */
export const MOST_PATTERN = 4096
/** Schemas, groups or JSON inside each other. */
export const MOST_LEVELS = 64
/** Nodes of a grammar with counted repetitions written out; a character of a text is one. */
export const MOST_NODES = 65_536
/** Rules that are unfinished at a place of the answer: nested values, for example. */
export const MOST_DEPTH = 256
/** Places of the grammar at which an answer can stand at one time, those passed through on the way included. */
export const MOST_PLACES = 4096
/** Work for the mask of one token, see mask.ts. */
export const MOST_WORK = 1 << 21

/** Throws INVALID. */
export const refuse = (message: string): never => {
  throw new ContinuoError('INVALID', message)
}

/** The sentence with which `read` refuses what it reads; null: it does not. */
export const refusalOf = (read: () => unknown): string | null => {
  try {
    read()
    return null
  } catch (error) {
    if (error instanceof ContinuoError && error.code === 'INVALID') return error.message
    throw error
  }
}
