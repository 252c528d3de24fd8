import { randomUUID } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { type ChunkInput, generate, MAX_GENERATE_TOKENS } from '../../../topics/chunks.ts'
import { sessionId } from '../../../topics/common.ts'
import { ContinuoError } from '../../errors.ts'
import type { RecordIn } from '../../streams/log.ts'
import { batched, chunkRecord, MAX_CHUNK_BYTES, textEvents } from '../chunks.ts'
import { command, type ExitCode } from '../command.ts'
import { ensureTopics, inputTopicFlag, logFlag, namesOf, sessionFlag, withLog } from '../common.ts'
import { list, on, optional, optionalWhole, real, usage, whole } from '../flags.ts'
import { bytes as bytesText, plural, print, printJson, say } from '../output.ts'

/** How generated tokens are drawn; `feed` and `generate` share it. */
export const samplingFlags = {
  temperature: real('T', '0 always takes the likeliest token', 1, { min: 0, max: 100 }),
  'top-p': real('P', 'draw from the likeliest tokens that together reach P', 1, { min: 0, max: 1 }),
  'top-k': whole('K', 'draw from the K likeliest tokens; 0 from all', 0, { min: 0, max: 0x7fffffff }),
  seed: whole('N', 'of the random numbers', 0, { min: 0 }),
  stop: list('TEXT', 'end after this text was generated'),
}

interface SamplingValues {
  readonly temperature: number
  readonly 'top-p': number
  readonly 'top-k': number
  readonly seed: number
  readonly stop: readonly string[]
}

/** The event; what the schema does not take is a usage error. */
export const generateEvent = (requestId: string, maxTokens: number, flags: SamplingValues): ChunkInput => {
  const parsed = generate.safeParse({
    type: 'generate',
    requestId,
    maxTokens,
    temperature: flags.temperature,
    topP: flags['top-p'],
    topK: flags['top-k'],
    seed: flags.seed,
    stop: [...flags.stop],
  })
  if (parsed.success) return parsed.data
  const issue = parsed.error.issues[0]!
  throw usage(`This request to generate cannot be sent: ${issue.path.join('.')}: ${issue.message}.`)
}

export const checkSession = (id: string): string => {
  if (sessionId.safeParse(id).success) return id
  throw usage(`--session takes 1 to 512 characters; this one has ${id.length}.`)
}

const openInput = async (file: string): Promise<AsyncIterable<Uint8Array>> => {
  if (file === '-') return process.stdin
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    throw new ContinuoError('INVALID', `The file ${file} cannot be read: ${error.message}.`, { cause: error })
  })
  if (found.isDirectory()) throw usage(`${file} is a folder; feed takes a file, or - for standard input.`)
  return createReadStream(file, { highWaterMark: 1 << 18 })
}

export const feed = command({
  name: 'feed',
  about:
    'Sends a file to a session, piece by piece, then what the flags ask for: --generate, --boundary, --close, in this order. How the file is cut does not change what the model reads.',
  args: [
    {
      name: 'FILE',
      help: 'the file, or - for standard input; none to send only what the flags ask for',
      required: false,
    },
  ],
  flags: {
    log: logFlag,
    session: sessionFlag,
    'input-topic': inputTopicFlag,
    'chunk-bytes': whole('N', 'size of the pieces', 65_536, { min: 4, max: MAX_CHUNK_BYTES }),
    surprisal: on('ask for the surprisal of every token'),
    generate: optionalWhole('N', 'then continue for N tokens', { min: 1, max: MAX_GENERATE_TOKENS }),
    'request-id': optional('ID', 'name of that request (default: a random one)'),
    ...samplingFlags,
    boundary: on("then mark the document's end"),
    reset: on('with --boundary: the memory returns to its first state (implies --boundary)'),
    close: on('then end the session'),
  },
  notes: 'Creates the topics if they are missing. Bytes that are not UTF-8 are sent as they are.',
  examples: [
    'feed book.txt --log file:continuo.db --session book --generate 200 --temperature 0.8',
    'feed --log file:continuo.db --session book --generate 100 --stop ". "',
  ],
  async run(flags, [file]) {
    const session = checkSession(flags.session)
    const requestId = flags.generate === undefined ? null : (flags['request-id'] ?? randomUUID())
    if (requestId === null && flags['request-id'] !== undefined)
      throw usage('--request-id names a request; it goes with --generate N.')
    const after: ChunkInput[] = []
    if (requestId !== null) after.push(generateEvent(requestId, flags.generate!, flags))
    if (flags.boundary || flags.reset) after.push({ type: 'boundary', reset: flags.reset })
    if (flags.close) after.push({ type: 'close' })
    const before: ChunkInput[] = flags.surprisal ? [{ type: 'open', surprisal: true }] : []
    if (file === undefined && after.length + before.length === 0) {
      throw usage('continuo feed needs a FILE (or - for standard input), or one of --generate, --boundary, --close.')
    }
    const input = file === undefined ? null : await openInput(file)
    let bytes = 0
    let events = 0
    async function* records(): AsyncGenerator<RecordIn> {
      for (const event of before) yield chunkRecord(session, event)
      if (input !== null) {
        for await (const piece of textEvents(input, flags['chunk-bytes'])) {
          bytes += piece.bytes
          yield chunkRecord(session, piece.event)
        }
      }
      for (const event of after) yield chunkRecord(session, event)
    }
    return withLog(flags.log, async (log): Promise<ExitCode> => {
      const names = namesOf(log, flags['input-topic'])
      const { created } = await ensureTopics(log, names)
      if (created.length > 0) say(`Created ${plural(created.length, 'topic')} in ${log.url}.`)
      let first: number | null = null
      let last: number | null = null
      let partition: number | null = null
      for await (const batch of batched(records())) {
        const placed = await log.append(names.chunks, batch)
        events += batch.length
        first ??= placed[0]!.offset
        last = placed.at(-1)!.offset
        partition = placed[0]!.partition
      }
      const result = { session, bytes, events, partition, firstOffset: first, lastOffset: last, requestId }
      if (flags.json) printJson(result)
      else {
        const where = first === null ? '' : `, ${names.chunks} partition ${partition}, offsets ${first} to ${last}`
        print(`Fed session "${session}": ${bytesText(bytes)} in ${plural(events, 'event')}${where}.`)
        if (requestId !== null) print(`Request: ${requestId}`)
      }
      return 0
    })
  },
})
