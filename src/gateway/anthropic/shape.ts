/** An answer in blocks of text and calls, whole and in events, as Anthropic's clients read it. */

import type { Asking, Shape, Usage } from '../answer/job.ts'
import { callId, type Piece, wholeCalls } from '../answer/pieces.ts'
import type { ServerEvent } from '../sse.ts'
import type { MessagesRequest } from './schema.ts'
import { inputOf } from './tools.ts'

/** What was read before is no part of `input_tokens` in this protocol. */
const usageOf = (prompt: number, cached: number, output: number) => ({
  input_tokens: prompt - cached,
  output_tokens: output,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: cached,
})
const usageIn = ({
  prompt_tokens: prompt,
  prompt_tokens_details: { cached_tokens: cached },
  completion_tokens: output,
}: Usage) => usageOf(prompt, cached, output)

/** The protocol has no word of its own for an answer that was cancelled. */
const REASONS = { stop: 'end_turn', length: 'max_tokens', calls: 'tool_use', cancelled: 'end_turn' } as const

/** Why an answer ended. */
const endOf = (last: Piece | undefined, { stop_sequences: stops }: Asked) => {
  if (last === undefined || last.finish === null) return { stop_reason: null, stop_sequence: null }
  // A stop text of the form alone ends a turn.
  if (last.stop !== undefined && stops.includes(last.stop))
    return { stop_reason: 'stop_sequence', stop_sequence: last.stop }
  return { stop_reason: REASONS[last.finish], stop_sequence: null }
}

/** What an answer's shape depends on. */
type Asked = Pick<MessagesRequest, 'model' | 'stop_sequences' | 'tools'>

/** The answer to a request as Anthropic's clients read it. */
export const messageShape = (
  { promptTokens, cachedTokens, nonce }: Pick<Asking, 'promptTokens' | 'cachedTokens' | 'nonce'>,
  body: Asked,
): Shape => {
  const about = { id: `msg_${nonce}`, type: 'message', role: 'assistant', model: body.model }
  let last: Piece | undefined
  /** How many blocks were begun, and whether the last of them is open. */
  let begun = 0
  let open = false
  const event = (type: string, more: object = {}): ServerEvent => ({ event: type, data: { type, ...more } })
  const callOf = (index: number, name: string, input: Readonly<Record<string, unknown>>) => ({
    ...{ type: 'tool_use', id: callId(about.id, index), name, input, caller: { type: 'direct' } },
  })
  const ends = (): readonly ServerEvent[] => {
    if (!open) return []
    open = false
    return [event('content_block_stop', { index: begun - 1 })]
  }
  const begins = (content_block: object): readonly ServerEvent[] => {
    const before = ends()
    open = true
    begun += 1
    return [...before, event('content_block_start', { index: begun - 1, content_block })]
  }
  const begin = (): readonly ServerEvent[] => begins({ type: 'text', text: '' })
  const goesOn = (delta: object): ServerEvent => event('content_block_delta', { index: begun - 1, delta })
  return {
    id: about.id,
    opening: () => [
      event('message_start', {
        message: {
          ...about,
          content: [],
          ...endOf(undefined, body),
          usage: usageOf(promptTokens ?? 0, cachedTokens, 0),
        },
      }),
      // Of an answer that may be a call it is not known yet.
      ...(body.tools.length > 0 ? [] : begin()),
      event('ping'),
    ],
    piece(piece) {
      last = piece
      const events: ServerEvent[] = []
      if (piece.text !== '') {
        if (!open) events.push(...begin())
        events.push(goesOn({ type: 'text_delta', text: piece.text }))
      }
      for (const { index, name, json } of piece.calls) {
        if (name !== undefined) events.push(...begins(callOf(index, name, {})))
        if (json !== '') events.push(goesOn({ type: 'input_json_delta', partial_json: json }))
      }
      return events
    },
    closing: (usage) => [
      ...(begun === 0 ? begin() : []),
      ...ends(),
      event('message_delta', { delta: endOf(last, body), usage: usageIn(usage) }),
      event('message_stop'),
    ],
    whole(pieces, usage) {
      const text = pieces.map((piece) => piece.text).join('')
      const calls = wholeCalls(pieces).map(({ index, name, json }) => callOf(index, name, inputOf(json)))
      return {
        ...about,
        content: [...(text === '' && calls.length > 0 ? [] : [{ type: 'text', text }]), ...calls],
        ...endOf(pieces.at(-1), body),
        usage: usageIn(usage),
      }
    },
  }
}
