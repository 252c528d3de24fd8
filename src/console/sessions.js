// @ts-check
/** All sessions, as many as there are: searched, sorted, with how well each was predicted lately. */
import { ago, byId, count, h, setText } from './dom.js'
import { virtualGrid } from './grid.js'
import { onDraw, onSelect, redraw, select, store } from './store.js'

/** @typedef {import('./store.js').SessionRow} SessionRow */

/** Between two times that live rows are put in order, ms. */
const SORT = 2000

/**
 * How many bits a token the last stretch cost more than the middle one of those before; null: there are fewer than
 * three. @param {SessionRow} row
 */
const newsOf = ({ trail }) => {
  if (trail.length < 3) return null
  const before = trail.slice(0, -1).sort((a, b) => a - b)
  const middle = before[Math.floor(before.length / 2)] ?? 0
  return ((trail.at(-1) ?? 0) - middle) / 1000
}

/** @type {Record<string, (row: SessionRow) => number | string>} */
const KEYS = {
  id: ({ id }) => id,
  pulse: ({ pulse }) => pulse,
  bits: ({ bits }) => bits ?? -1,
  news: (row) => newsOf(row) ?? Number.NEGATIVE_INFINITY,
  age: ({ pulse, snapshot }) => pulse - (snapshot ?? 0),
  at: ({ at }) => at,
}

const SPARK = { width: 84, height: 20 }
/** Thousandths of bits: less than that is no movement to be seen. */
const LEAST_RANGE = 1000

/** @param {readonly number[]} stretches thousandths of bits */
const sparkOf = (stretches) => {
  if (stretches.length === 0) return ''
  // One commit may have read all that a session has: a level line.
  const trail = stretches.length === 1 ? [...stretches, ...stretches] : stretches
  const least = Math.min(...trail)
  const range = Math.max(LEAST_RANGE, Math.max(...trail) - least)
  const step = SPARK.width / (trail.length - 1)
  return trail
    .map(
      (bits, at) =>
        `${at === 0 ? 'M' : 'L'}${(at * step).toFixed(1)} ${(SPARK.height - 2 - ((bits - least) / range) * (SPARK.height - 4)).toFixed(1)}`,
    )
    .join('')
}

/** @param {readonly number[]} trail */
const rangeOf = (trail) => {
  const [least, most] = [Math.min(...trail), Math.max(...trail)].map((bits) => (bits / 1000).toFixed(1))
  return trail.length === 0 ? '' : least === most ? `${least}` : `${least}–${most}`
}

/** The line, and between which bits it lies. @param {HTMLElement} cell @param {SessionRow} row */
const fillSpark = (cell, { trail }) => {
  let path = cell.querySelector('path')
  if (path === null) {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg')
    svg.setAttribute('viewBox', `0 0 ${SPARK.width} ${SPARK.height}`)
    svg.setAttribute('class', 'spark')
    svg.setAttribute('aria-hidden', 'true')
    path = document.createElementNS('http://www.w3.org/2000/svg', 'path')
    svg.append(path)
    cell.append(svg, h('span', { class: 'range' }))
  }
  path.setAttribute('d', sparkOf(trail))
  setText(/** @type {Element} */ (cell.lastElementChild), rangeOf(trail))
}

/** @param {SessionRow} row */
const stateOf = ({ status, generating, complete }) =>
  status === 'open' ? (generating ? 'writing' : complete ? 'at rest' : 'reading') : status

/** @type {import('./grid.js').Column<SessionRow>[]} */
const COLUMNS = [
  { key: 'id', title: 'Session', className: 'mono id', sortable: true, fill: (cell, { id }) => setText(cell, id) },
  {
    ...{ key: 'state', title: 'State', className: 'state' },
    fill(cell, row) {
      const state = stateOf(row)
      setText(cell, state)
      cell.dataset.state = state
    },
  },
  {
    key: 'pulse',
    title: 'Pulse',
    className: 'num',
    sortable: true,
    fill: (cell, { pulse }) => setText(cell, count(pulse)),
  },
  {
    ...{ key: 'bits', title: 'Bits/token', className: 'num bits', sortable: true },
    fill: (cell, { bits }) => setText(cell, bits === null ? '–' : bits.toFixed(3)),
  },
  { key: 'trail', title: 'Lately, bits', className: 'trail', fill: fillSpark },
  {
    ...{ key: 'news', title: 'New', className: 'num news', sortable: true },
    fill(cell, row) {
      const news = newsOf(row)
      setText(cell, news === null ? '–' : `${news < 0 ? '−' : '+'}${Math.abs(news).toFixed(1)}`)
    },
  },
  {
    ...{ key: 'age', title: 'Unsaved', className: 'num opt spare', sortable: true },
    fill: (cell, { pulse, snapshot }) => setText(cell, count(pulse - (snapshot ?? 0))),
  },
  {
    ...{ key: 'at', title: 'Active', className: 'num active-at', sortable: true },
    fill: (cell, { at }) => setText(cell, ago((store.frame?.at ?? at) - at)),
  },
]

export const drawSessions = () => {
  const find = /** @type {HTMLInputElement} */ (byId('sessions-find'))
  const sort = { key: 'at', descending: true }
  let sorted = 0
  let seen = -1
  let isStale = true
  /** @type {string[]} */
  let order = []

  const grid = virtualGrid(byId('sessions-grid'), {
    label: 'Sessions',
    columns: COLUMNS,
    rowOf: (id) => store.sessions.get(id),
    onOpen(id) {
      select(id)
      byId('session').scrollIntoView({ block: 'nearest' })
    },
    onSort(key) {
      sort.descending = sort.key === key ? !sort.descending : key !== 'id'
      sort.key = key
      isStale = true
      redraw()
    },
  })

  const arrange = () => {
    const wanted = find.value.trim().toLowerCase()
    const keyOf = /** @type {(row: SessionRow) => number | string} */ (KEYS[sort.key])
    // Sorting what is nearly sorted costs little, so it begins with the last order where that has the same sessions.
    const isSame = seen === store.sessionsSeen && order.length === store.sessions.size && wanted === ''
    const ids = isSame ? order : [...store.sessions.keys()]
    const rows = ids.flatMap((id) => {
      const row = wanted === '' || id.toLowerCase().includes(wanted) ? store.sessions.get(id) : undefined
      return row === undefined ? [] : [row]
    })
    const sign = sort.descending ? -1 : 1
    const keyed = rows.map((row) => /** @type {const} */ ([keyOf(row), row.id]))
    keyed.sort(([a, x], [b, y]) => (a < b ? -sign : a > b ? sign : x < y ? -1 : 1))
    order = keyed.map(([, id]) => id)
    grid.setOrder(order)
    grid.setSort(sort.key, sort.descending ? 'descending' : 'ascending')
    sorted = performance.now()
    seen = store.sessionsSeen
    isStale = false
  }
  find.addEventListener('input', () => {
    isStale = true
    redraw()
  })
  onSelect((id) => grid.setOpened(id))

  onDraw(() => {
    const { frame } = store
    if (frame === null) return
    // Rows do not move under a pointer or while somebody walks through them.
    const isHeld = grid.body.matches(':hover, :focus-within')
    const isOld = performance.now() - sorted > SORT
    if (isStale || (isOld && (seen !== store.sessionsSeen || !isHeld))) arrange()
    else if (isOld) {
      sorted = performance.now()
      grid.refresh()
    } else grid.draw()
    setText(byId('sessions-count'), count(store.sessions.size))
    // Until somebody chooses, the page shows the session that was active last.
    if (store.selected === null && frame.caughtUp) {
      const [first] = [...store.sessions.values()].sort((a, b) => b.at - a.at)
      if (first !== undefined) select(first.id)
    }
  })
}
