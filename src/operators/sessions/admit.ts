/**
 * Admission of a session from a file, which `continuo export` wrote, a SessionManager, or an attacker. The file is
 * checked as a whole, once, by all rules that a worker relies on later; a session that passes can be sealed, resumed,
 * fed and saved.
 */

import type { SnapshotHead } from '../../../topics/state.ts'
import type { Model, ModelInfo } from '../../engine/types.ts'
import { ContinuoError, messageOf } from '../../errors.ts'
import type { LayoutEntry } from '../../memory.ts'
import type { Tokenizer } from '../../models/tokenizer/types.ts'
import { checkFits, faultOfHead, type Head, pulseMismatch } from '../../state/head.ts'
import { LARGEST_IMPORTED_PULSE } from '../../state/head-rules.ts'
import { historyIn, withoutHistory } from '../../state/history.ts'
import { hotTensors } from '../../state/manifest.ts'
import { counterIn } from '../../state/outer-memory.ts'
import { decodeSnapshot, type Snapshot } from '../../state/snapshot.ts'
import { clockOf, type SessionState } from '../advance/session-state.ts'
import type { WholeFile } from '../snapshots/whole-file.ts'
import type { ContextStore } from './context-store.ts'

const refuse = (session: string, why: string, cause?: unknown): never => {
  throw new ContinuoError(
    'REFUSED',
    `Session "${session}" cannot be taken over: ${why.replace(/\.$/, '')}. Nothing was changed; use another copy, or export it again.`,
    { cause },
  )
}

const invalid = (message: string): never => {
  throw new ContinuoError('INVALID', message)
}

/** Held text must be text that this tokenizer can continue from. */
const checkHeld = ({ session, cursor }: Head, tokenizer: Tokenizer | null, vocabSize: number): void => {
  if (cursor.held === '') return
  if (tokenizer === null) {
    invalid(
      `Session "${session}" holds back text that only its tokenizer can read. Open the package with its tokenizer.`,
    )
    return
  }
  const ids: number[] = []
  try {
    ids.push(...tokenizer.flush(cursor.held))
  } catch (error) {
    refuse(session, `the tokenizer cannot read the text that is held back (${messageOf(error)})`, error)
  }
  if (ids.some((id) => id < 0 || id >= vocabSize))
    refuse(session, 'the text that is held back gives tokens outside the vocabulary')
}

/**
 * Clock and memory must count the same tokens, head and memory the same archived blocks: which of them an event may
 * name is judged by the head alone. `tensors`: where the persistents lie in `state`, which may lack its frozen blocks.
 */
const checkMemory = (
  { session, archived = 0, conductor }: Head,
  tensors: readonly LayoutEntry[],
  state: Uint8Array,
  { outerMemory }: ModelInfo,
): void => {
  const there = outerMemory === null ? 0 : counterIn(tensors, state, 'archived')
  if (archived !== there) refuse(session, `it counts ${archived} archived blocks, and its memory ${there}`)
  const tokens = conductor.globalStep - conductor.origin
  const counted = counterIn(tensors, state, 'count')
  if (outerMemory !== null && tokens !== counted)
    refuse(session, `its clock counts ${tokens} tokens in its context, and its memory ${counted}`)
}

/**
 * The engine is the judge of the state: it must take it, and the token after it must leave every number finite. `probe`
 * feeds that token to a copy that nobody else has.
 */
const tryOut = async ({ session, conductor }: Head, model: ModelInfo, probe: () => Promise<unknown>): Promise<void> => {
  const { globalStep, origin } = conductor
  if (model.positions !== null && globalStep - origin >= model.positions) return
  try {
    await probe()
  } catch (error) {
    if (!(error instanceof ContinuoError) || error.code !== 'REFUSED') throw error
    refuse(session, `with the next token its state stops being finite (${error.message})`, error)
  }
}

const PROBE = Int32Array.of(0)

const checkHead = (head: Head, model: ModelInfo, tokenizer: Tokenizer | null): void => {
  const { session, status, conductor, cursor } = head
  checkFits(head, model)
  // The counter of the next draw and the beginning of the context are pulses of the same clock.
  for (const pulse of [cursor.pulse, cursor.rng])
    if (pulse !== conductor.globalStep) throw pulseMismatch(pulse, conductor.globalStep)
  if (conductor.origin > conductor.globalStep) throw pulseMismatch(conductor.origin, conductor.globalStep)
  if (status === 'closed') invalid(`Session "${session}" was closed: there is no memory to go on with.`)
  if (status === 'stopped')
    invalid(`${head.stopped?.reason ?? `Session "${session}" was set aside.`} There is no memory to go on with.`)
  if (conductor.globalStep > LARGEST_IMPORTED_PULSE) {
    invalid(
      `Session "${session}" stands at pulse ${conductor.globalStep}; a session that comes from a file may stand at ${LARGEST_IMPORTED_PULSE} (2^52) at most, so that its clock has room to go on.`,
    )
  }
  const fault = faultOfHead(head, model)
  if (fault !== null) refuse(session, fault)
  checkHeld(head, tokenizer, model.vocabSize)
}

/** The parent of a fork is in another log, like the session's first record. */
const alone = ({ from: _, ...head }: SnapshotHead): SnapshotHead => head

/**
 * The session in a file, if a worker could go on with it. Throws REFUSED where the file is damaged, belongs to another
 * model, or says what cannot be; INVALID where it is whole and no session to go on with (closed, set aside, a clock
 * beyond 2⁵²).
 */
export const admit = async (file: Uint8Array, model: Model, tokenizer: Tokenizer | null): Promise<Snapshot> => {
  const { head, state } = await decodeSnapshot(file, model.layout)
  checkHead(head, model, tokenizer)
  historyIn(head, model.vocabSize)
  checkMemory(head, model.layout.tensors(state), state, model)
  const context = await model
    .openContext(state, clockOf(head))
    .catch((error: unknown) => refuse(head.session, messageOf(error), error))
  try {
    await tryOut(head, model, () => model.process([{ context, tokens: PROBE, nats: false }]))
  } finally {
    context.close()
  }
  return { head: alone(head), state }
}

/** The same of a file that is read by pieces, as a context of the store. */
export const admitFile = async (
  file: WholeFile,
  model: ModelInfo,
  tokenizer: Tokenizer | null,
  contexts: ContextStore,
): Promise<SessionState> => {
  const { head } = file
  await file.verify()
  checkHead(head, model, tokenizer)
  const source = await file.source(model.layout)
  const history = historyIn(head, model.vocabSize)
  const blocks = source.blocks.map((count) => Array.from({ length: count }, (_, run) => ({ run })))
  checkMemory(head, hotTensors(model.layout, source.hot, blocks), source.hot, model)
  const context = contexts.createContext()
  try {
    await context.load(source, clockOf(head)).catch((error: unknown) => refuse(head.session, messageOf(error), error))
    await tryOut(head, model, async () => {
      const copy = await contexts.forkContext(context)
      try {
        await contexts.submit({ context: copy, tokens: PROBE, nats: false })
      } finally {
        copy.close()
      }
    })
    return { head: withoutHistory(alone(head)), context, history }
  } catch (error) {
    context.close()
    throw error
  }
}
