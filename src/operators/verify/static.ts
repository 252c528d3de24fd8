/**
 * The part of `verify` that does not depend on what a session has read: events that no session accepts, and outputs
 * without a cause.
 */
import { parentOf } from '../advance/fork.ts'
import { tokenizeEvent } from '../pipeline/tokenize.ts'
import { validateRecord } from '../pipeline/validate.ts'
import { isCancel } from '../types.ts'
import type { Audit } from './audit.ts'
import { strayCancels, verifyCancel } from './cancelled.ts'
import { compareDeadLetter, missingHead } from './compare.ts'
import { all, keyText, noEvent, OUTPUT_KINDS, placedIn } from './stored.ts'

/** Events that are rejected whatever their session is, and sessions that should have a head and have none. */
export const verifyStatic = async (audit: Audit): Promise<void> => {
  const { options, partition, stored, begin, end, isDone, found } = audit
  const { log, names } = options
  const cancels = strayCancels(audit)
  for await (const batch of log.read(names.chunks, partition, begin, { until: end, undecodable: true })) {
    for (const record of batch.records) {
      const valid = validateRecord(record, audit.validation)
      cancels.met(record, valid)
      if (valid.kind === 'rejected') compareDeadLetter(audit, record, valid)
      else if (record.offset <= (audit.deleted.get(valid.session) ?? -1)) continue
      else if (isCancel(valid) && !stored.heads.has(valid.session)) verifyCancel(audit, valid)
      else if (!stored.heads.has(valid.session) && !stored.heads.has(parentOf(valid) ?? '')) {
        const others = { newest: () => undefined, homes: audit.homes }
        const out = tokenizeEvent(valid, undefined, audit.engine.tokenizer, audit.model, others)
        if (out.kind === 'rejected') compareDeadLetter(audit, record, out)
        else if (isDone(record.offset)) missingHead(audit, record)
      }
    }
  }
  cancels.conclude()
  for (const topic of audit.outputs) {
    for await (const record of all(log, names[topic], partition)) {
      const session = keyText(record)
      const placed = placedIn(record)
      if (stored.heads.has(session) || (placed?.cause.offset ?? 0) <= (audit.deleted.get(session) ?? -1)) continue
      if (placed === null) noEvent(found, topic, names[topic], record)
      else
        found({
          kind: OUTPUT_KINDS[topic],
          session,
          where: `${names[topic]}, partition ${partition}, offset ${record.offset}`,
          message: 'The state topic holds no head of this session.',
        })
    }
  }
}
