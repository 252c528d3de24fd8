/**
 * /v1/responses/compact. Nothing is summarized here: a conversation is compacted into the state of a session that has
 * read it. One small item stands for it in later requests, and it is not read again. With a response before it nothing
 * is read either: the session is a fork of the response's own.
 */
import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { ChunkInput } from '../../../topics/chunks.ts'
import type { Message } from '../../models/chat/index.ts'
import { merged, refusalsOf, type Sent, send, wantedOf } from '../answer/ask.ts'
import type { Answering } from '../answer/job.ts'
import { standingOf } from '../answer/standing.ts'
import { checkMessages, messagesOf } from '../openai/messages.ts'
import { parsedBody, responseRequest } from '../openai/schema.ts'
import { Refusal } from '../refusal.ts'
import { checkModel, goneSignal } from '../service.ts'
import { sessionEffects } from '../session-effects.ts'
import { type Asked, askedIn, type Item, packed } from './asked.ts'
import { type Basis, basisOf, type Compacted, contentOf, readingOn, withoutCompaction } from './compaction-log.ts'
import { locatedBy, responseLog } from './log.ts'

const { model, input, previous_response_id, instructions, prompt_cache_key } = responseRequest.shape
export const compactRequest = z.strictObject({
  ...{ model, input: input.optional(), previous_response_id, instructions, prompt_cache_key },
})

/** What is sent: the events of a new session, and what stands beside the last of them. */
interface Plan {
  readonly session: string
  readonly kind: Compacted['kind']
  readonly events: readonly ChunkInput[]
  readonly tokens: number
  readonly asked: Asked
}

export const compactRoutes = (app: FastifyInstance, answering: Answering): void => {
  const { service, counter, turns } = answering
  const { served, sessions, topics, limits } = service
  const { saidIn } = responseLog(service)
  const { nameBeside } = sessionEffects(answering)

  /**
   * Resolves once the session has done what was sent. Rejects with a Refusal for what the worker refuses, and where it
   * takes too long.
   */
  const settled = async (session: string, sent: Sent, ends: AbortSignal): Promise<void> => {
    const over = new AbortController()
    const until = AbortSignal.any([ends, over.signal])
    async function* done(): AsyncGenerator<null> {
      await sessions.finished(session, sent.offsets.at(-1)!, until)
      yield null
    }
    const refusals = refusalsOf(topics, session, sent, wantedOf(sent, -1), until)
    for await (const found of merged<null | Refusal>([done(), refusals], () => over.abort())) {
      if (found !== null) throw found
      break
    }
    if (ends.aborted)
      throw new Refusal(504, 'The conversation was not read in time. Does a worker serve this log?', {
        code: 'timeout',
      })
  }

  /** Of an answer, a fork behind it; the messages after it are read with those that come next. */
  const behind = async (from: string, stopped: boolean, asked: Asked): Promise<Plan> => ({
    session: await nameBeside(from, 'cmp'),
    kind: stopped ? 'behind, stopped' : 'behind',
    ...{ events: [{ type: 'open', from: { session: from } }], tokens: 0, asked },
  })

  app.post('/v1/responses/compact', async (request, reply) => {
    const body = parsedBody(compactRequest, request.body, {})
    checkModel(served, body.model)
    const before = body.previous_response_id
    const { compaction, items } = withoutCompaction(body.input ?? [])
    if (body.input === undefined && before === undefined)
      throw new Refusal(400, 'There is nothing to compact: expected "input", "previous_response_id" or both.', {
        param: 'input',
      })
    if (compaction !== null && before !== undefined)
      throw new Refusal(400, 'A compaction stands for all that was before it. Leave "previous_response_id" out.', {
        param: 'previous_response_id',
      })
    const previous = before === undefined ? undefined : locatedBy(before, 'previous_response_id')
    const found = new Map<string, Item>()
    const system: readonly Message[] =
      body.instructions === undefined ? [] : [{ role: 'system', content: body.instructions }]
    const said = await messagesOf(items, saidIn(found))
    if (said.length > 0) checkMessages([...system, ...said], 'input')
    const basis: Basis | null = compaction === null ? null : await basisOf(compaction, topics, 'input.0')
    const own = askedIn(request.body, found)
    const asked: Asked = {
      about: { ...own.about, instructions: own.about.instructions ?? basis?.asked.about.instructions ?? null },
      input: [...(basis?.asked.input ?? []), ...own.input.filter(({ type }) => type !== 'compaction')],
    }
    const form = await served.form()
    counter.enter(reply, 'whole')
    const ends = AbortSignal.any([goneSignal(reply), AbortSignal.timeout(limits.answer), service.ended])

    /** What is to be sent, for a conversation that stands where it stands now. */
    const plan = async (): Promise<Plan> => {
      if (previous !== undefined) {
        const about = { formStops: form.stops, after: previous.id }
        const { standing } = await standingOf(previous.session, true, about, answering)
        return behind(previous.session, standing.stopped, asked)
      }
      if (basis !== null && basis.kind !== 'read') return behind(basis.session, basis.kind === 'behind, stopped', asked)
      // Instructions of a later compaction stand first, and then the whole is read again.
      const { instructions: first } = asked.about
      const rest = (basis?.messages ?? []).slice(basis?.asked.about.instructions == null ? 0 : 1)
      const all = [...(first === null ? [] : [{ role: 'system' as const, content: first }]), ...rest, ...said]
      const session = await nameBeside(basis?.session ?? 'cmp', 'cmp')
      return { session, kind: 'read', ...readingOn(form, basis, all), asked }
    }

    const leave = previous === undefined ? () => undefined : await turns.enter(previous.session, ends)
    try {
      const { session, kind, events, tokens, asked: told } = await plan()
      const beside = await packed(told)
      const last = events.at(-1)
      const sent = await send(
        topics,
        session,
        request.keyName,
        () => events,
        (event) => (event === last ? beside : undefined),
      )
      await settled(session, sent, ends)
      const created = Math.floor(Date.now() / 1000)
      const content = contentOf({
        ...{ partition: sent.partition, offset: sent.offsets.at(-1)! },
        created,
        kind,
        session,
      })
      return {
        ...{ id: `cmpr_${content}`, object: 'response.compaction', created_at: created },
        output: [{ type: 'compaction', id: `cmp_${content}`, encrypted_content: content }],
        usage: {
          ...{ input_tokens: tokens, input_tokens_details: { cached_tokens: 0 } },
          ...{ output_tokens: 0, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: tokens },
        },
      }
    } finally {
      leave()
    }
  })
}
