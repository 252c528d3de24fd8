import type { ChunkInput } from '../../../topics/chunks.ts'
import { cancel as cancelEvent } from '../../../topics/chunks.ts'
import { toFeed } from '../../client/declared.ts'
import { feed } from '../../client/feed.ts'
import { namesOf } from '../../client/topics.ts'
import { command } from '../command.ts'
import { logFlags, partitionsOf, withExistingLog } from '../common.ts'
import { optional, usage } from '../flags.ts'
import { print, printJson, shortName } from '../output.ts'
import { checkSession } from './feed.ts'

const eventOf = (requestId: string): ChunkInput => {
  const parsed = cancelEvent.safeParse({ type: 'cancel', requestId })
  if (parsed.success) return parsed.data
  throw usage(`REQUEST takes 1 to 256 characters; this one has ${requestId.length}.`)
}

export const cancel = command({
  name: 'cancel',
  about:
    'Ends a request to generate or to adapt, whatever else waits in its session: a worker that has read this event ends it after the run of tokens in hand, or between two evaluations, in which case nothing is learnt; at its turn where it has not begun.',
  args: [
    { name: 'SESSION', help: 'the session of the request', required: true },
    { name: 'REQUEST', help: 'its id, as feed printed it or --request-id named it', required: true },
  ],
  flags: { ...logFlags, 'input-topic': optional('TOPIC', 'write to this topic instead of PREFIX.chunks') },
  notes:
    'The last record of the request in the tokens topic says "cancelled"; an "adapted" observation says "endedBy". A request that is over already, or that is unknown, makes this event a dead letter: continuo tail --topic deadletters shows it.',
  examples: ['cancel book 5f0c2f7e-36c1-4ad6-9b3e-0a4e7e1d2c11 --log file:continuo.db'],
  async run(flags, [given, requestId]) {
    const session = checkSession(given!, 'SESSION')
    const event = eventOf(requestId!)
    return withExistingLog(flags, async (log) => {
      const names = namesOf(log, flags['input-topic'])
      await partitionsOf(log, names)
      const { place } = await feed(await toFeed(log, names), { topic: names.chunks, session, before: [event] })
      const { partition, last: offset } = place!
      if (flags.json) printJson({ session, requestId, partition, offset })
      else
        print(
          `Asked for the end of request ${shortName(requestId!)} of session "${shortName(session)}": ${names.chunks} partition ${partition}, offset ${offset}.`,
        )
      return 0
    })
  },
})
