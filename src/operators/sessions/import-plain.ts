/**
 * A session of a plain decoder goes on in the same decoder with an external memory (docs/infinite-context.md): keys are
 * turned back and lie in the window and in archived blocks, as if the tokens had been read there. What needs their
 * hidden vectors begins anew: topics and what is asked.
 */
import type { Model } from '../../engine/types.ts'
import type { PlainCache } from '../../engine/work.ts'
import { ContinuoError } from '../../errors.ts'
import type { Snapshot } from '../../state/snapshot.ts'
import { clockOf, NO_TOKENS } from '../advance/session-state.ts'

const cacheIn = ({ head, state }: Snapshot, plain: Model): PlainCache => {
  const entries = plain.layout.tensors(state)
  const numbers = (name: string): Float32Array => {
    const entry = entries.find((each) => each.name === name)
    if (entry === undefined || entry.dtype !== 'F32')
      throw new ContinuoError(
        'INVALID',
        `Session "${head.session}" has no "${name}" in f32, so it is none of a plain decoder whose keys can be turned back.`,
      )
    // A copy: the state may begin anywhere in its file. (slice() of a Buffer is none.)
    return new Float32Array(new Uint8Array(state.subarray(entry.offset, entry.offset + entry.bytes)).buffer)
  }
  return { keys: numbers('keyCache'), values: numbers('valueCache'), hidden: numbers('hidden.last') }
}

/** Throws INVALID where the session has read nothing, and for a memory whose modules read hidden vectors. */
export const importPlain = async (snapshot: Snapshot, plain: Model, model: Model): Promise<Snapshot> => {
  const { head } = snapshot
  const { globalStep, origin } = head.conductor
  if (globalStep === origin)
    throw new ContinuoError(
      'INVALID',
      `Session "${head.session}" has read nothing since it began, or since its last reset.`,
    )
  const context = model.createContext()
  try {
    // An empty context at the session's clock.
    context.restore(context.serialize(), clockOf(head))
    const request = { type: 'importPlain', plain: cacheIn(snapshot, plain) } as const
    const { events = [] } = await model.submit({ context, tokens: NO_TOKENS, nats: false, request })
    const archived = events.filter(({ type }) => type === 'archive').length
    return {
      head: {
        ...head,
        model: model.fingerprint,
        layout: model.layoutFingerprint,
        chain: context.chain,
        ...(archived > 0 && { archived }),
      },
      state: await context.state(),
    }
  } finally {
    context.close()
  }
}
