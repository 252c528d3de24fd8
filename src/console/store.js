// @ts-check
/**
 * What the page knows of the log, from the frames of the gateway; and one drawing of the page for all that came since
 * the last one.
 */
import { follow } from './api.js'

/**
 * @typedef {import('../gateway/console/types.ts').Frame} Frame
 * @typedef {import('../gateway/console/types.ts').Hello} Hello
 * @typedef {import('../gateway/console/types.ts').SessionRow} SessionRow
 * @typedef {import('../gateway/console/types.ts').CommitMark} CommitMark
 * @typedef {import('../gateway/console/types.ts').TimelineEvent} TimelineEvent
 * @typedef {import('../gateway/console/types.ts').PipelineRow} PipelineRow
 * @typedef {{ at: number, read: number, generated: number, commits: number, end: number, offset: number, letters: number }} Sample
 */

/** Time that rates are taken over, and that samples and commits are kept for, ms. */
const RATE = 2000
export const KEPT = 120_000
const MOST_EVENTS = 200

export const store = {
  /** @type {Hello | null} */ hello: null,
  /** @type {Frame | null} */ frame: null,
  /** @type {Map<string, SessionRow>} */ sessions: new Map(),
  /** Of the gateway's clock. @type {Sample[]} */ samples: [],
  /** @type {CommitMark[]} */ commits: [],
  /** @type {TimelineEvent[]} */ events: [],
  /** Why there is no stream now; empty: there is one. */ broken: 'Connecting…',
  /** The session that is looked at. @type {string | null} */ selected: null,
  /** Grows when a session came or went. */ sessionsSeen: 0,
}

/** @type {Set<() => void>} */
const drawers = new Set()
let due = false

/** Draws the page before its next picture. */
export const redraw = () => {
  if (due) return
  due = true
  requestAnimationFrame(() => {
    due = false
    for (const draw of drawers) draw()
  })
}

/** @param {() => void} draw is called when something may have changed */
export const onDraw = (draw) => {
  drawers.add(draw)
}

/** The events of a stream of frames that the page has not had yet: a gateway that began anew counts from 1. */
let lastEvent = 0

/** @param {Pick<TimelineEvent, 'tone' | 'text' | 'kind'>} event */
const noteOwn = (event) => {
  store.events.unshift({ seq: -1, at: Date.now(), partition: null, ...event })
}

/**
 * A gateway that began anew, with a worker inside perhaps: whether all that the page had seen committed is still there.
 * @param {Hello} hello
 */
const compareWithBefore = (hello) => {
  const { hello: before, frame } = store
  if (before === null || before.instance === hello.instance || frame === null) return null
  const pulses = frame.partitions.map(({ pulse }) => pulse)
  /** @param {Frame} now */
  return (now) => {
    const lost = now.partitions.find(({ pulse }, at) => pulse < (pulses[at] ?? 0))
    if (lost === undefined) {
      const total = now.partitions.reduce((sum, { pulse }) => sum + pulse, 0)
      const text = `The gateway began anew. All that this page had seen is in the log: pulse ${total.toLocaleString('en-US')}, nothing lost.`
      noteOwn({ kind: 'resumed', tone: 'good', text })
    } else {
      const text = `The gateway began anew, and partition ${lost.partition} stands at pulse ${lost.pulse}, before what this page had seen.`
      noteOwn({ kind: 'back', tone: 'bad', text })
    }
  }
}
/** @type {((now: Frame) => void) | null} */
let compare = null

/** @param {Hello} hello */
const begin = (hello) => {
  compare = compareWithBefore(hello)
  store.hello = hello
  store.sessions.clear()
  store.samples = []
  store.commits = []
  if (compare !== null) lastEvent = 0
}

/** @param {Frame} frame */
const take = (frame) => {
  store.frame = frame
  for (const row of frame.sessions) {
    if (!store.sessions.has(row.id)) store.sessionsSeen += 1
    store.sessions.set(row.id, row)
  }
  for (const id of frame.gone) if (store.sessions.delete(id)) store.sessionsSeen += 1
  const { read, generated, commits, end, offset, deadLetters: letters } = frame.pipeline
  if (!frame.caughtUp) store.samples = []
  store.samples.push({ at: frame.at, read, generated, commits, end, offset, letters })
  while (store.samples.length > 1 && (store.samples[0]?.at ?? 0) < frame.at - KEPT) store.samples.shift()
  store.commits.push(...frame.commits)
  while (store.commits.length > 0 && (store.commits[0]?.at ?? 0) < frame.at - KEPT) store.commits.shift()
  if (frame.caughtUp && compare !== null) {
    compare(frame)
    compare = null
  }
  for (const event of frame.events) {
    if (event.seq <= lastEvent) continue
    lastEvent = event.seq
    store.events.unshift(event)
  }
  store.events.length = Math.min(store.events.length, MOST_EVENTS)
}

/**
 * Growth a second of a sum over the last seconds; null while there is nothing to compare with.
 * @param {'read' | 'generated' | 'commits' | 'end' | 'offset' | 'letters'} name
 */
export const rate = (name) => {
  const last = store.samples.at(-1)
  if (last === undefined) return null
  const first = store.samples.find(({ at }) => at >= last.at - RATE)
  if (first === undefined || last.at - first.at < 100) return null
  return Math.max(0, ((last[name] - first[name]) / (last.at - first.at)) * 1000)
}

/** Follows the gateway for as long as the page is open. */
export const connect = () =>
  follow(
    '/v1/console/events',
    {
      began() {
        store.broken = ''
      },
      broke(why) {
        store.broken = why
        redraw()
      },
      event(name, data) {
        if (name === 'hello') begin(data)
        else if (name === 'frame') take(data)
        redraw()
      },
    },
    new AbortController().signal,
  )

/** @type {Set<(session: string | null) => void>} */
const selecting = new Set()
/** @param {(session: string | null) => void} selected */
export const onSelect = (selected) => {
  selecting.add(selected)
}

/** @param {string | null} session */
export const select = (session) => {
  if (store.selected === session) return
  store.selected = session
  for (const selected of selecting) selected(session)
  redraw()
}
