/**
 * verify: no second truth. Every session is recomputed from its first event with a fresh context, and what the log holds is
 * compared on the way: each generated token and observation, each head that is still there, each snapshot a head names, each
 * dead letter. Nothing is written.
 *
 * The recomputation shares the operators with the live stream (it must: they define what an event means) but starts from
 * the events alone; what it is compared with was written by other processes at other times.
 */
import { isDeepStrictEqual } from 'node:util'
import { DEAD_LETTER_HEADERS } from '../../topics/deadletters.ts'
import type { TopicNames } from '../../topics/index.ts'
import type { Context, Model } from '../engine/types.ts'
import { codeOf, messageOf } from '../errors.ts'
import { type Head, headDifference, sameHead, unseal } from '../state/head.ts'
import { decodeSnapshot } from '../state/snapshot.ts'
import type { EventLog, StoredRecord } from '../streams/log.ts'
import { advance, newborn, type Session } from './advance.ts'
import { createBatcher } from './batcher.ts'
import { encodeOutput } from './emit.ts'
import { readSnapshot } from './snapshots.ts'
import { type Gate, gateOf, type Tokenizer, tokenizeEvent } from './tokenize.ts'
import type { Output, Step, Tokenized } from './types.ts'
import { type InputFormat, validateRecord } from './validate.ts'

export interface VerifyOptions {
  readonly log: EventLog
  readonly names: TopicNames
  readonly model: Model
  readonly tokenizer: Tokenizer | null
  readonly format: InputFormat
  /** Only this session. */
  readonly session?: string
  /** Told now and then how far it is. */
  readonly onProgress?: (progress: {
    readonly partition: number
    readonly offset: number
    readonly end: number
  }) => void
}

export interface Finding {
  readonly kind: 'token' | 'observation' | 'head' | 'snapshot' | 'deadletter' | 'input'
  readonly session: string | null
  readonly partition: number
  /** Topic and offset, or what else says where. */
  readonly where: string
  readonly message: string
}

export interface Verification {
  readonly sessions: number
  readonly events: number
  readonly tokensCompared: number
  readonly headsCompared: number
  readonly snapshotsCompared: number
  readonly findings: readonly Finding[]
}

/** Sessions recomputed in one pass over a partition: bounds the contexts in memory. */
const SESSIONS_A_PASS = 256

const text = new TextDecoder()
const place = (head: Head): string => `${head.cursor.offset}/${head.cursor.token}/${head.cursor.complete}`

interface Subject {
  readonly target: Head
  readonly heads: Map<string, { head: Head; where: string }[]>
  readonly snapshots: Map<string, { state: Uint8Array; where: string }[]>
  /** What the output topics hold for the session, in order. */
  readonly outputs: { tokens: StoredRecord[]; observations: StoredRecord[] }
  session: Session | null
  gate: Gate
  finished: boolean
}

const keyText = (record: StoredRecord): string => (record.key === null ? '' : text.decode(record.key))

async function* all(log: EventLog, topic: string, partition: number): AsyncGenerator<StoredRecord> {
  const { begin, end } = await log.bounds(topic, partition)
  for await (const batch of log.read(topic, partition, begin, { until: end })) yield* batch.records
}

const verifyPartition = async (options: VerifyOptions, partition: number, totals: Totals): Promise<void> => {
  const { log, names } = options
  const found = (finding: Omit<Finding, 'partition'>): void => {
    totals.findings.push({ partition, ...finding })
  }

  // What the state topic holds: every head that is still there, the newest of each session last.
  const heads = new Map<string, { head: Head; where: string }[]>()
  for await (const record of all(log, names.state, partition)) {
    const where = `${names.state}, partition ${partition}, offset ${record.offset}`
    try {
      const state = unseal(where, record.key, record.value, record.headers)
      if (state.type !== 'head') continue
      const list = heads.get(state.session) ?? []
      list.push({ head: state, where })
      heads.set(state.session, list)
    } catch (error) {
      found({ kind: 'head', session: keyText(record) || null, where, message: messageOf(error) })
    }
  }
  const wanted = [...heads.keys()].filter((id) => options.session === undefined || options.session === id)
  const letters = new Map<number, StoredRecord>()
  for await (const record of all(log, names.deadletters, partition)) {
    const at = record.headers.findLast(([name]) => name === DEAD_LETTER_HEADERS.offset)?.[1]
    if (at !== undefined) letters.set(Number(text.decode(at)), record)
  }
  for (let at = 0; at < wanted.length; at += SESSIONS_A_PASS) {
    await verifySessions(options, partition, wanted.slice(at, at + SESSIONS_A_PASS), heads, letters, totals, found)
  }
  totals.sessions += wanted.length
  if (options.session === undefined) await findOrphans(options, partition, heads, found)
}

/** Outputs of sessions that have no head: the head was removed, or the output was never caused. */
const findOrphans = async (
  { log, names }: VerifyOptions,
  partition: number,
  heads: ReadonlyMap<string, unknown>,
  found: Found,
): Promise<void> => {
  for (const topic of ['tokens', 'observations'] as const) {
    for await (const record of all(log, names[topic], partition)) {
      const session = keyText(record)
      if (heads.has(session)) continue
      found({
        kind: topic === 'tokens' ? 'token' : 'observation',
        session,
        where: `${names[topic]}, partition ${partition}, offset ${record.offset}`,
        message: 'The state topic holds no head of this session.',
      })
    }
  }
}

interface Totals {
  sessions: number
  events: number
  tokensCompared: number
  headsCompared: number
  snapshotsCompared: number
  findings: Finding[]
}

type Found = (finding: Omit<Finding, 'partition'>) => void

/** Fetches every snapshot that a head of the session names and that was not trimmed. */
const collectSnapshots = async (
  { log, names, model }: VerifyOptions,
  partition: number,
  heads: readonly { head: Head; where: string }[],
  found: Found,
): Promise<Subject['snapshots']> => {
  const snapshots: Subject['snapshots'] = new Map()
  const { begin } = await log.bounds(names.snapshots, partition)
  const seen = new Set<number>()
  const newest = heads.at(-1)?.head
  for (const { head } of [...heads].reverse()) {
    const ref = head.snapshot
    if (ref === null || seen.has(ref.first) || (ref.first < begin && head !== newest)) continue
    seen.add(ref.first)
    const where = `${names.snapshots}, partition ${partition}, offsets ${ref.first} to ${ref.last}`
    try {
      const { head: inside, state } = decodeSnapshot(
        await readSnapshot(log, names.snapshots, partition, head),
        model.layout,
      )
      const list = snapshots.get(place(inside)) ?? []
      list.push({ state, where })
      snapshots.set(place(inside), list)
    } catch (error) {
      found({ kind: 'snapshot', session: head.session, where, message: messageOf(error) })
    }
  }
  return snapshots
}

const verifySessions = async (
  options: VerifyOptions,
  partition: number,
  ids: readonly string[],
  heads: ReadonlyMap<string, { head: Head; where: string }[]>,
  letters: ReadonlyMap<number, StoredRecord>,
  totals: Totals,
  found: Found,
): Promise<void> => {
  const { log, names, model, tokenizer } = options
  const subjects = new Map<string, Subject>()
  for (const id of ids) {
    const list = heads.get(id)!
    const target = list.at(-1)!.head
    const places = new Map<string, { head: Head; where: string }[]>()
    for (const each of list) places.set(place(each.head), [...(places.get(place(each.head)) ?? []), each])
    subjects.set(id, {
      target,
      heads: places,
      snapshots: await collectSnapshots(options, partition, list, found),
      outputs: { tokens: [], observations: [] },
      session: null,
      gate: gateOf(undefined),
      finished: false,
    })
  }
  for (const topic of ['tokens', 'observations'] as const) {
    for await (const record of all(log, names[topic], partition))
      subjects.get(keyText(record))?.outputs[topic].push(record)
  }

  const engine = { model, tokenizer, process: createBatcher(model).process }
  const validation = { format: options.format, vocabSize: model.vocabSize, readsText: tokenizer !== null }
  const { begin, end } = await log.bounds(names.chunks, partition)
  for (const [id, subject] of subjects) {
    if (subject.target.born >= begin) continue
    found({
      kind: 'input',
      session: id,
      where: `${names.chunks}, partition ${partition}`,
      message: `Session "${id}" began at offset ${subject.target.born}; the log now begins at ${begin}. It cannot be recomputed from its events.`,
    })
    subject.finished = true
  }
  try {
    for await (const batch of log.read(names.chunks, partition, begin, { until: end })) {
      for (const record of batch.records) {
        const subject = subjects.get(keyText(record))
        if (subject === undefined || subject.finished) continue
        totals.events += 1
        const valid = validateRecord(record, validation)
        const { out, gate } =
          valid.kind === 'rejected' ? { out: valid, gate: subject.gate } : tokenizeEvent(valid, subject.gate, tokenizer)
        subject.gate = gate
        if (out.kind === 'rejected') {
          compareLetter(record, out.reason, letters, names, found, keyText(record))
          continue
        }
        await recompute(subject, out, model, engine, names, totals, found)
      }
      options.onProgress?.({ partition, offset: batch.next, end })
    }
    for (const [id, subject] of subjects) conclude(id, subject, names, partition, found)
  } finally {
    for (const { session } of subjects.values()) session?.context.close()
  }
}

const compareLetter = (
  record: StoredRecord,
  reason: string,
  letters: ReadonlyMap<number, StoredRecord>,
  names: TopicNames,
  found: Found,
  session: string,
): void => {
  const letter = letters.get(record.offset)
  const where = `${names.chunks}, offset ${record.offset}`
  if (letter === undefined) {
    found({
      kind: 'deadletter',
      session,
      where,
      message: `The event was rejected ("${reason}") and no dead letter holds it.`,
    })
    return
  }
  const parted = letter.headers.some(([name]) => name === DEAD_LETTER_HEADERS.part)
  if (!parted && !isDeepStrictEqual(Buffer.from(letter.value ?? []), Buffer.from(record.value ?? []))) {
    found({ kind: 'deadletter', session, where, message: 'The dead letter does not hold the bytes of the event.' })
  }
}

/** Runs one event through the session and compares what its steps say with what the log says. */
const recompute = async (
  subject: Subject,
  work: Tokenized,
  model: Model,
  engine: Parameters<typeof advance>[3],
  names: TopicNames,
  totals: Totals,
  found: Found,
): Promise<void> => {
  const fresh = subject.session === null
  if (subject.session === null) {
    const context: Context = model.createContext()
    subject.session = { head: newborn(work, model, context.chain), context }
  }
  const { session, target } = subject
  for await (const step of advance(session, work, fresh, engine)) {
    for (const output of step.outputs) compareOutput(subject, output, step, names, totals, found)
    const at = place(step.head!)
    for (const { head, where } of subject.heads.get(at) ?? []) {
      totals.headsCompared += 1
      if (!sameHead(head, step.head!)) {
        found({
          kind: 'head',
          session: work.session,
          where,
          message: `The head differs from the recomputation: ${headDifference(head, step.head!)}.`,
        })
      }
    }
    for (const { state, where } of subject.snapshots.get(at) ?? []) {
      totals.snapshotsCompared += 1
      if (Buffer.compare(state, session.context.serialize()) !== 0) {
        found({
          kind: 'snapshot',
          session: work.session,
          where,
          message: 'The snapshot differs from the recomputed state.',
        })
      }
    }
    subject.heads.delete(at)
    subject.snapshots.delete(at)
    if (at === place(target)) {
      subject.finished = true
      return
    }
  }
}

const compareOutput = (
  subject: Subject,
  output: Output,
  step: Step,
  names: TopicNames,
  totals: Totals,
  found: Found,
): void => {
  if (output.to === 'deadletters') return
  const kind = output.to === 'tokens' ? 'token' : 'observation'
  const session = step.session
  const stored = subject.outputs[output.to].shift()
  const cause = `${step.record.topic}, offset ${step.record.offset}`
  if (stored === undefined) {
    found({ kind, session, where: cause, message: `${names[output.to]} lacks an event that this input caused.` })
    return
  }
  if (output.to === 'tokens') totals.tokensCompared += output.value.ids.length
  const [expected] = encodeOutput(output, step.record, names)
  if (Buffer.compare(stored.value ?? new Uint8Array(0), expected!.value!) === 0) return
  found({
    kind,
    session,
    where: `${names[output.to]}, partition ${stored.partition}, offset ${stored.offset}`,
    message: `The event differs from the recomputation: expected ${text.decode(expected!.value!).slice(0, 400)}, found ${text.decode(stored.value ?? new Uint8Array(0)).slice(0, 400)}`,
  })
}

/** What is left over was never caused. */
const conclude = (id: string, subject: Subject, names: TopicNames, partition: number, found: Found): void => {
  const { target } = subject
  if (!subject.finished) {
    found({
      kind: 'head',
      session: id,
      where: `${names.state}, partition ${partition}`,
      message: `The newest head stands at offset ${target.cursor.offset}, token ${target.cursor.token}; the events do not lead there.`,
    })
  }
  if (target.born >= 0 && subject.session !== null) {
    for (const list of subject.heads.values()) {
      for (const { where } of list) {
        found({
          kind: 'head',
          session: id,
          where,
          message: 'The head stands at a place the recomputation does not pass.',
        })
      }
    }
    for (const list of subject.snapshots.values()) {
      for (const { where } of list) {
        found({
          kind: 'snapshot',
          session: id,
          where,
          message: 'The snapshot stands at a place the recomputation does not pass.',
        })
      }
    }
  }
  for (const [topic, kind] of [
    ['tokens', 'token'],
    ['observations', 'observation'],
  ] as const) {
    for (const stored of subject.outputs[topic]) {
      found({
        kind,
        session: id,
        where: `${names[topic]}, partition ${partition}, offset ${stored.offset}`,
        message: 'No input explains this event: it was added or stands twice.',
      })
    }
  }
}

/** Throws only when the log cannot be read; what does not match is a finding. */
export const verifyLog = async (options: VerifyOptions): Promise<Verification> => {
  const totals: Totals = {
    sessions: 0,
    events: 0,
    tokensCompared: 0,
    headsCompared: 0,
    snapshotsCompared: 0,
    findings: [],
  }
  const [info] = await options.log.topics([options.names.chunks])
  for (let partition = 0; partition < (info?.partitions ?? 0); partition += 1) {
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
