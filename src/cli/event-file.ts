/**
 * A file of events, one JSON a line as in the chunks topic, run through the operators of a stream as one session,
 * without a log.
 */
import { ContinuoError } from '../errors.ts'
import type { ModelPackage } from '../models/open.ts'
import { advance } from '../operators/advance/advance.ts'
import { initialSession, type SessionState } from '../operators/advance/session-state.ts'
import { tokenizeEvent } from '../operators/pipeline/tokenize.ts'
import { validateRecord } from '../operators/pipeline/validate.ts'
import type { ContextStore } from '../operators/sessions/context-store.ts'
import type { Output, Valid } from '../operators/types.ts'

/** Whose name the session has in what is observed. */
const SESSION = 'eval'

export interface EventRun {
  readonly session: SessionState
  /** Bytes of the tokens that were read and predicted; null without a tokenizer. */
  readonly bytes: number | null
}

/** The events of a file. Throws INVALID, naming the line, for one that the chunks topic would refuse. */
export const eventsIn = (file: Uint8Array, name: string, { model, tokenizer }: ModelPackage): readonly Valid[] => {
  const lines = Buffer.from(file).toString('latin1').split('\n')
  return lines.flatMap((line, at) => {
    if (line.trim() === '') return []
    const value = Buffer.from(line, 'latin1')
    const record = {
      topic: name,
      partition: 0,
      offset: at,
      timestamp: 0,
      key: Buffer.from(SESSION),
      value,
      headers: [],
    }
    const item = validateRecord(record, { format: 'json', vocabSize: model.vocabSize, readsText: tokenizer !== null })
    if (item.kind === 'valid') return [item]
    throw new ContinuoError('INVALID', `${name}, line ${at + 1}: ${item.reason}`)
  })
}

const refusal = ({ record }: Valid, reason: string): ContinuoError =>
  new ContinuoError('INVALID', `${record.topic}, line ${record.offset + 1}: ${reason}`)

/**
 * In a context of the store. `observe` is called for each output, in order. Throws INVALID, naming the line, for an
 * event that the session cannot take.
 */
export const runEvents = async (
  events: readonly Valid[],
  { model, tokenizer }: ModelPackage,
  contexts: Pick<ContextStore, 'createContext' | 'submit'>,
  observe: (output: Output) => void,
): Promise<EventRun> => {
  let bytes = 0
  const engine: Parameters<typeof advance>[3] = {
    model,
    tokenizer,
    async submit(item) {
      const result = await contexts.submit(item)
      for (const [at, nats] of result.nats.entries())
        if (!Number.isNaN(nats)) bytes += tokenizer?.bytesOf(item.tokens[at]!).length ?? 0
      return result
    },
  }
  const context = contexts.createContext()
  let session: SessionState | undefined
  try {
    for (const event of events) {
      const work = tokenizeEvent(event, session?.head, tokenizer, model)
      if (work.kind === 'rejected') throw refusal(event, work.reason)
      if (event.event.type === 'delete')
        throw refusal(event, 'A "delete" event has nothing to delete in a file of events. Leave it out.')
      const fresh = session === undefined
      session ??= initialSession(work, model, context)
      for await (const { outputs, failure } of advance(session, work, fresh, engine)) {
        if (failure !== undefined) throw failure
        for (const output of outputs) {
          if (output.to === 'deadletters') throw refusal(event, output.reason)
          observe(output)
        }
      }
    }
    if (session === undefined) throw new ContinuoError('INVALID', 'The file has no event, expected at least one.')
    return { session, bytes: tokenizer === null ? null : bytes }
  } catch (error) {
    context.close()
    throw error
  }
}
