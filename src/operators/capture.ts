/** Copies of states, for snapshots. */
import { codeOf } from '../errors.ts'
import { endOf, within } from '../state/manifest.ts'
import { SpillLost } from '../state/spill.ts'
import type { SessionState } from './advance.ts'
import type { PartitionBlobs } from './blobs.ts'
import { spillLostOf } from './forks.ts'
import type { Capture } from './types.ts'

/** A copy of the session's state as it is now. Where blocks have a place of their own, those that lie there are named. */
export const captureOf = async ({ head, context }: SessionState, blobs: PartitionBlobs | null): Promise<Capture> => {
  try {
    const gates = context.gates()
    if (blobs === null) return { head, state: await context.state(), gates }
    const names = blobs.known(head.session, head.conductor.origin)
    const parts = { pulse: head.conductor.globalStep, ends: names.map(endOf) }
    const { hot, frozen, fresh, numbers } = await context.capture(parts)
    const known = names.map((own, g) => within(own, frozen[g]!))
    return { head, state: hot, blocks: { known, fresh, ...(numbers && { numbers }) }, gates }
  } catch (error) {
    throw error instanceof SpillLost ? spillLostOf(head.session, error) : error
  }
}

/** null: the context is gone with its device, and a farewell is no reason to fail. The session is rebuilt from the log. */
export const captureIfThere = async (session: SessionState, blobs: PartitionBlobs | null): Promise<Capture | null> => {
  try {
    return await captureOf(session, blobs)
  } catch (error) {
    if (codeOf(error) === 'UNAVAILABLE') return null
    throw error
  }
}
