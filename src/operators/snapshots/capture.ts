/** Copies of states, for snapshots. */
import { giveBack } from '../../bulk.ts'
import { codeOf } from '../../errors.ts'
import type { FreshBlock } from '../../memory.ts'
import { endOf, within } from '../../state/manifest.ts'
import { SpillLost } from '../../state/spill.ts'
import type { SessionState } from '../advance/session-state.ts'
import type { PartitionBlobs } from '../blobs/blobs.ts'
import { spillLostOf } from '../sessions/forks.ts'
import type { Capture } from '../types.ts'

/** Blocks that are copied at a time: more of them go to the blob store first, while the session waits. */
export const CAPTURE_BYTES = 64 << 20

/**
 * A copy of the session's state as it is now. Where blocks have a place of their own, those that lie there are named.
 * Of those that do not, what exceeds `most` bytes is brought there by pieces, so that the memory for a capture has a
 * bound: a session that goes from the log to a blob store has all its blocks yet to bring.
 */
export const captureOf = async (
  { head, context, history }: SessionState,
  blobs: PartitionBlobs | null,
  most: number = CAPTURE_BYTES,
): Promise<Capture> => {
  try {
    const gates = context.gates()
    const kept = history.kept()
    if (blobs === null) return { head, kept, state: await context.state(), gates }
    const pulse = head.conductor.globalStep
    let names = blobs.known(head)
    for (;;) {
      const { hot, frozen, fresh, numbers, more } = await context.capture({ pulse, ends: names.map(endOf), most })
      const known = names.map((own, g) => within(own, frozen[g]!))
      if (more !== true) return { head, kept, state: hot, blocks: { known, fresh, ...(numbers && { numbers }) }, gates }
      names = await blobs.ahead(head, { known, fresh })
      giveBack(...fresh.flat().map(({ bytes }) => bytes))
    }
  } catch (error) {
    throw error instanceof SpillLost ? spillLostOf(head.session, error) : error
  }
}

/**
 * The frozen blocks of a context behind `ends` (`KnownParts`), one after the other; of those in memory at a time there
 * are `most` bytes. Nothing else may be done with the context meanwhile.
 */
export async function* frozenBlocks(
  context: Pick<SessionState['context'], 'capture'>,
  pulse: number,
  ends: readonly number[],
  most: number = CAPTURE_BYTES,
): AsyncGenerator<FreshBlock & { readonly g: number }> {
  const from = [...ends]
  for (;;) {
    const { hot, fresh, more } = await context.capture({ pulse, ends: from, most })
    giveBack(hot)
    for (const [g, own] of fresh.entries())
      for (const block of own) {
        yield { g, ...block }
        from[g] = block.run + 1
        giveBack(block.bytes)
      }
    if (more !== true) return
  }
}

/**
 * null: the context is gone with its device, and a farewell is no reason to fail. The session is rebuilt from the log.
 */
export const captureIfThere = async (
  session: SessionState,
  blobs: PartitionBlobs | null,
  most?: number,
): Promise<Capture | null> => {
  try {
    return await captureOf(session, blobs, most)
  } catch (error) {
    if (codeOf(error) === 'UNAVAILABLE') return null
    throw error
  }
}
