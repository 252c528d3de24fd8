import type { ChunkInput } from '../../../topics/chunks.ts'
import type { SnapshotHead } from '../../../topics/state.ts'
import type { Context } from '../../engine/context.ts'
import { ContinuoError } from '../../errors.ts'
import { writeDurably } from '../../files.ts'
import type { ModelPackage } from '../../models/open.ts'
import { checkedIds, idsIn } from '../../models/token-input.ts'
import type { Tokenizer } from '../../models/tokenizer/types.ts'
import { type ContextStore, createContextStore } from '../../operators/sessions/context-store.ts'
import type { Valid } from '../../operators/types.ts'
import { withHistory } from '../../state/history.ts'
import { encodeSnapshot } from '../../state/snapshot.ts'
import { command } from '../command.ts'
import { blockFlags, blocksOf, modelFlag, readingFlags, withModel } from '../common.ts'
import { encodingFlags } from '../encoding.ts'
import { eventsIn, runEvents } from '../event-file.ts'
import { on, optional, optionalWhole, usage } from '../flags.ts'
import { bytesIn, openInput } from '../input.ts'
import { bitsPer, count, print, printJson, say } from '../output.ts'

/** Tokens of a call where the command names no other number. */
const CHUNK = 4096

const needTokenizer = (tokenizer: Tokenizer | null): Tokenizer => {
  if (tokenizer === null) throw usage('This model has no tokenizer and reads token ids only. Give a JSON array of ids.')
  return tokenizer
}

/** Tokens of a text that comes in pieces. */
async function* tokensOf(pieces: AsyncIterable<Uint8Array>, tokenizer: Tokenizer): AsyncGenerator<Int32Array> {
  let held = ''
  for await (const piece of pieces) {
    const pushed = tokenizer.pushBytes(held, piece)
    held = pushed.held
    yield pushed.ids
  }
  yield tokenizer.flush(held)
}

/** The same tokens, `size` of them at a time. */
async function* inChunks(source: AsyncIterable<Int32Array>, size: number): AsyncGenerator<Int32Array> {
  let left = new Int32Array(0)
  for await (const ids of source) {
    const all = new Int32Array(left.length + ids.length)
    all.set(left)
    all.set(ids, left.length)
    let at = 0
    for (; at + size <= all.length; at += size) yield all.subarray(at, at + size)
    left = all.slice(at)
  }
  if (left.length > 0) yield left
}

interface Score {
  readonly nats: number
  readonly predictions: number
}

/** What came of an input, however it was given. */
interface Outcome extends Score {
  readonly tokens: number
  readonly context: Context
  /** Of the tokens that were predicted; null without a tokenizer. */
  readonly bytes: number | null
  /** After the last event, as a snapshot has it; null where the input was tokens alone. */
  readonly head: SnapshotHead | null
  readonly observed: readonly unknown[]
}

const tooMany = (tokens: number, positions: number): ContinuoError =>
  new ContinuoError(
    'INVALID',
    `${tokens} positions exceed the ${positions} of one context. Give a shorter text. A GPT-2 can let attention see a window (--overflow window); a folder of llama, qwen2 or qwen3 can have an external memory (continuo memory init DIR).`,
  )

const collected = async <T extends Uint8Array | Int32Array>(source: AsyncIterable<T>): Promise<T[]> => {
  const all: T[] = []
  for await (const each of source) all.push(each)
  return all
}

async function* each<T>(all: readonly T[]): AsyncGenerator<T> {
  yield* all
}

/**
 * The tokens of an input, as they come: of a text that is read on while it is computed, where a context has no bound.
 */
const readTokens = async (
  { model, tokenizer }: ModelPackage,
  pieces: AsyncGenerator<Uint8Array>,
): Promise<AsyncIterable<Int32Array>> => {
  const { value: first = new Uint8Array(0) } = (await pieces.next()) as IteratorResult<Uint8Array, undefined>
  const start = Buffer.from(first)
  const isArray = /^\s*\[/.test(start.subarray(0, 64).toString('latin1'))
  if (!isArray && model.positions === null) {
    const rest = async function* (): AsyncGenerator<Uint8Array> {
      yield start
      yield* pieces
    }
    return tokensOf(rest(), needTokenizer(tokenizer))
  }
  const input = Buffer.concat([start, ...(await collected(pieces))])
  const ids = idsIn(input)
  const tokens =
    ids === null ? await collected(tokensOf(each([input]), needTokenizer(tokenizer))) : [checkedIds(ids, model)]
  const count = tokens.reduce((sum, { length }) => sum + length, 0)
  if (model.positions !== null && count > model.positions) throw tooMany(count, model.positions)
  return each(tokens)
}

/** Feeds the tokens and sums −ln p over all but the first, in order. */
const evalTokens = async (
  opened: ModelPackage,
  contexts: ContextStore,
  pieces: AsyncGenerator<Uint8Array>,
  chunk: number,
): Promise<Outcome> => {
  const { tokenizer } = opened
  const context = contexts.createContext()
  let [nats, predictions, tokens, bytes] = [0, 0, 0, 0]
  for await (const ids of inChunks(await readTokens(opened, pieces), chunk)) {
    const result = await contexts.submit({ context, tokens: ids, nats: true })
    for (const [at, value] of result.nats.entries()) {
      if (Number.isNaN(value)) continue
      nats += value
      predictions += 1
      bytes += tokenizer?.bytesOf(ids[at]!).length ?? 0
    }
    tokens += ids.length
  }
  return {
    ...{ nats, predictions, tokens, context, head: null, observed: [] },
    bytes: tokenizer === null ? null : bytes,
  }
}

const evalEvents = async (opened: ModelPackage, contexts: ContextStore, events: readonly Valid[]): Promise<Outcome> => {
  const observed: unknown[] = []
  const { session, bytes } = await runEvents(events, opened, contexts, (output) => {
    if (output.to !== 'deadletters') observed.push(output.value)
  })
  const { head, context, history } = session
  const { nats, predictions, tokens, generated } = head.totals
  const inside = withHistory(head, history.kept())
  return { nats, predictions, tokens: tokens + generated, context, bytes, head: inside, observed }
}

/** The input as events: as it is, or a text or ids as one event, and the end of the text. */
const inputEvents = (file: string, input: Buffer, holdsEvents: boolean, opened: ModelPackage): readonly Valid[] => {
  if (holdsEvents) return eventsIn(input, file === '-' ? 'Standard input' : file, opened)
  const ids = idsIn(input)
  const first: ChunkInput =
    ids === null ? { type: 'text', bytes: input.toString('base64') } : { type: 'tokens', tokens: [...ids] }
  const lines = [first, { type: 'boundary' }].map((event) => JSON.stringify(event))
  return eventsIn(Buffer.from(lines.join('\n')), file, opened)
}

export const evaluate = command({
  name: 'eval',
  about:
    'How well the model predicts what it reads once, learning on the way: total nats over all tokens but the first, bits per byte, and the chain, a fingerprint of the computation. A file that ends in .jsonl, and with --events any input, is a stream of one session: events, one JSON a line.',
  args: [
    {
      name: 'FILE',
      help: 'text, a JSON array of token ids, or events (.jsonl, --events); - for standard input',
      required: true,
    },
  ],
  flags: {
    model: modelFlag,
    events: on('FILE holds events, whatever its name is: also standard input'),
    'chunk-tokens': optionalWhole(
      'N',
      `tokens of a text a call (default: ${CHUNK}); changes the speed, never the result`,
      { min: 1 },
    ),
    logits: optional('FILE', 'write the logits after the last token: raw little-endian f32'),
    state: optional('FILE', 'write the state after the last event: one file, as export writes it'),
    observations: optional('FILE', 'write what was observed and generated: one JSON a line'),
    ...encodingFlags,
    ...readingFlags,
    ...blockFlags,
  },
  examples: [
    'eval docs/demo/harbour-log.txt --model models/demo',
    'eval events.jsonl --model models/demo --observations observed.jsonl --state state.safetensors',
    'eval - --events --model models/demo < events.jsonl',
    'eval docs/demo/harbour-log.txt --model models/demo --device cuda',
  ],
  async run(flags, [file], given) {
    const holdsEvents = flags.events || file!.endsWith('.jsonl')
    const asEvents = holdsEvents || flags.state !== undefined || flags.observations !== undefined
    if (asEvents && flags['chunk-tokens'] !== undefined)
      throw usage(
        `--chunk-tokens cuts a text into calls, and ${holdsEvents ? 'events are' : 'with --state or --observations a text is'} read in the steps of a stream. Leave it out.`,
      )
    const input = await openInput(file!, flags.encoding)
    return withModel(flags.model, flags, async (opened) => {
      const { model } = opened
      const contexts = createContextStore(model, { warn: say, blocks: blocksOf(flags, given, model) })
      try {
        const started = performance.now()
        const { nats, predictions, tokens, bytes, context, head, observed } = asEvents
          ? await evalEvents(
              opened,
              contexts,
              inputEvents(file!, Buffer.concat(await collected(bytesIn(input))), holdsEvents, opened),
            )
          : await evalTokens(opened, contexts, bytesIn(input), flags['chunk-tokens'] ?? CHUNK)
        const seconds = (performance.now() - started) / 1000
        if (flags.logits !== undefined) {
          const logits = await contexts.logits(context)
          const raw = Buffer.alloc(4 * logits.length)
          for (const [at, value] of logits.entries()) raw.writeFloatLE(value, 4 * at)
          await writeDurably(flags.logits, raw)
        }
        if (flags.observations !== undefined)
          await writeDurably(
            flags.observations,
            Buffer.from(observed.map((each) => `${JSON.stringify(each)}\n`).join('')),
          )
        if (flags.state !== undefined)
          await writeDurably(flags.state, await encodeSnapshot(head!, await context.state(), model.layout))
        const result = {
          tokens,
          predictions,
          nats,
          bitsPerToken: bitsPer(nats, predictions),
          bitsPerByte: bytes === null ? null : bitsPer(nats, bytes),
          pulse: Number(context.pulse),
          chain: context.chain,
          seconds,
          tokensPerSecond: seconds === 0 ? null : tokens / seconds,
        }
        context.close()
        if (flags.json) printJson(result)
        else {
          print(`${nats.toFixed(4)} nats over ${count(predictions)} predictions`)
          if (result.bitsPerByte !== null) print(`${result.bitsPerByte.toFixed(4)} bits per byte`)
          else if (result.bitsPerToken !== null) print(`${result.bitsPerToken.toFixed(4)} bits per token`)
          print(`pulse ${result.pulse}, chain ${result.chain}`)
          print(`${count(result.tokensPerSecond ?? 0)} tokens/s (${seconds.toFixed(2)} s)`)
        }
        return 0
      } finally {
        await contexts.close()
      }
    })
  },
})
