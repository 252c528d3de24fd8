/** Responses as the log has them: how far each is, and what its request was, for the routes that are given an id. */
import { DEAD_LETTER_HEADERS } from '../../../topics/deadletters.ts'
import type { Generated } from '../../../topics/tokens.ts'
import { headersOf, textIn } from '../../client/records.ts'
import type { StoredRecord } from '../../streams/log.ts'
import { generatedIn, refusalIn, setAside, type Topics, type Wanted } from '../answer/ask.ts'
import { usageOf } from '../answer/job.ts'
import { openAnswer, type Piece } from '../answer/pieces.ts'
import { inputItem, type Said } from '../openai/messages.ts'
import { Refusal } from '../refusal.ts'
import type { Service } from '../service.ts'
import { type AskedAt, askedOf, type Item, inputOf } from './asked.ts'
import { CALL, INPUT, type Located, locatedIn, MESSAGE, PREFIX, THOUGHT } from './id.ts'
import { failureIn, responseOf, wholeOf } from './shape.ts'

/** Responses whose items a request refers to: each is read from the log. */
const MOST_REFERRED = 64

/** How long a gateway waits for the news of a session that it has not heard of, ms. */
const PATIENCE = 2000

/** Throws a Refusal (404). */
export const locatedBy = (id: string, param: string): Located => {
  const at = locatedIn(id)
  if (at !== null) return at
  // Clients of WebSockets look for the first of them.
  const code = param === 'previous_response_id' ? 'previous_response_not_found' : 'response_not_found'
  throw new Refusal(404, 'There is no response of this id.', { code, param })
}

/**
 * The request that a dead letter holds; undefined: it holds something else, a `cancel` that came too late for example.
 */
const requestIdIn = ({ value }: StoredRecord): unknown => {
  try {
    const event = JSON.parse(textIn(value)) as { readonly type?: unknown; readonly requestId?: unknown } | null
    return event?.type === 'generate' ? event.requestId : undefined
  } catch {
    return undefined
  }
}

/** Runs and dead letters of a response: those of its `generate` event, and of what was fed before it. */
export const wantedIn = (at: Located, { offset }: AskedAt): Wanted => ({
  run: ({ requestId }) => requestId === at.id,
  letter: (of, record) =>
    requestIdIn(record) === at.id || (offset !== null && at.chunksFrom !== null && of >= at.chunksFrom && of <= offset),
})

export type Resource = ReturnType<typeof responseOf>

/** Whether the response can be in this log. */
const isHere = async ({ partition, session }: Located, { log, names }: Topics): Promise<boolean> =>
  partition === (await log.partitionOf(names.chunks, Buffer.from(session)))

export interface ResponseLog {
  /** Takes the runs of a response. */
  collecting(at: Located): Promise<ReturnType<typeof openAnswer>>
  asked(at: Located): Promise<AskedAt>
  /** The response as far as it is in the log. Rejects with a Refusal (404) for one that was deleted. */
  soFar(at: Located, asked?: AskedAt): Promise<Resource>
  /** The response of an id in a path. Rejects with a Refusal (404) for one that is not in this log. */
  locatedHere(id: string): Promise<Located>
  /**
   * Items by their ids, as they would be sent back; `found` has them as they were given. A response is read once for
   * all of them.
   */
  saidIn(found: Map<string, Item>): (id: string, param: string) => Promise<Said>
}

export const responseLog = ({ served, sessions, topics }: Service): ResponseLog => {
  const notFound = (param: string): Refusal =>
    new Refusal(404, 'There is no response of this id.', { code: 'response_not_found', param })
  const collecting = async ({ calls, start }: Located) => {
    const form = await served.form()
    return openAnswer(form.stops, served.tokenizer, calls ? form.calls : null, start)
  }
  const asked = (at: Located): Promise<AskedAt> => askedOf(at, topics)

  const soFar = async (at: Located, known?: AskedAt): Promise<Resource> => {
    const { log, names } = topics
    const [collected, told] = await Promise.all([collecting(at), known ?? asked(at)])
    const key = Buffer.from(at.session)
    const records = async function* (topic: string, from: number): AsyncGenerator<StoredRecord> {
      const { end } = await log.bounds(topic, at.partition)
      if (from >= end) return
      for await (const batch of log.read(topic, at.partition, from, { until: end, undecodable: true }))
        for (const record of batch.records) if (record.key !== null && key.equals(record.key)) yield record
    }
    const pieces: Piece[] = []
    let last: Generated | undefined
    for await (const record of records(names.tokens, at.tokensFrom)) {
      const run = generatedIn(record)
      if (run.requestId !== at.id) continue
      last = run
      pieces.push(collected.push(run))
      if (run.finish !== null) break
    }
    // A session begins with its first event, and only a deletion ends that it is there; this gateway may not have read
    // yet that it began.
    if (last !== undefined && last.finish !== null && sessions.isCaughtUp && sessions.get(at.session) === undefined) {
      await sessions.finished(at.session, last.cause.offset, AbortSignal.timeout(PATIENCE))
      if (sessions.get(at.session) === undefined) throw notFound('id')
    }
    const failed = (refusal: Refusal): Resource =>
      responseOf(at, served.id, told.about, 'failed', null, null, failureIn(refusal))
    if (last?.finish === 'stopped') return failed(setAside(at.session))
    if (pieces.length === 0) {
      const wanted = wantedIn(at, told)
      for await (const record of records(names.deadletters, at.deadLettersFrom))
        if (wanted.letter(Number(headersOf(record)[DEAD_LETTER_HEADERS.offset]), record))
          return failed(refusalIn(record))
    }
    return wholeOf(at, served.id, told.about, pieces, usageOf(at.inputTokens, at.cachedTokens, collected))
  }

  const locatedHere = async (id: string): Promise<Located> => {
    const at = locatedBy(id, 'id')
    if (await isHere(at, topics)) return at
    throw notFound('id')
  }

  /** The items of a response: of its output once that is over, and of its input. */
  const itemsOf = async (at: Located): Promise<readonly Item[]> => {
    const told = await asked(at)
    const { status, output } = await soFar(at, told)
    const over = status !== 'queued' && status !== 'in_progress'
    return [...(over ? (output as readonly Item[]) : []), ...inputOf(at, told)]
  }
  const saidIn: ResponseLog['saidIn'] = (found) => {
    const read = new Map<string, Promise<readonly Item[]>>()
    return async (id, param) => {
      const numbered = id.startsWith(CALL) || id.startsWith(INPUT)
      const end = numbered ? id.lastIndexOf('_') : id.length
      const prefix = [MESSAGE, CALL, THOUGHT, INPUT].find((each) => id.startsWith(each))
      const at = prefix === undefined ? null : locatedIn(`${PREFIX}${id.slice(prefix.length, end)}`)
      if (at !== null && !read.has(at.id)) {
        if (read.size === MOST_REFERRED)
          throw new Refusal(
            400,
            `The items of at most ${MOST_REFERRED} responses can be named. Send the others themselves.`,
            {
              param,
            },
          )
        read.set(at.id, (await isHere(at, topics)) ? itemsOf(at) : Promise.resolve([]))
      }
      const item = at === null ? undefined : (await read.get(at.id))?.find((each) => each.id === id)
      const parsed = inputItem.safeParse(item)
      if (parsed.success && parsed.data.type !== 'item_reference') {
        found.set(id, item!)
        return parsed.data
      }
      throw new Refusal(404, `The log has no whole item "${id.slice(0, 64)}". Send the item itself.`, {
        code: 'item_not_found',
        param,
      })
    }
  }
  return { collecting, asked, soFar, locatedHere, saidIn }
}
