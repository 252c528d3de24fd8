// @ts-check
/**
 * The memory of a session: its levels as they fire, their gates, and the norms of its tensors as they change from
 * snapshot to snapshot.
 */
import { byId, cleared, colour, count, h, isStill, setText } from './dom.js'
import { store } from './store.js'

/**
 * @typedef {import('./store.js').SessionRow} SessionRow
 * @typedef {Extract<import('../gateway/console/types.ts').SessionEvent, { type: 'memory' }>} Report
 */

/** Columns of the map; their width, px, from the least to the most; and the room for the names of tensors. */
const MOST_COLUMNS = 240
const COLUMN = [4, 14]
const NAMES = 76
/** Of a row, in natural logarithms. */
const LEAST_RANGE = 0.2

/** @param {number | null} value */
const gate = (value) => (value === null ? '–' : value.toPrecision(2))

/** @param {Report['norms'][number]} norm */
const nameOf = ({ name, layer, level }) => `${name}, layer ${layer}${level === null ? '' : `, level ${level}`}`

const levelBars = () => {
  const holder = byId('levels')
  /**
   * @type {{ period: number, bar: HTMLElement, fired: HTMLElement, gates: HTMLElement, item: HTMLElement, last: number }[]}
   */
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

/**
 * The names of the tensors, each beside the rows of its layers and levels.
 * @param {CanvasRenderingContext2D} context
 * @param {Report} report
 * @param {number} size of a row
 */
const labels = (context, { norms }, size) => {
  context.fillStyle = colour('quiet')
  context.font = '11px system-ui, sans-serif'
  context.textBaseline = 'middle'
  for (let from = 0; from < norms.length; ) {
    const name = norms[from]?.name ?? ''
    let to = from
    while (to < norms.length && norms[to]?.name === name) to += 1
    const isRoomy = (to - from) * size >= 11
    if (isRoomy) context.fillText(name, 0, ((from + to) / 2) * size, NAMES - 8)
    from = to
  }
}

export const memoryView = () => {
  const section = byId('memory')
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
    const [least = 4, most = 14] = COLUMN
    const room = width - NAMES
    const shown = reports.slice(-Math.min(MOST_COLUMNS, Math.floor(room / least)))
    const step = Math.max(least, Math.min(most, Math.floor(room / shown.length)))
    // Each row by its own range, in logarithms: a tensor is compared with itself. What hardly moves looks as if it did
    // not.
    const ranges = last.norms.map((_, at) => {
      const values = shown.map(({ norms }) => Math.log1p(norms[at]?.norm ?? 0))
      const [low, high] = [Math.min(...values), Math.max(...values)]
      const range = Math.max(high - low, LEAST_RANGE)
      return [(low + high - range) / 2, range]
    })
    const [ground, ink] = [colour('heat-0'), colour('heat-1')]
    context.fillStyle = ground
    context.fillRect(NAMES, 0, room, height)
    const size = height / rows
    labels(context, last, size)
    context.fillStyle = ink
    for (const [column, { norms }] of shown.entries()) {
      const x = width - (shown.length - column) * step
      for (const [at, { norm }] of norms.entries()) {
        const [low = 0, range = 1] = ranges[at] ?? []
        context.globalAlpha = norm === null ? 1 : 0.06 + (0.94 * (Math.log1p(norm) - low)) / range
        context.fillRect(x, at * size, step - 0.5, Math.max(1, size - 0.5))
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
      // A memory of which nothing is told has no room.
      section.hidden = last === undefined && (store.hello?.model.levels ?? []).length === 0
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
            ? 'No worker reports norms: serve with --worker-metrics URL.'
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
