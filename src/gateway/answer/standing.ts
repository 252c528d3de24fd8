/** The state of a request's session before the request: its last answer, and whether it can go on. */
import type { Generated } from '../../../topics/tokens.ts'
import { Refusal } from '../refusal.ts'
import type { Service } from '../service.ts'
import { generatedIn } from './ask.ts'
import type { Answering, Job } from './job.ts'

/** Records of the topic that are searched for the last answer of a session. */
const LOOK_BACK = 1024

/** The end of a session's last answer; null where that is too long ago to be found. */
export const lastAnswer = async (session: string, { topics }: Service) => {
  const { log, names } = topics
  const key = Buffer.from(session)
  const partition = await log.partitionOf(names.chunks, key)
  const { begin, end } = await log.bounds(names.tokens, partition)
  const from = Math.max(begin, end - LOOK_BACK)
  let text = ''
  let last: Generated | null = null
  for await (const batch of log.read(names.tokens, partition, from, { until: end, undecodable: true }))
    for (const record of batch.records) {
      if (record.key === null || !key.equals(record.key)) continue
      const run = generatedIn(record)
      text = run.requestId === last?.requestId ? (text + run.text).slice(-1024) : run.text
      last = run
    }
  return last === null ? null : { requestId: last.requestId, finish: last.finish, text }
}

export const standingOf = async (
  session: string,
  named: boolean,
  { formStops, after }: Pick<Job, 'formStops' | 'after'>,
  { service, turns }: Answering,
) => {
  const view = named ? service.sessions.get(session) : undefined
  const closed = view?.status === 'closed'
  const begun = view === undefined ? named && turns.begun.get(session) === true : !closed && view.pulse > view.origin
  const looks = (begun && formStops.length > 0) || after !== undefined
  const last = looks ? await lastAnswer(session, service) : null
  if (after !== undefined && (!begun || last?.requestId !== after))
    throw new Refusal(409, 'That response is not the last one of its session any more, so nothing can follow it.', {
      code: 'previous_response_not_last',
      param: 'previous_response_id',
    })
  if (after !== undefined && last?.finish === null)
    throw new Refusal(409, 'That response is still made, so nothing can follow it yet. Ask again when it is over.', {
      code: 'previous_response_not_over',
      param: 'previous_response_id',
    })
  const stopped = begun && last?.finish === 'stop' && formStops.some((stop) => last.text.endsWith(stop))
  return { closed, pulse: view?.pulse ?? 0, standing: { fresh: !begun, stopped } }
}
