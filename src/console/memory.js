// @ts-check
/** The memory of a session: its levels as they fire, their gates, and the norms of its tensors as they change from snapshot to snapshot. */
import { byId, cleared, colour, count, h, isStill, setText } from './dom.js'
import { store } from './store.js'

/**
 * @typedef {import('./store.js').SessionRow} SessionRow
 * @typedef {Extract<import('../gateway/console-types.ts').SessionEvent, { type: 'memory' }>} Report
 */

/** Columns of the map, and the least height of a row, px. */
const MOST_COLUMNS = 240
const COLUMN = 4

/** @param {number | null} value */
const gate = (value) => (value === null ? '–' : value.toPrecision(2))

/** @param {Report['norms'][number]} norm */
const nameOf = ({ name, layer, level }) => `${name}, layer ${layer}${level === null ? '' : `, level ${level}`}`

const levelBars = () => {
  const holder = byId('levels')
  /** @type {{ period: number, bar: HTMLElement, fired: HTMLElement, gates: HTMLElement, item: HTMLElement, last: number }[]} */
  let bars = []
  let key = ''
  return {
    /** @param {SessionRow | undefined} row @param {Report | undefined} report */
    draw(row, report) {
      const levels = store.hello?.model.levels ?? []
      if (key !== levels.join()) {
        key = levels.join()
        bars = levels.map((period, at) => {
          const bar = h('i')
          const fired = h('span', { class: 'num' })
          const gates = h('span', { class: 'quiet' })
          const track = h('span', { class: 'track', 'aria-hidden': 'true' }, bar)
          const item = h(
            'div',
            { class: 'level' },
            h('span', {}, `Level ${at}, every ${count(period)}`),
            track,
            fired,
            gates,
          )
          return { period, bar, fired, gates, item, last: -1 }
        })
        holder.replaceChildren(...bars.map(({ item }) => item))
      }
      if (levels.length === 0) {
        setText(holder, 'This model’s memory is written at every pulse; it has no levels that fire apart.')
        return
      }
      for (const [at, level] of bars.entries()) {
        const pulse = row?.pulse ?? 0
        const fires = Math.floor(pulse / level.period)
        level.bar.style.transform = `scaleX(${level.period === 1 ? 1 : (pulse % level.period) / level.period})`
        setText(level.fired, `fired ${count(fires)}×`)
        const gates = report?.levels[at]?.gates
        setText(level.gates, gates ? `θ ${gate(gates.theta)}  η ${gate(gates.eta)}  α ${gate(gates.alpha)}` : '')
        if (level.last >= 0 && fires > level.last && !isStill())
          level.item.animate([{ backgroundColor: 'var(--accent-soft)' }, { backgroundColor: 'transparent' }], 400)
        level.last = fires
      }
    },
    forget() {
      for (const level of bars) level.last = -1
    },
  }
}

export const memoryView = () => {
  const canvas = /** @type {HTMLCanvasElement} */ (byId('heat'))
  const now = byId('heat-now')
  const bars = levelBars()
  /** @type {Report[]} */
  let reports = []
  let isMoved = true
  let theme = ''

  const paint = () => {
    const { context, width, height } = cleared(canvas)
    const last = reports.at(-1)
    if (last === undefined) return
    const rows = last.norms.length
    const shown = reports.slice(-Math.min(MOST_COLUMNS, Math.floor(width / COLUMN)))
    // Each row by its own range, in logarithms: a tensor is compared with itself.
    const ranges = last.norms.map((_, at) => {
      const values = shown.map(({ norms }) => Math.log1p(norms[at]?.norm ?? 0))
      return [Math.min(...values), Math.max(...values)]
    })
    const [ground, ink] = [colour('heat-0'), colour('heat-1')]
    context.fillStyle = ground
    context.fillRect(0, 0, width, height)
    const size = height / rows
    context.fillStyle = ink
    for (const [column, { norms }] of shown.entries()) {
      const x = width - (shown.length - column) * COLUMN
      for (const [at, { norm }] of norms.entries()) {
        const [least = 0, most = 1] = ranges[at] ?? []
        context.globalAlpha =
          norm === null ? 1 : most - least < 1e-6 ? 0.35 : 0.06 + (0.94 * (Math.log1p(norm) - least)) / (most - least)
        context.fillRect(x, at * size, COLUMN - 0.5, Math.max(1, size - 0.5))
      }
    }
    context.globalAlpha = 1
  }

  return {
    /** @param {Report} report */
    take(report) {
      if (reports.length > 0 && reports.at(-1)?.norms.length !== report.norms.length) reports = []
      reports.push(report)
      if (reports.length > MOST_COLUMNS) reports.shift()
      isMoved = true
    },
    clear() {
      reports = []
      isMoved = true
      bars.forget()
    },
    /** @param {SessionRow | undefined} row */
    draw(row) {
      const last = reports.at(-1)
      bars.draw(row, last)
      const themed = colour('heat-1')
      if (!isMoved && themed === theme) return
      theme = themed
      isMoved = false
      canvas.hidden = last === undefined
      paint()
      if (last === undefined) {
        const why =
          store.hello?.boards === false
            ? 'No worker tells its norms: serve with --worker-metrics URL.'
            : 'No snapshot of this session was written since the page knows its worker.'
        setText(now, why)
        return
      }
      const largest = last.norms.reduce((a, b) => ((b.norm ?? Infinity) > (a.norm ?? Infinity) ? b : a))
      const window =
        last.window === null ? '' : ` The window holds ${count(last.window.used)} of ${count(last.window.places)}.`
      setText(
        now,
        `Pulse ${count(last.pulse)}: ${last.norms.length} norms, the largest ${largest.norm?.toPrecision(4) ?? 'not finite'} (${nameOf(largest)}).${window}`,
      )
    },
  }
}
