/**
 * asked: the header `continuo-asked` of a `generate` event, in which a gateway keeps what its client asked for, and
 * reads it back for a request for the response by its id. No operator reads it, no output depends on it, and none
 * carries it, dead letters included: it may be as long as a conversation.
 */
import type { Headers } from '../../streams/log.ts'

export const ASKED_HEADER = 'continuo-asked'

/** The other headers. */
export const withoutAsked = (headers: Headers): Headers => headers.filter(([name]) => name !== ASKED_HEADER)
