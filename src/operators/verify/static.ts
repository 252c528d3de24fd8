/** The part of `verify` that does not depend on what a session has read: events that no session accepts, and outputs without a cause. */
import { parentOf } from '../advance/fork.ts'
import { tokenizeEvent } from '../pipeline/tokenize.ts'
import { validateRecord } from '../pipeline/validate.ts'
import { isCancel } from '../types.ts'
import { strayCancels, verifyCancel } from './cancelled.ts'
import { compareDeadLetter, missingHead } from './compare.ts'
import type { Scene } from './scene.ts'
import { all, keyText, noEvent, OUTPUT_KINDS, placedIn } from './stored.ts'

/** Events that are rejected whatever their session is, and sessions that should have a head and have none. */
export const verifyStatic = async (scene: Scene): Promise<void> => {
  const { options, partition, stored, begin, end, isDone, found } = scene
  const { log, names } = options
  const cancels = strayCancels(scene)
  for await (const batch of log.read(names.chunks, partition, begin, { until: end, undecodable: true })) {
    for (const record of batch.records) {
      const valid = validateRecord(record, scene.validation)
      cancels.met(record, valid)
      if (valid.kind === 'rejected') compareDeadLetter(scene, record, valid)
      else if (record.offset <= (scene.deleted.get(valid.session) ?? -1)) continue
      else if (isCancel(valid) && !stored.heads.has(valid.session)) verifyCancel(scene, valid)
      else if (!stored.heads.has(valid.session) && !stored.heads.has(parentOf(valid) ?? '')) {
        const others = { newest: () => undefined, homes: scene.homes }
        const out = tokenizeEvent(valid, undefined, scene.engine.tokenizer, scene.model, others)
        if (out.kind === 'rejected') compareDeadLetter(scene, record, out)
        else if (isDone(record.offset)) missingHead(scene, record)
      }
    }
  }
  cancels.conclude()
  for (const topic of scene.outputs) {
    for await (const record of all(log, names[topic], partition)) {
      const session = keyText(record)
      const placed = placedIn(record)
      if (stored.heads.has(session) || (placed?.cause.offset ?? 0) <= (scene.deleted.get(session) ?? -1)) continue
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
