/**
 * Named places where the process can be killed from outside, for crash tests: `CONTINUO_FAILPOINT=commit.sent@3` sends
 * SIGKILL to this very process when it passes `commit.sent` for the third time; with `:stop` behind it SIGSTOP, so that
 * a test can change the world around it before it sends SIGCONT. Unset, a failpoint costs one comparison.
 *
 * The list is closed, so that a crash test can walk it and a misspelt name is an error instead of a test that cannot
 * fail.
 */
export const FAILPOINTS = [
  /** The former owner is fenced; nothing was read yet. */
  'claim.done',
  /** The partition cursor and the heads were read and checked. */
  'restore.read',
  /** A session's snapshot was fetched and verified, its context not yet rebuilt. */
  'restore.snapshot',
  /** Between two replayed steps. */
  'restore.replay',
  /** The replayed head agreed with the committed one. */
  'restore.done',
  /** State was copied out of the engine; no part is written. */
  'snapshot.captured',
  /** Between two groups of parts. */
  'snapshot.part',
  /** All parts are in the log, and no head names them. */
  'snapshot.written',
  /** A blob of a snapshot is durable; others and the manifest are not written. */
  'blobs.put',
  /** All blobs of a snapshot are durable; its manifest is not written. */
  'blobs.written',
  /** Dead blobs were found; none is removed. */
  'blobs.swept',
  /** Living blobs of a topic were copied to its end; no manifest names the copies. */
  'blobs.moved',
  /** A dead blob was removed, and others were not; a topic was trimmed. */
  'blobs.removed',
  /** Text before an adaptation was read; the engine does not know of it. */
  'adapt.begun',
  /** The engine adapts. */
  'adapt.running',
  /** The engine has learnt; nothing of it is committed. */
  'adapt.done',
  /** The transaction is put together; nothing was sent. */
  'commit.prepared',
  /** Inside the transaction: records are sent, offsets are not. */
  'commit.sent',
  /** Inside the transaction: all is sent, the end is not. */
  'commit.offsets',
  /** The log has committed; the worker does not know yet. */
  'commit.ended',
  /** The worker has taken note of the commit. */
  'commit.noted',
  /** Live state was written again at the end of its log; nothing was trimmed. */
  'forward.written',
  /** Behind the compacted state the log was trimmed. */
  'forward.trimmed',
  /** Stopping: the last record is finished, the farewell snapshots are not written. */
  'stop.drained',
] as const
export type Failpoint = (typeof FAILPOINTS)[number]

interface Armed {
  readonly name: Failpoint
  readonly signal: 'SIGKILL' | 'SIGSTOP'
  left: number
}

const parse = (text: string | undefined): Armed | null => {
  if (text === undefined || text === '') return null
  const [, name, times, stop] = /^([a-z.]+)(?:@([1-9]\d*))?(:stop)?$/.exec(text) ?? []
  const known = FAILPOINTS.find((each) => each === name)
  if (known === undefined) {
    throw new Error(
      `CONTINUO_FAILPOINT is name, name@count or name@count:stop with a name of ${FAILPOINTS.join(', ')}; it is "${text}".`,
    )
  }
  return { name: known, signal: stop === undefined ? 'SIGKILL' : 'SIGSTOP', left: Number(times ?? 1) }
}

const armed = parse(process.env.CONTINUO_FAILPOINT)

export const failpoint = (name: Failpoint): void => {
  if (armed === null || armed.name !== name) return
  armed.left -= 1
  if (armed.left === 0) process.kill(process.pid, armed.signal)
}
