// @ts-check
/** Where the blocks of an external memory are: in the window, asleep, or brought back into the list. */
import { byId, cleared, colour, count, plural, setText } from './dom.js'
import { openWith } from './opening.js'
import { store } from './store.js'

/** @typedef {import('./store.js').SessionRow} SessionRow */

const CELL = 10
/** Blocks that are drawn: the last ones. */
const MOST_CELLS = 4096

export const blocksView = () => {
  const section = byId('blocks')
  const canvas = /** @type {HTMLCanvasElement} */ (byId('blocks-map'))
  const open = /** @type {HTMLButtonElement} */ (byId('blocks-open'))
  const now = byId('blocks-now')
  open.addEventListener('click', () => void openWith({ memory: true }).catch((error) => setText(now, error.message)))
  /** @type {Set<number>} */
  let asleep = new Set()
  /** @type {Set<number>} */
  let awake = new Set()
  /** @type {Set<number>} */
  let topics = new Set()
  let last = -1
  let retrievals = 0
  let why = ''

  return {
    clear() {
      asleep = new Set()
      awake = new Set()
      topics = new Set()
      last = -1
      retrievals = 0
      why = ''
    },
    /** @param {readonly Readonly<Record<string, any>>[]} events */
    take(events) {
      for (const event of events) {
        const { type, block } = event
        if (typeof block === 'number') last = Math.max(last, block)
        if (type === 'archive') asleep.add(block)
        else if (type === 'segment') topics.add(block)
        else if (type === 'release') topics.delete(block)
        else if (type === 'inject') awake = new Set(event.blocks)
        else if (type === 'retrieve') {
          retrievals += 1
          why = event.reason
        }
      }
    },
    /** @param {SessionRow | undefined} row */
    draw(row) {
      const isOuter = store.hello?.model.outerMemory === true && row !== undefined
      section.hidden = !isOuter
      if (!isOuter) return
      open.hidden = row.settings.memory || row.status !== 'open'
      // Blocks that were archived before the session told of it sleep, too.
      const sleeping = Math.max(row.archived, asleep.size)
      const end = Math.max(last + 1, row.archived)
      const first = Math.max(0, end - MOST_CELLS)
      const columns = Math.max(1, Math.floor(canvas.clientWidth / CELL))
      canvas.style.height = `${Math.max(1, Math.ceil((end - first) / columns)) * CELL}px`
      const { context } = cleared(canvas)
      const inks = {
        window: colour('line'),
        asleep: colour('asleep'),
        awake: colour('awake'),
        topic: colour('written'),
      }
      for (let at = first; at < end; at += 1) {
        const x = ((at - first) % columns) * CELL
        const y = Math.floor((at - first) / columns) * CELL
        context.fillStyle = awake.has(at) ? inks.awake : asleep.has(at) || at < row.archived ? inks.asleep : inks.window
        context.fillRect(x + 1, y + 1, CELL - 2, CELL - 2)
        if (!topics.has(at)) continue
        context.fillStyle = inks.topic
        context.fillRect(x + 1, y + 1, CELL - 2, 2)
      }
      const brought =
        awake.size === 0 ? 'none brought back' : `brought back: ${[...awake].sort((a, b) => a - b).join(', ')}`
      const times = retrievals === 0 ? '' : ` Asked ${plural(retrievals, 'time')}, last because of ${why}.`
      const untold = row.settings.memory ? '' : ' This session does not tell what its memory does.'
      setText(now, `${count(sleeping)} blocks asleep, ${brought}.${times}${untold}`)
    },
  }
}
