/** Comparisons of `verify`: what a recomputation says, against what the log holds. Each difference is a finding. */
import type { StoredRecord } from '../../streams/log.ts'
import { textOf } from '../../text.ts'
import { deadLetterContent, encodeOutput } from '../pipeline/emit.ts'
import { sessionText } from '../pipeline/input.ts'
import { deleteEvents } from '../snapshots/ancestors.ts'
import type { Output, SetAside, Step } from '../types.ts'
import type { Audit, Subject } from './audit.ts'
import { OUTPUT_KINDS, OUTPUTS } from './stored.ts'

const NOTHING = new Uint8Array(0)

export const missingHead = ({ options, partition, validation, found }: Audit, record: StoredRecord): void => {
  const session = sessionText(record, validation.input)
  found({
    kind: 'head',
    session,
    where: `${options.names.state}, partition ${partition}`,
    message: `The partition cursor says that offset ${record.offset} is finished, but no head of session "${session}" stands there.`,
  })
}

/** A `delete` event that its session takes, and of which the log does not say so. */
export const missingDeletion = ({ options, validation, isDone, found }: Audit, record: StoredRecord): void => {
  if (!isDone(record.offset)) return
  const session = sessionText(record, validation.input)
  const message = `The event at offset ${record.offset} deletes session "${session}", and ${options.names.observations} lacks that it did.`
  found({ kind: 'observation', session, where: `${options.names.chunks}, offset ${record.offset}`, message })
}

/** A head that began before the event which deleted its session. */
export const outlived = ({ options, partition, found }: Audit, session: string, deletion: number): void => {
  const message = `Session "${session}" was deleted at offset ${deletion}, and its head began before that.`
  found({ kind: 'head', session, where: `${options.names.state}, partition ${partition}`, message })
}

/** The deletions that the log tells of against the events that ask for them. */
export const compareDeletions = async ({
  options,
  partition,
  begin,
  end,
  deleted,
  validation,
  found,
}: Audit): Promise<void> => {
  const events = await deleteEvents(options.log, options.names.chunks, partition, [begin, end], validation)
  for (const [session, offset] of deleted) {
    if (offset < begin || events.get(offset) === session) continue
    const message = `No "delete" event at offset ${offset} of ${options.names.chunks} explains that session "${session}" was deleted there.`
    found({ kind: 'observation', session, where: `${options.names.observations}, partition ${partition}`, message })
  }
}

export const compareDeadLetter = (
  { options, deadLetters, validation, isDone, found }: Audit,
  record: StoredRecord,
  { reason, stopped }: { readonly reason: string; readonly stopped?: SetAside },
): void => {
  if (!isDone(record.offset)) return
  const session = sessionText(record, validation.input) || null
  const where = `${options.names.chunks}, offset ${record.offset}`
  const letter = deadLetters.get(record.offset)
  const recomputed = stopped === undefined ? null : `${stopped.cause}/${stopped.token}`
  if (letter === undefined) {
    found({
      kind: 'deadletter',
      session,
      where,
      message: `The event was rejected ("${reason}") and no dead letter holds it.`,
    })
  } else if (letter.stopped !== recomputed) {
    const does = (at: string | null): string => (at === null ? 'does not set' : `sets (${at})`)
    found({
      kind: 'deadletter',
      session,
      where,
      message: `The dead letter says that the event ${does(letter.stopped)} its session aside; recomputed, it ${does(recomputed)}.`,
    })
  } else if (Buffer.compare(Buffer.concat(letter.parts), deadLetterContent(record).value ?? NOTHING) !== 0) {
    found({
      kind: 'deadletter',
      session,
      where,
      message: 'The dead letter does not hold the bytes of the event, or holds them twice.',
    })
  }
}

export const compareOutput = (
  { options, totals, found }: Audit,
  subject: Subject,
  output: Exclude<Output, { to: 'deadletters' }>,
  step: Step,
): void => {
  const { names } = options
  const kind = OUTPUT_KINDS[output.to]
  const { session, record } = step
  const stored = subject.outputs[output.to].shift()
  if (stored === undefined) {
    const where = `${record.topic}, offset ${record.offset}`
    found({ kind, session, where, message: `${names[output.to]} lacks an event that this input caused.` })
    return
  }
  if (output.to === 'tokens') totals.tokensCompared += output.value.ids.length
  const [encoded] = encodeOutput(output, record, names)
  const [expected, actual] = [encoded?.value ?? NOTHING, stored.value ?? NOTHING]
  if (Buffer.compare(actual, expected) === 0) return
  found({
    kind,
    session,
    where: `${names[output.to]}, partition ${stored.partition}, offset ${stored.offset}`,
    message: `The event differs from the recomputation: expected ${textOf(expected).slice(0, 400)}, found ${textOf(actual).slice(0, 400)}`,
  })
}

/** Reports stored records that the recomputation did not produce. */
export const conclude = ({ options, partition, found }: Audit, id: string, subject: Subject): void => {
  const { names } = options
  if (!subject.finished) {
    const { offset, token } = subject.target.cursor
    const message = `The newest head stands at offset ${offset}, token ${token}; the events do not lead there.`
    found({ kind: 'head', session: id, where: `${names.state}, partition ${partition}`, message })
  }
  if (subject.session === null) return
  const strays = [
    ['head', subject.heads],
    ['snapshot', subject.snapshots],
  ] as const
  for (const [kind, map] of strays) {
    for (const { where } of [...map.values()].flat()) {
      found({
        kind,
        session: id,
        where,
        message: `The ${kind} stands at a place that the recomputation does not pass.`,
      })
    }
  }
  for (const topic of OUTPUTS) {
    const kind = OUTPUT_KINDS[topic]
    for (const { offset } of subject.outputs[topic]) {
      const where = `${names[topic]}, partition ${partition}, offset ${offset}`
      found({ kind, session: id, where, message: 'No input explains this event: it was added or stands twice.' })
    }
  }
}
