// @ts-check
/** The torus of experts, warm where tokens went lately. */
import { byId, cleared, colour, count, setText } from './dom.js'
import { openWith } from './opening.js'
import { store } from './store.js'

/**
 * @typedef {import('./store.js').SessionRow} SessionRow
 * @typedef {Extract<import('../gateway/console/types.ts').SessionEvent, { type: 'experts' }>} Used
 */

/** What is left of an expert's warmth after a token. */
const REST = 0.98

export const torusView = () => {
  const section = byId('torus')
  const canvas = /** @type {HTMLCanvasElement} */ (byId('torus-map'))
  const open = /** @type {HTMLButtonElement} */ (byId('torus-open'))
  const now = byId('torus-now')
  open.addEventListener(
    'click',
    () => void openWith({ perspectives: true }).catch((error) => setText(now, error.message)),
  )
  /** By layer, then expert. @type {Float64Array[]} */
  let warmth = []
  let tokens = 0
  let fired = 0
  let draws = 0

  return {
    clear() {
      warmth = []
      tokens = 0
      fired = 0
      draws = 0
    },
    /** @param {Used} used */
    take(used) {
      const torus = store.hello?.model.torus
      if (!torus) return
      fired += used.fired
      draws += used.draws
      for (const layers of used.experts) {
        tokens += 1
        for (const [layer, ranks] of layers.entries()) {
          const own = warmth[layer] ?? new Float64Array(torus[0] * torus[1])
          warmth[layer] = own
          for (let at = 0; at < own.length; at += 1) own[at] = /** @type {number} */ (own[at]) * REST
          for (const expert of ranks) if (expert < own.length) own[expert] = /** @type {number} */ (own[expert]) + 1
        }
      }
    },
    /** @param {SessionRow | undefined} row */
    draw(row) {
      const torus = store.hello?.model.torus ?? null
      section.hidden = torus === null || row === undefined
      if (torus === null || row === undefined) return
      open.hidden = row.settings.perspectives || row.status !== 'open'
      const [columns, rows] = torus
      const layers = Math.max(1, warmth.length)
      const cell = Math.max(6, Math.min(24, Math.floor(canvas.clientWidth / layers / (columns + 1))))
      canvas.style.height = `${rows * cell}px`
      const { context } = cleared(canvas)
      const [cold, warm] = [colour('heat-0'), colour('awake')]
      for (let layer = 0; layer < layers; layer += 1) {
        const own = warmth[layer]
        const most = own === undefined ? 1 : Math.max(1e-9, ...own)
        for (let expert = 0; expert < columns * rows; expert += 1) {
          const x = (layer * (columns + 1) + Math.floor(expert / rows)) * cell
          const y = (expert % rows) * cell
          context.globalAlpha = 1
          context.fillStyle = cold
          context.fillRect(x + 1, y + 1, cell - 2, cell - 2)
          context.globalAlpha = (own?.[expert] ?? 0) / most
          context.fillStyle = warm
          context.fillRect(x + 1, y + 1, cell - 2, cell - 2)
        }
      }
      context.globalAlpha = 1
      const told =
        tokens === 0
          ? 'No experts were reported yet.'
          : `${count(tokens)} tokens went over ${columns} by ${rows} experts in ${warmth.length} layers; perspectives were asked at ${count(fired)} of ${count(draws)} draws.`
      setText(now, row.settings.perspectives ? told : `${told} This session does not tell which experts are in use.`)
    },
  }
}
