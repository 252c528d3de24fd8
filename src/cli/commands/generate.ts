import { type ChunkInput, MAX_GENERATE_TOKENS } from '../../../topics/chunks.ts'
import type { Generated } from '../../../topics/tokens.ts'
import { chunkRecord, textEvents } from '../../client/chunks.ts'
import { CHUNK_BYTES } from '../../client/feed.ts'
import { ContinuoError } from '../../errors.ts'
import type { ModelPackage } from '../../models/open.ts'
import { advance } from '../../operators/advance/advance.ts'
import { initialSession, type SessionState } from '../../operators/advance/session-state.ts'
import { tokenizeEvent } from '../../operators/pipeline/tokenize.ts'
import { validateRecord } from '../../operators/pipeline/validate.ts'
import { type ContextStore, createContextStore } from '../../operators/sessions/context-store.ts'
import type { Rejected, Tokenized } from '../../operators/types.ts'
import { command } from '../command.ts'
import { blockFlags, blocksOf, generatingFlags, modelFlag, withModel } from '../common.ts'
import { needed, refuseIdle, usage, whole } from '../flags.ts'
import { openInput } from '../input.ts'
import { printJson, say, write } from '../output.ts'
import { drawn, generateEvent, recommendedFlag, samplingFlags, topLogprobsFlag } from '../sampling.ts'

interface Outputs {
  text: string
  ids: number[]
  logprobs: number[]
  topLogprobs?: NonNullable<Generated['topLogprobs']>
  finish: string | null
}

const SESSION = 'prompt'

/** The operators of the stream without a log: prompt and request are two events of a session that is not stored. */
const continuePrompt = async (
  { model, tokenizer }: ModelPackage,
  contexts: ContextStore,
  events: readonly ChunkInput[],
  onText: (text: string) => void,
): Promise<Outputs & { pulse: number; chain: string }> => {
  const engine = { model, tokenizer, submit: contexts.submit }
  const outputs: Outputs = { text: '', ids: [], logprobs: [], finish: null }
  let session = null as SessionState | null
  for (const [offset, event] of events.entries()) {
    const record = { topic: SESSION, partition: 0, offset, timestamp: 0, headers: [], ...chunkRecord(SESSION, event) }
    const valid = validateRecord(
      { ...record, headers: [], timestamp: 0 },
      { format: 'json', vocabSize: model.vocabSize, readsText: tokenizer !== null },
    )
    const out: Tokenized | Rejected =
      valid.kind === 'rejected' ? valid : tokenizeEvent(valid, session?.head, tokenizer, model)
    if (out.kind === 'rejected') throw new ContinuoError('INVALID', out.reason)
    const fresh = session === null
    session ??= initialSession(out, model, contexts.createContext())
    for await (const step of advance(session, out, fresh, engine)) {
      for (const output of step.outputs) {
        if (output.to !== 'tokens') continue
        const { text, ids, logprobs, topLogprobs, finish } = output.value
        outputs.text += text
        outputs.ids.push(...ids)
        outputs.logprobs.push(...logprobs)
        if (topLogprobs !== undefined) outputs.topLogprobs = [...(outputs.topLogprobs ?? []), ...topLogprobs]
        outputs.finish = finish
        onText(text)
      }
    }
  }
  const { head, context } = session!
  context.close()
  return { ...outputs, pulse: head.conductor.globalStep, chain: head.chain }
}

/** The prompt as events; that of standard input in pieces, for it may be long, and need not be UTF-8. */
const promptEvents = async (prompt: string): Promise<readonly ChunkInput[]> => {
  if (prompt !== '-') return [{ type: 'text', text: prompt }]
  const events: ChunkInput[] = []
  const input = await openInput('-')
  for await (const piece of textEvents(input.read(), CHUNK_BYTES)) if (piece !== null) events.push(piece.event)
  if (events.length === 0) throw usage('--prompt - reads standard input, and nothing came from there.')
  return events
}

export const generate = command({
  name: 'generate',
  about: 'Reads a prompt and continues it, printing as it goes. The same events in a log give the same text.',
  flags: {
    model: modelFlag,
    prompt: needed('TEXT', 'what to continue; - reads standard input'),
    'max-tokens': whole('N', 'tokens to generate at most', 256, { min: 1, max: MAX_GENERATE_TOKENS }),
    ...samplingFlags,
    'top-logprobs': topLogprobsFlag,
    recommended: recommendedFlag,
    ...generatingFlags,
    ...blockFlags,
  },
  examples: [
    'generate --model models/demo --prompt "The harbour master wrote in his log: " --temperature 0.8 --top-p 0.95 --seed 1',
  ],
  async run(flags, _, given, set) {
    if (!flags.json) refuseIdle(given, ['top-logprobs'], '--json')
    generateEvent('prompt', flags['max-tokens'], flags)
    const prompt = await promptEvents(flags.prompt)
    return withModel(flags.model, flags, async (loaded) => {
      const request = generateEvent('prompt', flags['max-tokens'], drawn(flags, set, loaded))
      if (loaded.tokenizer === null) throw usage('This model has no tokenizer, so it cannot read a prompt of text.')
      const contexts = createContextStore(loaded.model, { warn: say, blocks: blocksOf(flags, given, loaded.model) })
      try {
        let ends = true
        const result = await continuePrompt(loaded, contexts, [...prompt, request], (text) => {
          if (flags.json || text === '') return
          ends = text.endsWith('\n')
          write(text)
        })
        if (flags.json) printJson(result)
        else if (!ends) process.stdout.write('\n')
        return 0
      } finally {
        await contexts.close()
      }
    })
  },
})
