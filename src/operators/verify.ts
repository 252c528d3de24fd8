/**
 * verify: no second truth. Every session is recomputed from its first event with a fresh context, and what the log holds is
 * compared on the way: each generated token and observation, each head that is still there, each snapshot a head names, each
 * dead letter. Where the first events are gone (trimmed, or the session was imported) it begins at the oldest snapshot that is
 * still there, and says so. Nothing is written.
 *
 * The recomputation shares the operators with the live stream (it must: they define what an event means) but starts from
 * the events alone; what it is compared with was written by other processes at other times.
 */
import type { Cause } from '../../topics/common.ts'
import { codeOf, messageOf } from '../errors.ts'
import { type Head, headDifference, sameHead } from '../state/head.ts'
import { countChanged } from '../streams/grown.ts'
import type { StoredRecord } from '../streams/log.ts'
import { textOf } from '../text.ts'
import { advance, blank, initialHead, type SessionState } from './advance.ts'
import { setAside } from './set-aside.ts'
import { tokenizeEvent } from './tokenize.ts'
import type { Step, Tokenized } from './types.ts'
import { validateRecord } from './validate.ts'
import { compareDeadLetter, compareOutput, conclude, missingHead } from './verify-compare.ts'
import type { Scene, Subject, Totals, Verification, VerifyOptions } from './verify-scene.ts'
import {
  type At,
  all,
  type Found,
  keyText,
  placeOf,
  readDeadLetters,
  readSnapshots,
  readState,
} from './verify-stored.ts'

export type { Verification, VerifyOptions } from './verify-scene.ts'
export type { Finding } from './verify-stored.ts'

/** Sessions recomputed in one pass over a partition: bounds the contexts in memory. */
const SESSIONS_A_PASS = 256

const NOTHING = new Uint8Array(0)

const startOf =
  (pulse: number, offset: number, complete: boolean) =>
  (record: StoredRecord): boolean => {
    const value = JSON.parse(textOf(record.value ?? NOTHING)) as {
      cause: Cause
      toPulse?: number
      pulse?: number
      finish?: string | null
    }
    if (value.cause.offset !== offset) return value.cause.offset > offset
    // The end of a generation may come without tokens, at the pulse where the head before it stands.
    return !complete && ((value.toPulse ?? value.pulse ?? 0) > pulse || typeof value.finish === 'string')
  }

/** Where the first events are gone: the oldest snapshot from which the events that are left lead on. */
const beginAtSnapshot = (subject: Subject, { begin, options, totals, found }: Scene): void => {
  const { target } = subject
  const usable = [...subject.snapshots.values()]
    .flat()
    .map(({ what }) => what)
    .filter(({ head }) => head.cursor.offset + (head.cursor.complete ? 1 : 0) >= begin)
    .sort((a, b) => a.head.cursor.pulse - b.head.cursor.pulse)
  const base = usable[0]
  if (base === undefined) {
    found({
      kind: 'input',
      session: target.session,
      where: options.names.chunks,
      message: `Session "${target.session}" began before offset ${begin}, where the log now begins, and no snapshot is left to start from. It cannot be recomputed.`,
    })
    subject.finished = true
    return
  }
  const { head, state } = base
  const context = options.model.createContext()
  const { globalStep, origin } = head.conductor
  context.restore(state, { pulse: BigInt(globalStep), origin: BigInt(origin), chain: head.chain })
  subject.session = { head, context }
  const later = startOf(head.cursor.pulse, head.cursor.offset, head.cursor.complete)
  for (const topic of ['tokens', 'observations'] as const) subject.outputs[topic] = subject.outputs[topic].filter(later)
  for (const map of [subject.heads, subject.snapshots]) {
    for (const [place] of map) {
      const [offset, token] = place.split('/').map(Number) as [number, number]
      if (offset > head.cursor.offset || (offset === head.cursor.offset && token > head.cursor.token)) continue
      // The end of an event may come without a token of its own.
      const ends = place === placeOf({ ...head, cursor: { ...head.cursor, complete: true } })
      if (!ends || head.cursor.complete) map.delete(place)
    }
  }
  totals.partial.push({ session: target.session, fromPulse: globalStep })
  if (placeOf(head) === placeOf(target)) subject.finished = true
}

const createSubject = async (scene: Scene, list: readonly At<Head>[]): Promise<Subject> => {
  const { options, partition, found } = scene
  const heads = new Map<string, At<Head>[]>()
  for (const each of list) heads.set(placeOf(each.what), [...(heads.get(placeOf(each.what)) ?? []), each])
  return {
    target: list.at(-1)!.what,
    heads,
    snapshots: await readSnapshots(options.log, options.names, partition, options.model.layout, list, found),
    outputs: { tokens: [], observations: [] },
    session: null,
    finished: false,
  }
}

const verifySessions = async (scene: Scene, ids: readonly string[]): Promise<void> => {
  const { options, partition, engine, begin, end } = scene
  const { log, names } = options
  const subjects = new Map<string, Subject>()
  try {
    for (const id of ids) subjects.set(id, await createSubject(scene, scene.stored.heads.get(id)!))
    for (const topic of ['tokens', 'observations'] as const) {
      for await (const record of all(log, names[topic], partition))
        subjects.get(keyText(record))?.outputs[topic].push(record)
    }
    for (const subject of subjects.values()) if (subject.target.born < begin) beginAtSnapshot(subject, scene)
    for await (const batch of log.read(names.chunks, partition, begin, { until: end, undecodable: true })) {
      for (const record of batch.records) {
        const subject = subjects.get(keyText(record))
        if (subject === undefined) continue
        const valid = validateRecord(record, scene.validation)
        if (valid.kind === 'rejected') continue
        const { cursor } = subject.session?.head ?? {}
        if (
          cursor !== undefined &&
          (record.offset < cursor.offset || (record.offset === cursor.offset && cursor.complete))
        ) {
          continue
        }
        const out = tokenizeEvent(valid, subject.session?.head, engine.tokenizer, options.model)
        if (out.kind === 'rejected') compareDeadLetter(scene, record, out)
        else if (!subject.finished) await recompute(scene, subject, out)
        else if (scene.isDone(record.offset) && record.offset > subject.target.cursor.offset) missingHead(scene, record)
      }
      options.onProgress?.({ partition, offset: batch.next, end })
    }
    for (const [id, subject] of subjects) conclude(scene, id, subject)
  } finally {
    for (const { session } of subjects.values()) session?.context.close()
  }
}

/**
 * The steps of one event, or the one that set its session aside because stored state was lost: that follows from nothing in the
 * events, so the dead letter that says so is obeyed.
 */
async function* steps(
  { deadLetters, engine }: Scene,
  session: SessionState,
  work: Tokenized,
  fresh: boolean,
): AsyncGenerator<Step> {
  const letter = deadLetters.get(work.record.offset)
  const after = Number(/^storage\/(\d+)$/.exec(letter?.stopped ?? '')?.[1])
  if (fresh || letter === undefined || Number.isNaN(after)) {
    yield* advance(session, work, fresh, engine)
    return
  }
  if (after > 0) {
    for await (const step of advance(session, work, fresh, engine)) {
      yield step
      if (session.head.cursor.token >= after) break
    }
  }
  const aside = setAside(session.head, work, { cause: 'storage', reason: letter.reason }, engine.tokenizer !== null)
  session.head = aside.head
  blank(session.context, aside.head)
  yield aside
}

/** Runs one event through the session and compares what its steps say with what the log says. */
const recompute = async (scene: Scene, subject: Subject, work: Tokenized): Promise<void> => {
  const { options, totals, found } = scene
  const fresh = subject.session === null
  totals.events += 1
  if (subject.session === null) {
    const context = options.model.createContext()
    subject.session = { head: initialHead(work, options.model, context.chain), context }
  }
  const { session, target } = subject
  for await (const step of steps(scene, session, work, fresh)) {
    for (const output of step.outputs) {
      if (output.to === 'deadletters') compareDeadLetter(scene, step.record, output)
      else compareOutput(scene, subject, output, step)
    }
    const place = placeOf(step.head!)
    for (const { what, where } of subject.heads.get(place) ?? []) {
      totals.headsCompared += 1
      if (sameHead(what, step.head!)) continue
      const message = `The head differs from the recomputation: ${headDifference(what, step.head!)}.`
      found({ kind: 'head', session: work.session, where, message })
    }
    for (const { what, where } of subject.snapshots.get(place) ?? []) {
      totals.snapshotsCompared += 1
      if (sameHead(what.head, step.head!) && Buffer.compare(what.state, session.context.serialize()) === 0) continue
      found({
        kind: 'snapshot',
        session: work.session,
        where,
        message: 'The snapshot differs from the recomputed state.',
      })
    }
    subject.heads.delete(place)
    subject.snapshots.delete(place)
    if (place === placeOf(target)) {
      subject.finished = true
      return
    }
  }
}

/** Events that are rejected whatever their session is, and sessions that should have a head and have none. */
const verifyStatic = async (scene: Scene): Promise<void> => {
  const { options, partition, stored, begin, end, isDone, found } = scene
  const { log, names } = options
  for await (const batch of log.read(names.chunks, partition, begin, { until: end, undecodable: true })) {
    for (const record of batch.records) {
      const valid = validateRecord(record, scene.validation)
      if (valid.kind === 'rejected') compareDeadLetter(scene, record, valid)
      else if (!stored.heads.has(valid.session)) {
        const out = tokenizeEvent(valid, undefined, scene.engine.tokenizer, options.model)
        if (out.kind === 'rejected') compareDeadLetter(scene, record, out)
        else if (isDone(record.offset)) missingHead(scene, record)
      }
    }
  }
  for (const topic of ['tokens', 'observations'] as const) {
    for await (const record of all(log, names[topic], partition)) {
      const session = keyText(record)
      if (stored.heads.has(session)) continue
      found({
        kind: topic === 'tokens' ? 'token' : 'observation',
        session,
        where: `${names[topic]}, partition ${partition}, offset ${record.offset}`,
        message: 'The state topic holds no head of this session.',
      })
    }
  }
}

const verifyPartition = async (options: VerifyOptions, partition: number, totals: Totals): Promise<void> => {
  const { log, names, model, tokenizer, format } = options
  const found: Found = (finding) => totals.findings.push({ partition, ...finding })
  const stored = await readState(log, names, partition, found)
  const { cursor } = stored
  const scene: Scene = {
    options,
    partition,
    engine: { model, tokenizer, submit: model.submit },
    validation: { format, vocabSize: model.vocabSize, readsText: tokenizer !== null },
    stored,
    deadLetters: await readDeadLetters(log, names, partition),
    ...(await log.bounds(names.chunks, partition)),
    isDone: (offset) =>
      cursor !== null && (offset < cursor.offset || cursor.done.some(([from, to]) => offset >= from && offset < to)),
    totals,
    found,
  }
  const wanted = [...stored.heads.keys()].filter((id) => options.session === undefined || options.session === id)
  for (let at = 0; at < wanted.length; at += SESSIONS_A_PASS) {
    await verifySessions(scene, wanted.slice(at, at + SESSIONS_A_PASS))
  }
  totals.sessions += wanted.length
  if (options.session === undefined) await verifyStatic(scene)
}

/** Throws only when the log cannot be read; what does not match is a finding. */
export const verifyLog = async (options: VerifyOptions): Promise<Verification> => {
  const totals: Totals = {
    sessions: 0,
    partial: [],
    events: 0,
    tokensCompared: 0,
    headsCompared: 0,
    snapshotsCompared: 0,
    findings: [],
  }
  const { log, names } = options
  const [now, before] = await Promise.all([log.partitions(names.chunks), log.partitions(names.state)])
  if (now !== before) {
    const { message } = countChanged({ input: names.chunks, now, before, witness: `the state in ${names.state}` })
    totals.findings.push({ kind: 'input', session: null, partition: before, where: names.chunks, message })
  }
  for (let partition = 0; partition < Math.min(now, before); partition += 1) {
    try {
      await verifyPartition(options, partition, totals)
    } catch (error) {
      if (codeOf(error) !== 'REFUSED' && codeOf(error) !== 'POSITION') throw error
      totals.findings.push({
        kind: 'input',
        session: null,
        partition,
        where: options.names.chunks,
        message: messageOf(error),
      })
    }
  }
  return totals
}
