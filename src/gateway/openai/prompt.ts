/** Prompts and messages of OpenAI's requests as events. */
import { setImmediate as turn } from 'node:timers/promises'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { idEvents, textEvents } from '../../client/chunks.ts'
import { CHUNK_BYTES } from '../../client/feed.ts'
import type { Tools } from '../../models/chat/form.ts'
import type { ChatForm, Message } from '../../models/chat/index.ts'
import { type Start, startBehind } from '../../models/chat/thoughts.ts'
import type { Tokenizer } from '../../models/tokenizer/index.ts'
import { wholeAt } from '../../models/tokenizer/limits.ts'
import type { Prompt, Standing } from '../answer/job.ts'
import { Refusal } from '../refusal.ts'
import type { Served } from '../service.ts'
import type { CompletionRequest } from './schema.ts'

/** As OpenAI has them where a request says nothing; a conversation has no number there. */
export const MAX_TOKENS = { completion: 16, chat: 1024 }
const events = async (text: string): Promise<ChunkInput[]> => {
  async function* source(): AsyncGenerator<Uint8Array> {
    yield Buffer.from(text)
  }
  const pieces: ChunkInput[] = []
  if (text !== '')
    for await (const piece of textEvents(source(), CHUNK_BYTES)) if (piece !== null) pieces.push(piece.event)
  return pieces
}

/**
 * UTF-16 units of a text that are cut into tokens at one time, and ids that are made text: others get their turn
 * between.
 */
export const PIECE = 1 << 14

/** The ids that a session reads of a text that is its first. */
export const idsOf = async (text: string, tokenizer: Tokenizer): Promise<number[]> => {
  const all: number[] = []
  const add = (ids: Int32Array): void => {
    for (const id of ids) all.push(id)
  }
  let held = ''
  for (let at = 0; at < text.length; ) {
    const end = wholeAt(text, at + PIECE)
    const pushed = tokenizer.push(held, text.slice(at, end))
    add(pushed.ids)
    held = pushed.held
    at = end
    await turn()
  }
  if (held !== '') add(tokenizer.flush(held))
  return all
}

/** Throws a Refusal (400), naming the parameter, for an id that the model does not have. */
export const checkIds = (ids: readonly number[], { vocabSize }: Served, param: string): void => {
  const wrong = ids.find((id) => id >= vocabSize)
  if (wrong !== undefined)
    throw new Refusal(400, `Token ids go from 0 to ${vocabSize - 1} for this model; ${wrong} is none.`, { param })
}

/** A prompt as ids, and as the text that it is. Rejects as `promptOf` does. */
export const promptIds = async (
  { prompt }: Pick<CompletionRequest, 'prompt'>,
  served: Served,
  param = 'prompt',
): Promise<{ readonly ids: readonly number[]; readonly text: string }> => {
  const { tokenizer } = served
  const { text, ids } = oneOf(prompt)
  if (ids !== null) {
    checkIds(ids, served, param)
    return { ids, text: Buffer.concat(ids.map((id) => tokenizer?.bytesOf(id) ?? new Uint8Array(0))).toString() }
  }
  return { ids: await idsOf(text, readable(text, tokenizer, param)), text }
}

/** The one prompt of a request. */
const oneOf = (
  prompt: CompletionRequest['prompt'],
): { readonly text: string; readonly ids: null } | { readonly text: ''; readonly ids: readonly number[] } => {
  const one =
    typeof prompt === 'string'
      ? prompt
      : typeof prompt[0] === 'object' || typeof prompt[0] === 'string'
        ? prompt[0]
        : prompt
  return typeof one === 'string' ? { text: one, ids: null } : { text: '', ids: one as readonly number[] }
}

/** Throws a Refusal (400) for a text that the model cannot read. */
const readable = (text: string, tokenizer: Tokenizer | null, param = 'prompt'): Tokenizer => {
  if (tokenizer === null)
    throw new Refusal(
      400,
      `This model has no tokenizer and reads token ids only. Send the ${param} as an array of ids.`,
      { param },
    )
  if (!text.isWellFormed())
    throw new Refusal(400, `The ${param} has half a surrogate pair; it is to be text in Unicode.`, { param })
  return tokenizer
}

/** The prompt as events. A text is cut into tokens by the worker, which counts them. */
export const promptOf = async ({ prompt }: CompletionRequest, served: Served): Promise<Prompt> => {
  const { text, ids } = oneOf(prompt)
  if (ids !== null) {
    checkIds(ids, served, 'prompt')
    return { events: idEvents(ids), tokens: ids.length, ids: async () => Int32Array.from(ids) }
  }
  if (text === '') return { events: [], tokens: 0 }
  const tokenizer = readable(text, served.tokenizer)
  return { events: await events(text), tokens: null, ids: async () => Int32Array.from(await idsOf(text, tokenizer)) }
}

/** Ids that hold all of a tag and of the white space behind it. */
const TAIL = 32

/** Feeds messages, and says where the answer begins. `reads`: thoughts may stand before it. */
export const promptOfMessages =
  (
    form: ChatForm,
    messages: readonly Message[],
    tools: Tools,
    reads: boolean,
    tokenizer: Tokenizer | null,
  ): ((standing: Standing) => Prompt) =>
  ({ fresh, stopped }) => {
    const ids = fresh ? form.begin(messages, tools) : form.goOn(messages, stopped, tools)
    const tail = Buffer.concat(Array.from(ids.slice(-TAIL), (id) => tokenizer?.bytesOf(id) ?? new Uint8Array(0)))
    const start: Start = reads ? startBehind(tail.toString(), messages.at(-1)?.role === 'assistant') : 'plain'
    return { events: idEvents(ids), tokens: ids.length, start, ids: async () => Int32Array.from(ids) }
  }
