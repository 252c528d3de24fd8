// @ts-check
/** The session that is looked at: its text, how it was predicted, and what its memory did. */
import { follow, pathOf } from './api.js'
import { blocksView } from './blocks.js'
import { byId, count, h, plural, setText, withoutMiddle } from './dom.js'
import { linesView } from './lines.js'
import { memoryView } from './memory.js'
import { openWith } from './opening.js'
import { linePlot } from './plot.js'
import { onDraw, onSelect, redraw, store } from './store.js'
import { textView } from './text.js'
import { torusView } from './torus.js'

/** @typedef {import('../gateway/console/types.ts').SessionEvent} SessionEvent */

/** Tokens of a mean, and between two means. */
const MEAN = 64
const STEP = 16
const MOST_MEANS = 500

const createMeans = () => {
  /** @type {number[]} */
  let recent = []
  let since = 0
  /** Pulse, bits read, bits written. @type {(readonly [number, number | null, number | null])[]} */
  let means = []
  let isWriting = false
  let next = 0
  return {
    clear() {
      recent = []
      means = []
      since = 0
    },
    /** @param {boolean} writing @param {number} pulse @param {number} nats */
    add(writing, pulse, nats) {
      // The lines of the two inks, and of stretches that are apart, do not touch.
      if (writing !== isWriting || pulse !== next) {
        recent = []
        since = 0
        isWriting = writing
        means.push([pulse, null, null])
      }
      next = pulse + 1
      recent.push(nats)
      if (recent.length > MEAN) recent.shift()
      since += 1
      if (since < STEP) return
      since = 0
      const bits = recent.reduce((sum, each) => sum + each, 0) / recent.length / Math.LN2
      means.push(writing ? [pulse, null, bits] : [pulse, bits, null])
    },
    /** The mean of a whole record. @param {number} pulse @param {number} nats */
    whole(pulse, nats) {
      means.push([pulse, nats / Math.LN2, null])
    },
    /** @returns {import('./plot.js').Drawing} */
    drawing() {
      means.sort((a, b) => a[0] - b[0])
      if (means.length > MOST_MEANS) means = means.slice(-MOST_MEANS)
      const xs = means.map(([pulse]) => pulse)
      return {
        data: [xs, means.map(([, read]) => read), means.map(([, , written]) => written)],
        range: [xs[0] ?? 0, Math.max((xs[0] ?? 0) + 1, xs.at(-1) ?? 1)],
      }
    },
  }
}

export const drawSession = () => {
  const text = textView(byId('text'))
  const means = createMeans()
  const plot = linePlot(
    byId('surprisal'),
    [
      { label: 'read', colour: 'read' },
      { label: 'written', colour: 'written' },
    ],
    { time: false, format: (value) => value.toFixed(1) },
  )
  const memory = memoryView()
  const blocks = blocksView()
  const torus = torusView()
  const lines = linesView((from, to) => text.show(from, to))
  const note = byId('session-note')
  const shade = h('button', { type: 'button', class: 'plain', onclick: () => tell() }, 'Shade it from now on')
  let isMoved = false
  let following = new AbortController()

  const tell = async () => {
    shade.disabled = true
    try {
      await openWith({ surprisal: true })
    } catch (error) {
      setText(note, /** @type {Error} */ (error).message)
    }
    shade.disabled = false
  }

  /** @param {SessionEvent} event */
  const take = (event) => {
    switch (event.type) {
      case 'read':
      case 'written': {
        text.add(event)
        const { nats } = event
        if (nats !== null)
          for (const [at, each] of nats.entries())
            if (each !== null) means.add(event.type === 'written', event.from + at, each)
        if (event.type === 'read' && nats === null && event.mean !== null) means.whole(event.to, event.mean)
        break
      }
      case 'mark':
        text.mark(event.from, event.text)
        break
      case 'blocks':
        blocks.take(event.events)
        break
      case 'experts':
        torus.take(event)
        break
      case 'lines':
        lines.take(event)
        break
      case 'memory':
        memory.take(event)
    }
    isMoved = true
    redraw()
  }
  const clear = () => {
    text.clear()
    means.clear()
    memory.clear()
    blocks.clear()
    torus.clear()
    lines.clear()
    isMoved = true
  }

  onSelect((session) => {
    following.abort()
    following = new AbortController()
    clear()
    if (session === null) return
    const taker = {
      /** @param {string} _ @param {SessionEvent} event */
      event: (_, event) => take(event),
      // The answer begins with the session's last records again.
      began: clear,
    }
    void follow(`/v1/console${pathOf(session).slice('/v1'.length)}/events`, taker, following.signal)
  })

  onDraw(() => {
    const row = store.selected === null ? undefined : store.sessions.get(store.selected)
    const title = byId('session-id')
    if (title.title !== (store.selected ?? '')) {
      title.title = store.selected ?? ''
      setText(title, withoutMiddle(title.title, 64))
    }
    const facts =
      row === undefined
        ? 'None is there yet: one begins with its first event.'
        : [
            row.status === 'stopped' ? `set aside: ${row.reason}` : row.status,
            `pulse ${count(row.pulse)}`,
            `${plural(row.tokens, 'token')} read, ${count(row.generated)} written`,
            row.snapshot === null ? 'no snapshot yet' : `snapshot of pulse ${count(row.snapshot)}`,
            `chain ${row.chain}…`,
            ...(row.from === undefined ? [] : [`fork of ${row.from}`]),
          ].join(' · ')
    setText(byId('session-facts'), facts)
    const isPlain = row !== undefined && !row.settings.surprisal && row.status === 'open'
    if (note.hidden === isPlain) {
      note.hidden = !isPlain
      note.replaceChildren('This session does not report the surprisal of each token that it reads. ', shade)
    }
    memory.draw(row)
    if (!isMoved) return
    isMoved = false
    text.draw()
    plot.draw(means.drawing())
    blocks.draw(row)
    torus.draw(row)
    lines.draw()
  })
}
