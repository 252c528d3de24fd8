/** Routes for the input items of a response, and for its deletion. */
import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import { type Answering, OWN_SESSION } from '../answer/job.ts'
import { lastAnswer } from '../answer/standing.ts'
import { Refusal } from '../refusal.ts'
import { goneSignal } from '../service.ts'
import { sessionEffects } from '../session-effects.ts'
import { inputOf } from './asked.ts'
import type { Located } from './id.ts'
import { responseLog } from './log.ts'

const params = z.strictObject({ id: z.string() })
export const itemsQuery = z.strictObject({
  order: z.enum(['asc', 'desc']).default('desc').describe('Of the items: the last one first, or the first.'),
  limit: z.coerce.number().int().min(1).max(100).default(20).describe('Items of a page.'),
  after: z.string().max(512).optional().describe('The id of an item: the page begins behind it.'),
})

export const responseItemRoutes = (app: FastifyInstance, answering: Answering): void => {
  const { service, counter } = answering
  const { deleteSession } = sessionEffects(answering)
  const { locatedHere, asked, soFar } = responseLog(service)

  app.get('/v1/responses/:id/input_items', { schema: { params, querystring: itemsQuery } }, async (request) => {
    const { order, limit, after } = request.query as z.output<typeof itemsQuery>
    const at = await locatedHere((request.params as z.output<typeof params>).id)
    const told = await asked(at)
    await soFar(at, told)
    const items = inputOf(at, told)
    const all = order === 'asc' ? items : [...items].reverse()
    const behind = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1
    if (after !== undefined && behind === 0)
      throw new Refusal(400, 'The response has no item of this id in its input.', { param: 'after' })
    const data = all.slice(behind, behind + limit)
    return {
      ...{ object: 'list', data, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null },
      has_more: behind + data.length < all.length,
    }
  })

  /**
   * Whether the session of a response has no other answer: a fork counts those of what it was forked from, and what is
   * long ago is not looked for.
   */
  const isAlone = async ({ id, session }: Located, tokens: number): Promise<boolean> => {
    if (!session.startsWith(OWN_SESSION)) return false
    const last = await lastAnswer(session, service)
    if (last !== null) return last.requestId === id
    const view = service.sessions.get(session)
    return view?.from === undefined && (view?.generated ?? 0) <= tokens
  }

  /**
   * What a model has read is one state, so a response is deleted with its session, where nothing else was made in it.
   */
  app.delete('/v1/responses/:id', { schema: { params } }, async (request, reply) => {
    const at = await locatedHere((request.params as z.output<typeof params>).id)
    const told = await asked(at)
    const { status, usage } = await soFar(at, told)
    if (status === 'queued' || status === 'in_progress')
      throw new Refusal(409, 'That response is still made. Cancel it first: POST /v1/responses/ID/cancel.', {
        code: 'response_not_over',
        param: 'id',
      })
    if (told.about.previous_response_id !== null || !(await isAlone(at, usage?.output_tokens ?? 0)))
      throw new Refusal(
        409,
        `Other answers stand in the session of that response, "${at.session}", and what was read cannot be taken out of the middle. DELETE /v1/sessions/${encodeURIComponent(at.session)} deletes all of it.`,
        { code: 'response_not_alone', param: 'id' },
      )
    counter.enter(reply, 'whole')
    await deleteSession(at.session, request.keyName, goneSignal(reply))
    return { id: at.id, object: 'response', deleted: true }
  })
}
