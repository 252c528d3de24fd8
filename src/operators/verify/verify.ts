/**
 * verify: no second truth. Every session is recomputed from its first event with a fresh context, and what the log
 * holds is compared on the way: each generated token and observation, each head that is still there, each snapshot a
 * head names, each dead letter. Where the first events are gone (trimmed, or the session was imported, or was forked
 * from one that is gone) it begins at the oldest state that is still there, and says so. Of a closed session that may
 * be its newest head: then nothing is recomputed. Nothing is written.
 *
 * The recomputation shares the operators with the live stream (it must: they define what an event means) but starts
 * from the events alone; what it is compared with was written by other processes at other times.
 */
import { codeOf, messageOf } from '../../errors.ts'
import { type Head, headDifference, sameHead } from '../../state/head.ts'
import { historyFrom } from '../../state/history.ts'
import { hasTopic, type StoredRecord } from '../../streams/log.ts'
import { countChanged } from '../../streams/partition-count.ts'
import { advance } from '../advance/advance.ts'
import { parentOf, sessionFor } from '../advance/fork.ts'
import { blank, type SessionState } from '../advance/session-state.ts'
import { setAside } from '../advance/set-aside.ts'
import { homesOf, sessionText } from '../pipeline/input.ts'
import { tokenizeEvent } from '../pipeline/tokenize.ts'
import { validateRecord } from '../pipeline/validate.ts'
import { type ContextStore, createContextStore } from '../sessions/context-store.ts'
import { firstGap, forkEvents, withAncestors } from '../snapshots/ancestors.ts'
import { isCancel, type Step, type Tokenized } from '../types.ts'
import {
  type Audit,
  type Ended,
  noTotals,
  type Subject,
  silenced,
  type Totals,
  type Verification,
  type VerifyOptions,
} from './audit.ts'
import { endedIn, isTelling, noteEnded, readGoneCancels, TELL_ENDS, verifyCancel, verifyRequest } from './cancelled.ts'
import {
  compareDeadLetter,
  compareDeletions,
  compareOutput,
  conclude,
  missingDeletion,
  missingHead,
  outlived,
} from './compare.ts'
import { checkBlobs, nothingHashed, readSnapshots, snapshotDifference } from './snapshots.ts'
import { beginAtState, beginWithoutParent, giveUp, isGone, isOfLostLife, leaveOut, skipTo } from './start.ts'
import { verifyStatic } from './static.ts'
import {
  type At,
  all,
  type Found,
  keyText,
  noEvent,
  OUTPUTS,
  placedIn,
  placeOf,
  readDeadLetters,
  readDeletions,
  readState,
} from './stored.ts'

export type { Verification, VerifyOptions } from './audit.ts'
export type { Finding } from './stored.ts'

/** Sessions recomputed in one pass over a partition: bounds the contexts in memory. */
const SESSIONS_A_PASS = 256

const createSubject = async (audit: Audit, list: readonly At<Head>[], isSilent: boolean): Promise<Subject> => {
  const { options, partition, found } = audit
  const heads = new Map<string, At<Head>[]>()
  for (const each of list) heads.set(placeOf(each.what), [...(heads.get(placeOf(each.what)) ?? []), each])
  return {
    target: list.at(-1)!.what,
    heads,
    snapshots: await readSnapshots(options.log, options.names, partition, audit.model.layout, list, found),
    outputs: { tokens: [], observations: [], alerts: [] },
    session: null,
    hashed: nothingHashed(audit.model.layout),
    isLost: false,
    finished: false,
    begins: 0,
    isSilent,
  }
}

/** The subjects of a pass: these sessions, and those whose forks they are, of which nothing is compared. */
const createSubjects = async (
  audit: Audit,
  ids: readonly string[],
  needed: ReadonlyMap<string, number>,
): Promise<Map<string, Subject>> => {
  const { options, partition, stored } = audit
  const subjects = new Map<string, Subject>()
  for (const id of ids) subjects.set(id, await createSubject(audit, stored.heads.get(id)!, false))
  for (const id of needed.keys()) {
    const list = stored.heads.get(id)
    if (list !== undefined && !subjects.has(id)) subjects.set(id, await createSubject(silenced(audit), list, true))
  }
  for (const topic of audit.outputs) {
    for await (const record of all(options.log, options.names[topic], partition)) {
      const subject = subjects.get(keyText(record))
      if (subject === undefined) continue
      if (placedIn(record) === null) {
        if (!subject.isSilent) noEvent(audit.found, topic, options.names[topic], record)
        continue
      }
      subject.outputs[topic].push(record)
      if (isTelling(topic)) noteEnded(audit, record)
    }
  }
  return subjects
}

/** One record of a session under verification. */
const verifyRecord = async (
  audit: Audit,
  subject: Subject,
  record: StoredRecord,
  subjects: ReadonlyMap<string, Subject>,
): Promise<void> => {
  const { engine } = audit
  const valid = validateRecord(record, audit.validation)
  if (valid.kind === 'rejected') return
  if (isCancel(valid) && record.offset > (audit.deleted.get(valid.session) ?? -1)) verifyCancel(audit, valid)
  if (isCancel(valid) || record.offset < subject.begins) return
  const { cursor } = subject.session?.head ?? {}
  if (cursor !== undefined && (record.offset < cursor.offset || (record.offset === cursor.offset && cursor.complete)))
    return
  const parent = subjects.get(parentOf(valid) ?? '')
  if (isGone(audit, parentOf(valid), parent, record)) {
    await beginWithoutParent(audit, subject, record)
    return
  }
  const others = { newest: (id: string) => subjects.get(id)?.session?.head, homes: audit.homes }
  const out = tokenizeEvent(valid, subject.session?.head, engine.tokenizer, audit.model, others)
  const isLost = isOfLostLife(subject, record, out.kind !== 'rejected' && out.parent !== undefined)
  // What a session would refuse that begins here, one took that went on.
  if (out.kind === 'rejected' && isLost && !audit.deadLetters.has(record.offset) && audit.isDone(record.offset))
    skipTo(subject, subject.target.born, audit)
  else if (out.kind === 'rejected') compareDeadLetter(audit, record, out)
  else if (out.event.type === 'delete') missingDeletion(audit, record)
  else if (isLost) skipTo(subject, subject.target.born, audit)
  else if (!subject.finished) await recomputeOrGiveUp(audit, subject, out, parent)
  else if (audit.isDone(record.offset) && record.offset > subject.target.cursor.offset) missingHead(audit, record)
}

/** A fork whose session has no head: it must have been refused. */
const verifyRefused = (audit: Audit, record: StoredRecord, subjects: ReadonlyMap<string, Subject>): void => {
  const valid = validateRecord(record, audit.validation)
  const parent = valid.kind === 'valid' ? subjects.get(parentOf(valid) ?? '') : undefined
  if (valid.kind === 'rejected' || parent === undefined || isGone(audit, parentOf(valid), parent, record)) return
  if (record.offset <= (audit.deleted.get(valid.session) ?? -1)) return
  const others = { newest: (id: string) => subjects.get(id)?.session?.head, homes: audit.homes }
  const out = tokenizeEvent(valid, undefined, audit.engine.tokenizer, audit.model, others)
  if (out.kind === 'rejected') compareDeadLetter(audit, record, out)
  else if (audit.isDone(record.offset)) missingHead(audit, record)
}

const verifySessions = async (audit: Audit, ids: readonly string[]): Promise<void> => {
  const { options, partition, begin, end, stored, forks } = audit
  const { log, names } = options
  const quiet = silenced(audit)
  const needed = withAncestors(
    forks,
    ids.map((id) => [id, Number.POSITIVE_INFINITY]),
  )
  const forkAt = new Map(forks.map((fork) => [fork.offset, fork]))
  let subjects = new Map<string, Subject>()
  try {
    subjects = await createSubjects(audit, ids, needed)
    for (const [id, subject] of subjects) {
      const deletion = audit.deleted.get(id)
      if (deletion === undefined) continue
      if (subject.target.born <= deletion) outlived(subject.isSilent ? quiet : audit, id, deletion)
      leaveOut(subject, deletion + 1)
    }
    for (const subject of subjects.values()) {
      // Of an earlier life that was closed and forked anew, the first events are gone.
      if (subject.target.from !== undefined && subject.target.born >= begin && subject.begins < begin)
        leaveOut(subject, begin)
      if (subject.target.born < begin) await beginAtState(subject, subject.isSilent ? quiet : audit)
    }
    for await (const batch of log.read(names.chunks, partition, begin, { until: end, undecodable: true })) {
      for (const record of batch.records) {
        const id = sessionText(record, audit.validation.input)
        if (audit.firsts.get(id) === Number.POSITIVE_INFINITY) audit.firsts.set(id, record.offset)
        const subject = subjects.get(id)
        const fork = forkAt.get(record.offset)
        const parent = fork && subjects.get(fork.parent)
        if (subject !== undefined) {
          if (record.offset < needed.get(id)!)
            await verifyRecord(subject.isSilent ? quiet : audit, subject, record, subjects)
        } else if (parent?.isSilent === false && !stored.heads.has(id) && options.session === undefined)
          verifyRefused(audit, record, subjects)
        // No fork of this pass follows that needs it.
        if (parent?.isSilent === true && needed.get(fork!.parent) === record.offset) {
          parent.session?.context.close()
          subjects.delete(fork!.parent)
        }
      }
      options.onProgress?.({ partition, offset: batch.next, end })
    }
    for (const [id, subject] of subjects) if (!subject.isSilent) conclude(audit, id, subject)
  } finally {
    for (const { session } of subjects.values()) session?.context.close()
  }
}

/**
 * The steps of one event. Where the log's dead letter says that the event set its session aside because stored state
 * was lost, that one step: a loss does not follow from the events, so it is taken from the dead letter.
 */
async function* steps(
  { deadLetters, engine }: Audit,
  session: SessionState,
  work: Tokenized,
  fresh: boolean,
): AsyncGenerator<Step> {
  const letter = deadLetters.get(work.record.offset)
  const after = Number(/^storage\/(\d+)$/.exec(letter?.stopped ?? '')?.[1])
  if ((fresh && work.parent === undefined) || letter === undefined || Number.isNaN(after)) {
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
  await blank(engine, session, aside.head)
  yield aside
}

/** Runs one event through the session and compares what its steps say with what the log says. */
const recompute = async (
  audit: Audit,
  subject: Subject,
  work: Tokenized,
  parent: Subject | undefined,
): Promise<void> => {
  const { totals, found } = audit
  totals.events += 1
  const { session, fresh } = await sessionFor(
    work,
    subject.session ?? undefined,
    audit.model,
    parent?.session ?? undefined,
  )
  subject.session = session
  const { target } = subject
  const ends = verifyRequest(audit, work)
  for await (const step of steps(audit, session, work, fresh)) {
    ends(step)
    for (const output of step.outputs) {
      if (output.to === 'deadletters') compareDeadLetter(audit, step.record, output)
      else compareOutput(audit, subject, output, step)
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
      const message = sameHead(what.head, step.head!)
        ? await snapshotDifference(what, session, audit.model.layout, step.head!, subject.hashed)
        : `The snapshot has another head than the recomputation: ${headDifference(what.head, step.head!)}.`
      if (message !== null) found({ kind: 'snapshot', session: work.session, where, message })
    }
    subject.heads.delete(place)
    subject.snapshots.delete(place)
    if (place === placeOf(target)) {
      subject.finished = true
      return
    }
  }
}

/** A block that is lost while it sleeps is a finding of its session alone, which was made when it was wanted. */
const recomputeOrGiveUp = async (
  audit: Audit,
  subject: Subject,
  work: Tokenized,
  parent: Subject | undefined,
): Promise<void> => {
  try {
    await recompute(audit, subject, work, parent)
  } catch (error) {
    if (!subject.isLost) throw error
    giveUp(subject)
  }
}

const verifyPartition = async (
  options: VerifyOptions,
  contexts: ContextStore,
  [partition, partitions]: readonly [partition: number, of: number],
  totals: Totals,
): Promise<void> => {
  const { log, names, model, tokenizer, format } = options
  const found: Found = (finding) => totals.findings.push({ partition, ...finding })
  const stored = await readState(log, names, partition, found)
  const { cursor } = stored
  const { begin, end } = await log.bounds(names.chunks, partition)
  const input = cursor?.input
  const validation = { format, input, vocabSize: model.vocabSize, readsText: tokenizer !== null }
  const forks = await forkEvents(log, names.chunks, partition, [begin, end], validation)
  const hasAlerts = await hasTopic(log, names.alerts)
  const told = new Map<number, Ended>()
  const deleted = await readDeletions(log, names, partition)
  const audit: Audit = {
    options,
    partition,
    homes: homesOf(input, partitions),
    model: { ...model, createContext: contexts.createContext, forkContext: contexts.forkContext },
    engine: {
      model,
      tokenizer,
      submit: contexts.submit,
      historyFrom: historyFrom(cursor),
      endedBy: endedIn(stored, told),
    },
    validation,
    outputs: OUTPUTS.filter((topic) => topic !== 'alerts' || hasAlerts),
    stored,
    deadLetters: await readDeadLetters(log, names, partition),
    told,
    forks,
    goneCancels: (
      await Promise.all(TELL_ENDS.map((topic) => readGoneCancels(all(log, names[topic], partition), deleted, begin)))
    ).flat(),
    deleted,
    firsts: new Map(forks.map(({ parent }) => [parent, Number.POSITIVE_INFINITY])),
    gap: forks.length === 0 ? Number.POSITIVE_INFINITY : await firstGap(log, names.chunks, partition, [begin, end]),
    begin,
    end,
    isDone: (offset) =>
      cursor !== null && (offset < cursor.offset || cursor.done.some(([from, to]) => offset >= from && offset < to)),
    totals,
    found,
  }
  totals.deleted += audit.deleted.size
  await compareDeletions(audit)
  const wanted = [...stored.heads.keys()].filter((id) => options.session === undefined || options.session === id)
  for (let at = 0; at < wanted.length; at += SESSIONS_A_PASS) {
    await verifySessions(audit, wanted.slice(at, at + SESSIONS_A_PASS))
  }
  if (options.blobs === true) {
    const right = new Set<string>()
    for (const id of wanted) await checkBlobs(log, names, partition, stored.heads.get(id)!.at(-1)!.what, right, found)
    totals.blobsRead += right.size
  }
  totals.sessions += wanted.length
  if (options.session === undefined) await verifyStatic(audit)
}

/** Throws only when the log cannot be read; what does not match is a finding. */
export const verifyLog = async (options: VerifyOptions): Promise<Verification> => {
  const totals = noTotals()
  const { log, names } = options
  const [now, before] = await Promise.all([log.partitions(names.chunks), log.partitions(names.state)])
  if (now !== before) {
    const { message } = countChanged({ input: names.chunks, now, before, witness: `the state in ${names.state}` })
    totals.findings.push({ kind: 'input', session: null, partition: before, where: names.chunks, message })
  }
  const contexts = createContextStore(options.model, { blocks: options.blocks })
  try {
    for (let partition = 0; partition < Math.min(now, before); partition += 1) {
      try {
        await verifyPartition(options, contexts, [partition, before], totals)
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
  } finally {
    await contexts.close()
  }
  return totals
}
