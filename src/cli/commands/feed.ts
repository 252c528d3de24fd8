import { randomUUID } from 'node:crypto'
import { type ChunkInput, MAX_GENERATE_TOKENS, MAX_RUN } from '../../../topics/chunks.ts'
import { MAX_JOIN, sessionId } from '../../../topics/common.ts'
import { PARTITIONERS } from '../../../topics/input.ts'
import { MAX_CHUNK_BYTES } from '../../client/chunks.ts'
import { toFeed } from '../../client/declared.ts'
import { CHUNK_BYTES, type Fed, feed as feedLog } from '../../client/feed.ts'
import { ensureInput, namesOf } from '../../client/topics.ts'
import { openSearch } from '../../grammar/search.ts'
import type { EventLog } from '../../streams/log.ts'
import { command, type ExitCode } from '../command.ts'
import { checkInput, logFlags, sessionFlag, withLog } from '../common.ts'
import { encodingFlags } from '../encoding.ts'
import { on, optional, optionalChoice, optionalWhole, refuseIdle, usage, whole } from '../flags.ts'
import { openInput } from '../input.ts'
import { bytes as bytesText, plural, print, printJson, say, shortName } from '../output.ts'
import { generateEvent, samplingFlags, topLogprobsFlag } from '../sampling.ts'
import { exitCodeOfSignal, untilSignal } from '../signals.ts'

export const checkSession = (id: string, flag = '--session'): string => {
  if (sessionId.safeParse(id).success) return id
  throw usage(`${flag} takes 1 to 512 characters; this one has ${id.length}.`)
}

/** Throws for what a worker would refuse. */
const checkJoin = (pattern: string): void => {
  if (pattern.length === 0 || pattern.length > MAX_JOIN)
    throw usage(`--join takes 1 to ${MAX_JOIN} characters; this one has ${pattern.length}.`)
  openSearch(pattern, '--join')
}

/** Where what was sent lies, as the end of a sentence. */
const placeText = ({ place }: Fed, partition: string): string =>
  place === null ? '' : `, ${partition} ${place.partition}, offsets ${place.first} to ${place.last}`

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
    ...logFlags,
    session: sessionFlag,
    'input-topic': optional('TOPIC', 'write to this topic instead of PREFIX.chunks'),
    'key-partitioner': optionalChoice(
      PARTITIONERS,
      "how a session's partition is chosen; must match the worker's setting (default: murmur2; once a worker has begun, its setting)",
    ),
    ...encodingFlags,
    'chunk-bytes': whole('N', 'size of the pieces', CHUNK_BYTES, { min: 4, max: MAX_CHUNK_BYTES }),
    from: optional(
      'ID',
      'first begin the session, new or closed, as a fork of this one, which must be of the same partition',
    ),
    surprisal: on('have the surprisal of every token reported: −ln of its probability'),
    embedding: on('have the mean of the hidden vectors behind what is read reported, and the last one'),
    novelty: on('have each line reported: how new it is, for `continuo watch --log`'),
    join: optional(
      'REGEX',
      'with --novelty: only lines in which it is found begin a record; others are joined to the one before',
    ),
    generate: optionalWhole('N', 'then continue for N tokens', { min: 1, max: MAX_GENERATE_TOKENS }),
    'request-id': optional('ID', 'name of that request (default: a random one)'),
    ...samplingFlags,
    'top-logprobs': topLogprobsFlag,
    run: whole('N', 'generated tokens of a record, at most; 1 gives each token as soon as it is drawn', MAX_RUN, {
      min: 1,
      max: MAX_RUN,
    }),
    boundary: on("then mark the document's end"),
    reset: on('with --boundary: the memory returns to its first state (implies --boundary)'),
    close: on('then end the session'),
  },
  notes:
    'Creates the topics if they are missing. Bytes that are not UTF-8 are sent as they are, unless --encoding names what they are. Of standard input and named pipes, what has come is sent as soon as nothing more comes for a moment. SIGINT, SIGTERM or SIGHUP ends them: what was read is sent, what --generate, --boundary and --close ask for is not, and the exit code is 130, 143 or 129.',
  examples: [
    'feed book.txt --log file:continuo.db --session book --generate 200 --temperature 0.8',
    'feed --log file:continuo.db --session book --generate 100 --stop ". "',
    'feed - --log file:continuo.db --session journal',
    'feed --log file:continuo.db --session sequel --from book --generate 200 --seed 2',
  ],
  async run(flags, [file], given) {
    const session = checkSession(flags.session)
    const requestId = flags.generate === undefined ? null : (flags['request-id'] ?? randomUUID())
    if (requestId === null)
      refuseIdle(given, ['request-id', 'top-logprobs', ...Object.keys(samplingFlags)], '--generate N')
    if (file === undefined) refuseIdle(given, ['chunk-bytes', 'encoding'], 'a FILE, or - for standard input')
    if (!flags.novelty) refuseIdle(given, ['join'], '--novelty')
    if (flags.join !== undefined) checkJoin(flags.join)
    const after: ChunkInput[] = []
    if (requestId !== null) after.push(generateEvent(requestId, flags.generate!, flags))
    if (flags.boundary || flags.reset) after.push({ type: 'boundary', reset: flags.reset })
    if (flags.close) after.push({ type: 'close' })
    const from = flags.from === undefined ? undefined : { session: checkSession(flags.from, '--from') }
    const settings = {
      ...(flags.surprisal && { surprisal: true }),
      ...(flags.embedding && { embedding: true }),
      ...(flags.novelty && { novelty: true }),
      ...(flags.join !== undefined && { join: flags.join }),
      ...(from && { from }),
    }
    const before: ChunkInput[] = Object.keys(settings).length > 0 ? [{ type: 'open', ...settings }] : []
    if (file === undefined && after.length + before.length === 0) {
      throw usage(
        'continuo feed needs a FILE (or - for standard input), or one of --from, --generate, --boundary, --close.',
      )
    }
    const input = file === undefined ? null : await openInput(file, flags.encoding)
    const send = async (log: EventLog): Promise<ExitCode> => {
      const names = namesOf(log, flags['input-topic'])
      await checkInput(log, flags['input-topic'])
      const created = await ensureInput(log, names)
      if (created.length > 0) say(`Created ${plural(created.length, 'topic')} in ${log.url}.`)
      const stopping = input?.live ? untilSignal('Stopping: sending what was read. Once more ends at once.') : undefined
      let sent: Fed | null = null
      const fed = await feedLog(await toFeed(log, names, { partitioner: flags['key-partitioner'] }), {
        topic: names.chunks,
        session,
        before,
        ...(input !== null && { text: input.read(stopping) }),
        chunkBytes: flags['chunk-bytes'],
        after,
        ...(stopping && { signal: stopping }),
        onSent: (soFar) => {
          sent = soFar
        },
      }).catch((error: unknown) => {
        if (sent !== null) say(`Sent before it failed: ${plural(sent.events, 'event')}${placeText(sent, 'partition')}.`)
        throw error
      })
      const { bytes, events, place, interrupted } = fed
      const result = {
        session,
        bytes,
        events,
        partition: place?.partition ?? null,
        firstOffset: place?.first ?? null,
        lastOffset: place?.last ?? null,
        requestId: interrupted ? null : requestId,
        interrupted,
      }
      if (flags.json) printJson(result)
      else {
        const where = placeText(fed, `${names.chunks} partition`)
        print(`Fed session "${shortName(session)}": ${bytesText(bytes)} in ${plural(events, 'event')}${where}.`)
        if (result.requestId !== null) print(`Request: ${result.requestId}`)
      }
      if (!interrupted) return 0
      const unsent = after.map(({ type }) => `--${type}`).join(' and ')
      const rest = unsent === '' ? '' : `; what ${unsent} asked for was not sent`
      say(`Interrupted: the input was cut short, and all that was read of it is sent${rest}.`)
      return exitCodeOfSignal(stopping!)
    }
    try {
      return await withLog(flags, send)
    } finally {
      input?.close()
    }
  },
})
