/**
 * `truncation` of a response: a conversation that is too long for a context is read without its oldest turns, if the
 * request asks for that.
 */
import type { Tools } from '../../models/chat/form.ts'
import type { ChatForm, Message } from '../../models/chat/index.ts'
import type { Job, Prompt, Standing } from '../answer/job.ts'
import { Refusal } from '../refusal.ts'

/** Tokens that the answer is to have room for: what it may have, but at most half of the context. */
const roomOf = (positions: number, most: number): number => Math.min(most, Math.floor(positions / 2))

/**
 * The messages whose rendering has at most `positions` tokens with room for an answer of `most`: system messages all,
 * of the others the last ones, from a message of the user on, so that no result is without its call. As they are where
 * they fit, and the last turn where nothing does.
 */
const fitted = (
  form: Pick<ChatForm, 'begin'>,
  messages: readonly Message[],
  tools: Tools,
  { positions, most }: { readonly positions: number; readonly most: number },
): readonly Message[] => {
  const room = positions - roomOf(positions, most)
  const from = (first: number): readonly Message[] =>
    messages.filter(({ role }, at) => role === 'system' || at >= first)
  const fits = (first: number): boolean => form.begin(from(first), tools).length <= room
  const starts = messages.flatMap(({ role }, at) => (role === 'user' ? [at] : []))
  if (starts.length < 2 || fits(0)) return messages
  // The more is left out, the shorter it is: the first start that fits is searched for in some ten renderings.
  let [low, high] = [1, starts.length - 1]
  while (low < high) {
    const middle = (low + high) >> 1
    if (fits(starts[middle]!)) high = middle
    else low = middle + 1
  }
  return from(starts[low]!)
}

/**
 * What is fed before the answer: `promptOf` of the messages, or of those that fit. Throws a Refusal (400) for a
 * session, which has read what it has read.
 */
export const truncating =
  (
    form: Pick<ChatForm, 'begin'>,
    messages: readonly Message[],
    tools: Tools,
    size: { readonly positions: number | null; readonly most: number },
    promptOf: (messages: readonly Message[]) => Job['prompt'],
  ): ((standing: Standing) => Prompt) =>
  (standing) => {
    if (!standing.fresh)
      throw new Refusal(
        400,
        '"truncation": "auto" is not supported where a session goes on: what it has read stays read. Send the whole conversation, or ask for "disabled".',
        { param: 'truncation' },
      )
    const { positions, most } = size
    return promptOf(positions === null ? messages : fitted(form, messages, tools, { positions, most }))(standing)
  }
