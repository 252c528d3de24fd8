import { createInterface, type Interface } from 'node:readline'
import { generate, MAX_GENERATE_TOKENS } from '../../../topics/chunks.ts'
import { openChat } from '../../models/chat/index.ts'
import type { ModelPackage } from '../../models/open.ts'
import { chatTurn } from '../../sessions/chat.ts'
import { SessionManager } from '../../sessions/manager.ts'
import { command, type ExitCode } from '../command.ts'
import { generatingFlags, modelFlag, withModel } from '../common.ts'
import { choice, optional, usage, whole } from '../flags.ts'
import { print, printJson, say, write } from '../output.ts'
import { drawn, generateEvent, recommendedFlag, samplingFlags } from '../sampling.ts'
import { exitCodeOfSignal, untilSignal } from '../signals.ts'

const flags = {
  model: modelFlag,
  system: optional('TEXT', 'how the model is to behave, said before the first message'),
  'max-tokens': whole('N', 'tokens of one answer at most', 1024, { min: 1, max: MAX_GENERATE_TOKENS }),
  ...samplingFlags,
  recommended: recommendedFlag,
  thinking: choice(
    ['auto', 'on', 'off'],
    'whether a model that can think before it answers does; auto: as its template has it',
    'auto',
  ),
  date: optional('DAY', 'what a template that asks for the date is told, YYYY-MM-DD'),
  ...generatingFlags,
}

interface Terminal {
  /** Lines as they come; ends with standard input, or when `stopping` fires. */
  lines(): AsyncGenerator<string>
  /** A signal for one answer, which Ctrl-C in a terminal ends alone. */
  answer(): AbortSignal
}

/** Standard input line by line: with a prompt and an editor in a terminal, plain otherwise. */
const openTerminal = (stopping: AbortSignal): Terminal => {
  const tty = process.stdin.isTTY === true && process.stdout.isTTY === true
  const reader: Interface = createInterface({
    input: process.stdin,
    ...(tty && { output: process.stdout, prompt: '> ' }),
    crlfDelay: Number.POSITIVE_INFINITY,
  })
  let answering: AbortController | null = null
  // In a terminal the editor has Ctrl-C: it ends the answer, or else the conversation.
  reader.on('SIGINT', () => (answering === null ? reader.close() : answering.abort()))
  stopping.addEventListener('abort', () => {
    answering?.abort()
    reader.close()
  })
  return {
    async *lines() {
      if (tty) reader.prompt()
      for await (const line of reader) {
        if (stopping.aborted) return
        if (line.trim() !== '') yield line
        answering = null
        if (stopping.aborted) return
        if (tty) reader.prompt()
      }
      if (tty) print('')
    },
    answer() {
      answering = new AbortController()
      if (stopping.aborted) answering.abort()
      return answering.signal
    },
  }
}

const FINISHES: Readonly<Record<string, string>> = {
  length: 'The answer was cut at --max-tokens.',
  context:
    'The model has no position left. Begin a new conversation. A GPT-2 can go on with --overflow window, a folder of llama, qwen2 or qwen3 after continuo memory init DIR.',
  blocked: 'The answer was broken off: no token of the model fits the grammar there.',
  cancelled: 'The answer was broken off.',
}

export const chat = command({
  name: 'chat',
  about:
    'A conversation with an instruction-tuned model, turn by turn on one session: a line is a message, and the answer is printed as it comes. The form is the chat template of the package; RWKV-7 has its own.',
  flags,
  notes:
    'Where standard input is no terminal, each line of it is a message too. Empty lines are none. In a terminal Ctrl-C ends an answer, and between answers the conversation, as Ctrl-D does. Letters of special tokens inside a message are only text. Where a template would render earlier turns otherwise by now (most drop what a model thought), the session keeps what it was fed, and stderr says so once.',
  examples: [
    'chat --model DIR --recommended',
    'chat --model DIR --system "Answer in one sentence." --temperature 0.6 --top-p 0.9 --seed 1',
  ],
  async run(values, _args, _given, set) {
    const { json, system, date } = values
    const thinking = values.thinking === 'auto' ? undefined : values.thinking === 'on'
    generateEvent('chat', values['max-tokens'], values)
    const converse = async (loaded: ModelPackage): Promise<ExitCode> => {
      const { model, tokenizer, metadata } = loaded
      if (tokenizer === null) throw usage('This model has no tokenizer, so it cannot read messages.')
      const { dir, modelType } = model
      const form = await openChat({ dir, modelType, tokenizer, metadata }, { system, thinking, date })
      const {
        type: _type,
        requestId: _requestId,
        id: _id,
        ...options
      } = generate.parse(generateEvent('chat', values['max-tokens'], drawn(values, set, loaded)))
      const stopping = untilSignal()
      const terminal = openTerminal(stopping)
      const manager = new SessionManager(model, { tokenizer, verifyWeights: false, warn: say })
      const session = manager.createSession('chat')
      let turn = 0
      let told = false
      for await (const line of terminal.lines()) {
        turn += 1
        const { text, generation, fed, exact } = await chatTurn(manager, session, form, line, {
          ...options,
          signal: terminal.answer(),
          onText: (piece) => {
            if (!json) write(piece)
          },
        })
        const { finish, ids, head } = generation
        if (json) {
          const { globalStep: pulse } = head.conductor
          printJson({ turn, text, finish, fed, generated: ids.length, pulse, chain: head.chain, exact })
        } else {
          print('')
          const why = FINISHES[finish]
          if (why !== undefined) say(why)
        }
        if (!exact && !told) {
          told = true
          say('The chat template renders earlier turns otherwise by now; the session keeps what it was fed.')
        }
        if (finish === 'context') break
      }
      await manager.close()
      return stopping.aborted ? exitCodeOfSignal(stopping) : 0
    }
    return withModel(values.model, values, converse)
  },
})
