/**
 * Forks within a partition: the context of the child is a copy of the parent's, which is brought into memory for it.
 */
import type { Context } from '../../engine/context.ts'
import type { Head } from '../../state/head.ts'
import { SpillLost } from '../../state/spill.ts'
import { forkedHead } from '../advance/fork.ts'
import { lifeOf, type PartitionBlobs } from '../blobs/blobs.ts'
import { shareOf } from '../pipeline/shares.ts'
import type { Restored } from '../snapshots/restore.ts'
import type { Step, Tokenized } from '../types.ts'
import type { LiveSession } from './idle-sessions.ts'

/** A session for one event. */
export interface Acquired {
  readonly session: LiveSession
  /** The session begins with this event. */
  readonly fresh: boolean
  /** The step that sets it aside, where what the log should hold of it is lost. */
  readonly aside?: Step
}

/** A session that was made or rebuilt, or what takes its place with the step that sets it aside. */
export type Brought = Restored & { readonly aside?: Step }

/**
 * Gets a session into memory for one event, where `make` gives it unless it is there; null when the task ends before.
 */
export type Take = (
  id: string,
  make: (known: Head | undefined) => Promise<Brought>,
  /** Whose room it gets; default: nobody's in particular. */
  share?: string,
) => Promise<Omit<Acquired, 'fresh'> | null>

export type Fork = (work: Tokenized & { readonly parent: Head }) => Promise<Acquired | null>

export interface ForksDeps {
  readonly forkContext: (parent: Context) => Promise<Context>
  /** The session has another context now. */
  readonly own: (session: LiveSession) => void
  readonly blobs: PartitionBlobs | null
  /** Resolves when another state may be copied that its commit waits for; undefined when it may now. */
  readonly room: () => Promise<void> | undefined
  readonly stopping: AbortSignal
  readonly take: Take
  readonly rest: (session: LiveSession) => void
  readonly rebuilt: (id: string) => Promise<Restored>
  /** What takes the place of a session whose stored state is lost, from this head on; throws what is no loss. */
  readonly lost: (error: unknown, work: Tokenized, head: Head) => Promise<Brought>
}

/** With the session in its message, because the engine knows contexts only. */
export const spillLostOf = (session: string, error: SpillLost): SpillLost =>
  new SpillLost(`Session "${session}": ${error.message}`, { cause: error })

/**
 * A child is in memory before it has a place there, because neither may wait for a place while it holds the other's. So
 * one session is forked at a time, and a partition has one context more at most than it has places.
 */
export const createForks = ({
  forkContext,
  own,
  blobs,
  room,
  stopping,
  take,
  rest,
  rebuilt,
  lost,
}: ForksDeps): Fork => {
  /** The child as it begins; null when the task ends before its parent is in memory. */
  const begun = async (work: Tokenized, { session: id }: Head): Promise<Brought | null> => {
    const taken = await take(id, () => rebuilt(id), shareOf(work.record))
    if (taken === null) return null
    const { head, context } = taken.session
    // What of the parent lies in the blob store lies there for the child, too.
    const child = forkedHead(work, head)
    const blocks =
      blobs === null ? undefined : { life: lifeOf(child), names: blobs.known(head), pages: [], where: blobs.where }
    try {
      const forked = await forkContext(context)
      const history = taken.session.history.copy()
      rest(taken.session)
      return { head: child, context: forked, history, ...(blocks && { blocks }) }
    } catch (error) {
      throw error instanceof SpillLost ? spillLostOf(id, error) : error
    }
  }

  /**
   * The child takes the place of the session that was closed, where that is in memory still, or the next one that is
   * free.
   */
  const placed = async (child: Brought, share: string | undefined): Promise<Acquired | null> => {
    const { head, context, history, blocks, aside } = child
    const taken = await take(head.session, async () => child, share)
    if (taken === null) {
      context.close()
      return null
    }
    const { session } = taken
    if (session.context !== context) {
      session.context.close()
      session.context = context
      session.head = head
      session.history = history
      own(session)
      blobs?.begin(head.session, blocks)
    }
    return { session, fresh: true, ...(aside && { aside }) }
  }

  let last: Promise<unknown> = Promise.resolve()
  return (work) => {
    const forked = last.then(async () => {
      await room()
      if (stopping.aborted) return null
      const { parent } = work
      const child = await begun(work, parent).catch((error) => lost(error, work, forkedHead(work, parent)))
      return child === null ? null : placed(child, shareOf(work.record))
    })
    last = forked.catch(() => undefined)
    return forked
  }
}
