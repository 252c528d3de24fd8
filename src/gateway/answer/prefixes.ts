/**
 * Prefixes that were read before. A prompt of some length leaves sessions in the log that stand at places of it and
 * read nothing more; a later request that begins with the same ids is a fork of the longest of them, and reads only the
 * ids behind it. The name of such a session says how many ids it has read, and has their hash, so the index follows
 * from the heads of the state topic: any gateway has it, also after a restart.
 *
 * Such sessions stand at the end of a prompt, behind its answer, where the prompt parts from a recent one, and, if it
 * begins like no earlier prompt, at `SMALLEST` and its doubles. So their number grows at most with the logarithm of the
 * prompt's length, and where many prompts have one beginning there is a session at its very end.
 */
import { createHash, randomUUID } from 'node:crypto'
import { endianness } from 'node:os'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { idEvents } from '../../client/chunks.ts'
import { nameIn } from '../names.ts'
import type { SessionView } from '../sessions-view.ts'
import type { FedTo } from './ask.ts'

/** What names of these sessions begin with; no request may feed one. */
export const PREFIX_NAMES = 'prefix-'

/** Ids of the shortest prefix that is kept: reading as many costs about as much as a session. */
const SMALLEST = 256
/** Ids behind the last session at which another one is worth its while. */
const WORTH = 64
/**
 * The same where a conversation goes on behind its last answer, which is found again by itself: only what outlives the
 * gateway is missing then.
 */
const WORTH_BEHIND_ANSWERS = 1024
/** Ids of prompts that are remembered, to see where others part from them. */
const MOST_RECENT = 1 << 20

/** Those that stand behind an answer. */
const ANSWERS = `${PREFIX_NAMES}answer-`
const NAME = /^prefix-(\d{1,9})-([0-9a-f]{64})-[0-9a-f]{8}$/

export interface PrefixBounds {
  /** Sessions that are kept; 0: none, those that are there go, and nothing is looked up. */
  readonly sessions: number
  /** Bytes of their snapshots. */
  readonly bytes: number
}

/** How a prompt is read. */
export interface Reading {
  /** The session of the answer. */
  readonly session: string
  /** Ids that it does not read, as the session that it forks has read them. */
  readonly cached: number
  readonly events: readonly FedTo[]
  /** The events are in the log: later ones may fork what they make. */
  sent(): void
  /**
   * The session that the prompt was to go on from is gone, or stands elsewhere: how it is read whole. `isCleared`: the
   * first event deletes what this reading has made in the same session.
   */
  whole(): { readonly session: string; readonly events: readonly FedTo[]; readonly isCleared: boolean }
  /** The answer came to an end, and its session stands behind these ids of it. */
  answered(ids: readonly number[]): void
  /** Nobody waits for the answer any more. */
  over(): void
}

export interface Prefixes {
  /**
   * How to read this prompt: in a session of its own, which goes on behind the answer only with `keeps`, or behind the
   * last answer of its conversation; null: there is nothing to gain. Behind a reading that was not sent nothing is
   * left.
   */
  read(ids: Int32Array, keeps: boolean): Promise<Reading | null>
  /** A session stands there. */
  stands(view: SessionView): void
  deleted(session: string): void
  /** What was committed before is known: what is too much of it goes. */
  caughtUp(): void
}

interface Point {
  readonly session: string
  /** Whether it is there for later requests alone; else it is somebody's, and only known here. */
  readonly isOurs: boolean
  /** Ids that it has read; null: behind an answer of which this gateway knows no more. */
  length: number | null
  digest: string
  bytes: number
}

/** The hash of the ids before each of these places, which ascend. */
const digests = (ids: Int32Array, places: readonly number[]): string[] => {
  const hash = createHash('sha256')
  const bytes = new Uint8Array(ids.buffer, ids.byteOffset, ids.byteLength)
  let at = 0
  return places.map((place) => {
    hash.update(bytes.subarray(at * 4, place * 4))
    at = place
    return hash.copy().digest('hex')
  })
}

/** Ids that both begin with. */
const common = (one: Int32Array, other: Int32Array): number => {
  const most = Math.min(one.length, other.length)
  let at = 0
  while (at < most && one[at] === other[at]) at += 1
  return at
}

export interface PrefixDeps {
  /** Of the input topic. */
  readonly partitionOf: (session: string) => Promise<number>
  /** Deletes a session of this kind. */
  readonly remove: (session: string) => void
  /** Whether everything that was committed before is known. */
  readonly isCaughtUp: () => boolean
}

/**
 * Throws for a machine whose numbers begin with their highest byte: digests would be others than those of gateways
 * elsewhere.
 */
export const createPrefixes = (bounds: PrefixBounds, { partitionOf, remove, isCaughtUp }: PrefixDeps): Prefixes => {
  if (endianness() !== 'LE') throw new Error('Digests of ids are those of little-endian machines.')
  /** By their sessions, those that were used longest ago first. */
  const points = new Map<string, Point>()
  const byLength = new Map<number, Map<string, Point>>()
  let bytes = 0
  /** Sessions whose answers somebody waits for. */
  const running = new Set<string>()
  const recent: Int32Array[] = []
  let remembered = 0

  const unlist = (point: Point): void => {
    if (point.length === null) return
    const same = byLength.get(point.length)
    if (same?.get(point.digest) === point) same.delete(point.digest)
    if (same?.size === 0) byLength.delete(point.length)
  }
  const list = (point: Point): void => {
    if (point.length === null) return
    const same = byLength.get(point.length) ?? new Map<string, Point>()
    byLength.set(point.length, same.set(point.digest, point))
  }
  const drop = (point: Point): void => {
    if (points.get(point.session) !== point) return
    points.delete(point.session)
    bytes -= point.bytes
    unlist(point)
  }
  const use = (point: Point): void => {
    points.delete(point.session)
    points.set(point.session, point)
  }
  const add = (session: string, length: number | null, digest: string, isOurs = true): Point => {
    const point: Point = { session, isOurs, length, digest, bytes: 0 }
    points.set(session, point)
    list(point)
    return point
  }
  const evict = (): void => {
    // A head that is not the newest may be that of a session which was deleted since.
    if (!isCaughtUp()) return
    for (const point of points.values()) {
      if (points.size <= bounds.sessions && bytes <= bounds.bytes) return
      if (running.has(point.session)) continue
      drop(point)
      if (point.isOurs) remove(point.session)
    }
  }

  const remember = (ids: Int32Array): void => {
    if (ids.length > MOST_RECENT) return
    recent.push(ids)
    remembered += ids.length
    while (remembered > MOST_RECENT) remembered -= recent.shift()!.length
  }

  /** Places at which sessions are left behind a prompt that is read from `from` on, from `least` on. */
  const placesOf = (ids: Int32Array, from: number, least: number): number[] => {
    const places = new Set<number>()
    // Of what begins like none before nobody knows yet where others will part from it.
    if (from === 0) for (let at = SMALLEST; at < ids.length; at *= 2) places.add(at)
    const shared = recent.reduce((most, other) => Math.max(most, common(ids, other)), 0)
    for (const at of [shared, ids.length]) if (at >= least) places.add(at)
    return [...places].sort((one, other) => one - other)
  }

  const short = (): string => randomUUID().slice(0, 8)

  return {
    async read(ids, keeps) {
      if (bounds.sessions === 0 || ids.length < SMALLEST) return null
      const known = [...byLength.keys()].filter((length) => length <= ids.length).sort((one, other) => one - other)
      const hashes = digests(ids, known)
      const alike = known.flatMap((length, at) => byLength.get(length)!.get(hashes[at]!) ?? [])
      const found = alike.at(-1)
      const from = found?.length ?? 0
      if (found !== undefined) use(found)
      // What goes on behind an answer needs no copy of its session: nobody else is likely to go on from there.
      const inPlace = found !== undefined && !keeps && found.session.startsWith(ANSWERS) && !running.has(found.session)
      if (inPlace) {
        unlist(found)
        found.length = null
        running.add(found.session)
      }
      const kept = alike.findLast(({ session }) => NAME.test(session))?.length ?? 0
      const least = inPlace ? Math.max(from + WORTH, kept + WORTH_BEHIND_ANSWERS) : from + WORTH
      const places = placesOf(ids, from, Math.max(SMALLEST, least))
      remember(ids)
      const home = found === undefined ? null : await partitionOf(found.session)
      const own = keeps ? 'api-' : ANSWERS
      const made = (): string => `${own}${randomUUID()}`
      const chosen = inPlace ? found.session : home === null ? made() : await nameIn(home, partitionOf, made)
      if (chosen === null) return null
      let session = chosen
      const partition = home ?? (await partitionOf(session))
      const left: { session: string; place: number; digest: string }[] = []
      const placed = digests(ids, places)
      for (const [at, place] of places.entries()) {
        const name = await nameIn(partition, partitionOf, () => `${PREFIX_NAMES}${place}-${placed[at]}-${short()}`)
        if (name !== null) left.push({ session: name, place, digest: placed[at]! })
      }
      // Of gateways that go on from one place at one time one does.
      const once = { key: `at-${from}`, attempt: randomUUID() }
      const events: FedTo[] = []
      const feed = (part: Int32Array): void => {
        for (const event of idEvents(part)) events.push([session, inPlace ? ({ ...event, once } as ChunkInput) : event])
      }
      if (inPlace && from === ids.length) events.push([session, { type: 'tokens', tokens: [], once }])
      if (found !== undefined && !inPlace)
        events.push([session, { type: 'open', from: { session: found.session, pulse: from } }])
      let read = from
      for (const { session: name, place } of left) {
        feed(ids.subarray(read, place))
        events.push([name, { type: 'open', from: { session, pulse: place } }])
        read = place
      }
      feed(ids.subarray(read))
      return {
        session,
        cached: from,
        events,
        sent() {
          for (const { session: name, place, digest } of left) add(name, place, digest)
          if (!inPlace) add(session, null, '', !keeps)
          running.add(session)
          evict()
        },
        whole() {
          for (const name of [...(found ? [found.session] : []), ...left.map((each) => each.session)]) {
            const point = points.get(name)
            if (point !== undefined) drop(point)
          }
          running.delete(session)
          if (inPlace) session = `${ANSWERS}${randomUUID()}`
          add(session, null, '', !keeps)
          running.add(session)
          const all = idEvents(ids).map((event): FedTo => [session, event])
          return inPlace
            ? { session, events: all, isCleared: false }
            : { session, events: [[session, { type: 'delete' }], ...all], isCleared: true }
        },
        answered(answer) {
          const point = points.get(session)
          if (point === undefined) return
          const all = new Int32Array(ids.length + answer.length)
          all.set(ids)
          all.set(answer, ids.length)
          point.length = all.length
          point.digest = digests(all, [all.length])[0]!
          const same = byLength.get(all.length)?.get(point.digest)
          list(point)
          remember(all)
          // One that stands where this one does is of no use any more.
          if (same === undefined || !same.isOurs || running.has(same.session)) return
          drop(same)
          remove(same.session)
        },
        over: () => void running.delete(session),
      }
    },
    stands({ session, status, pulse, snapshot }) {
      const [, named, digest] = NAME.exec(session) ?? []
      const length = named === undefined ? null : Number(named)
      let point = points.get(session)
      if (point === undefined) {
        if (!session.startsWith(PREFIX_NAMES)) return
        point = add(session, length, digest ?? '')
      }
      // It went on, or was set aside: it stands nowhere that anybody looks for.
      if (status !== 'open' || (point.length !== null && pulse > point.length)) unlist(point)
      const now = snapshot?.bytes ?? 0
      bytes += now - point.bytes
      point.bytes = now
      evict()
    },
    caughtUp: evict,
    deleted(session) {
      const point = points.get(session)
      if (point !== undefined) drop(point)
    },
  }
}
