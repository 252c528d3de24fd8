// @ts-check
/** Commits as they come, and what happened to those who make them. */
import { byId, cleared, clock, colour, h, plural, setText } from './dom.js'
import { KEPT, onDraw, store } from './store.js'

const SIGNS = { good: '●', bad: '▲', quiet: '○' }
/** Of the strip that has the events, px. */
const LANE = 12

export const drawTimeline = () => {
  const canvas = /** @type {HTMLCanvasElement} */ (byId('timeline-map'))
  const list = byId('timeline-events')
  const last = byId('timeline-last')
  /** @type {import('./store.js').TimelineEvent | undefined} */
  let newest

  const paint = (/** @type {number} */ now) => {
    const { context, width, height } = cleared(canvas)
    const xOf = (/** @type {number} */ at) => width - ((now - at) / KEPT) * width
    const base = height - 16
    context.strokeStyle = colour('line')
    context.fillStyle = colour('quiet')
    context.font = '11px system-ui, sans-serif'
    context.textAlign = 'center'
    for (let back = 0; back <= KEPT; back += 30_000) {
      const x = xOf(now - back)
      context.beginPath()
      context.moveTo(x, LANE)
      context.lineTo(x, base)
      context.stroke()
      if (back > 0 && back < KEPT) context.fillText(`−${back / 1000} s`, x, height - 3)
    }
    const most = Math.max(1, ...store.commits.map(({ pulses }) => Math.log2(1 + pulses)))
    const [ink, saved] = [colour('read'), colour('written')]
    for (const { at, pulses, snapshots } of store.commits) {
      const x = xOf(at)
      const size = Math.max(2, (Math.log2(1 + pulses) / most) * (base - LANE - 8))
      context.fillStyle = ink
      context.fillRect(x, base - size, 1.5, size)
      if (snapshots === 0) continue
      context.fillStyle = saved
      context.beginPath()
      context.arc(x, base - size - 4, 2.2, 0, 2 * Math.PI)
      context.fill()
    }
    for (const { at, tone } of store.events) {
      if (at < now - KEPT || tone === 'quiet') continue
      const x = xOf(at)
      context.strokeStyle = context.fillStyle = colour(tone)
      context.beginPath()
      context.moveTo(x, LANE - 4)
      context.lineTo(x, base)
      context.stroke()
      context.fillText(SIGNS[tone], x, LANE - 3)
    }
  }

  onDraw(() => {
    const { frame, events, commits } = store
    if (frame === null) return
    paint(frame.at)
    const commit = commits.at(-1)
    setText(
      last,
      commit === undefined
        ? 'No commit in the last two minutes.'
        : `${plural(commits.length, 'commit')} in two minutes, the last at ${clock(commit.at)}: ${plural(commit.pulses, 'pulse')} of ${plural(commit.sessions, 'session')}`,
    )
    if (events[0] === newest) return
    const items = []
    for (const event of events) {
      if (event === newest) break
      const sign = h('span', { class: `sign ${event.tone}`, 'aria-hidden': 'true' }, SIGNS[event.tone])
      items.push(
        h(
          'li',
          { class: event.kind },
          h('time', { datetime: new Date(event.at).toISOString() }, clock(event.at)),
          sign,
          h('span', {}, event.text),
        ),
      )
    }
    newest = events[0]
    list.prepend(...items)
    while (list.children.length > events.length) list.lastElementChild?.remove()
  })
}
