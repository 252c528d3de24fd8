/**
 * asked: what a client of the gateway asked for, beside the event that it became: the header `continuo-asked` of a `generate` event, which a gateway
 * reads back when somebody asks for the response by its id. No operator reads it, no output depends on it, and none carries it, dead letters
 * included: it may be as long as a conversation.
 */
import type { Headers } from '../../streams/log.ts'

export const ASKED_HEADER = 'continuo-asked'

/** The other headers. */
export const withoutAsked = (headers: Headers): Headers => headers.filter(([name]) => name !== ASKED_HEADER)
