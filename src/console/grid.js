// @ts-check
/**
 * A grid of any number of rows, of which only those exist that are seen. It has the keys of an ARIA grid: arrows, Page
 * Up and Down, Home, End, and Enter; the active row is told by aria-activedescendant, so the focus stays where it is
 * while rows come and go.
 */
import { h } from './dom.js'

/** Height of a row, px; console.css has the same. */
export const ROW = 32
/** Rows beyond the edges, for scrolling. */
const BEYOND = 6

/**
 * @template T
 * @typedef {object} Column
 * @property {string} key
 * @property {string} title
 * @property {string} [className]
 * @property {boolean} [sortable]
 * @property {(cell: HTMLElement, row: T) => void} fill
 */

let grids = 0

/**
 * @template T
 * @param {HTMLElement} holder
 * @param {object} options
 * @param {string} options.label
 * @param {readonly Column<T>[]} options.columns
 * @param {(id: string) => T | undefined} options.rowOf
 * @param {(id: string) => void} options.onOpen
 * @param {(key: string) => void} options.onSort
 */
export const virtualGrid = (holder, { label, columns, rowOf, onOpen, onSort }) => {
  grids += 1
  const name = `grid${grids}`
  /** Ids in their order. @type {readonly string[]} */
  let order = []
  let active = 0
  /** @type {string | null} */
  let opened = null
  const heads = columns.map(({ key, title, className = '', sortable }) => {
    const inner = sortable ? h('button', { type: 'button', class: 'sort', onclick: () => onSort(key) }, title) : title
    return h(
      'div',
      { role: 'columnheader', class: `cell ${className}`, 'aria-sort': sortable ? 'none' : undefined },
      inner,
    )
  })
  const header = h('div', { role: 'row', class: 'grid-row', 'aria-rowindex': 1 }, ...heads)
  const space = h('div', { class: 'grid-space', role: 'rowgroup' })
  // What scrolls is the grid itself, with its head in place, so that one element has the focus, the keys and the place.
  const body = h(
    'div',
    {
      ...{ role: 'grid', class: 'grid', tabindex: 0, 'aria-label': label },
      ...{ 'aria-colcount': columns.length, 'aria-readonly': 'true' },
    },
    h('div', { role: 'rowgroup', class: 'grid-head' }, header),
    space,
  )
  holder.append(body)

  /** @typedef {{ element: HTMLElement, cells: HTMLElement[], at: number, row: T | null }} Shown */
  /** @type {Map<number, Shown>} */
  const shown = new Map()
  /** @type {Shown[]} */
  const spare = []

  /** @returns {Shown} */
  const make = () => {
    const cells = columns.map(({ className = '' }) => h('div', { role: 'gridcell', class: `cell ${className}` }))
    const element = h('div', { role: 'row', class: 'grid-row' }, ...cells)
    return { element, cells, at: -1, row: null }
  }

  const draw = () => {
    const first = Math.max(0, Math.floor(body.scrollTop / ROW) - BEYOND)
    const last = Math.min(order.length, Math.ceil((body.scrollTop + body.clientHeight) / ROW) + BEYOND)
    for (const [at, item] of shown) {
      if (at >= first && at < last) continue
      shown.delete(at)
      spare.push(item)
    }
    for (let at = first; at < last; at += 1) {
      const id = /** @type {string} */ (order[at])
      const row = rowOf(id)
      if (row === undefined) continue
      let item = shown.get(at)
      if (item === undefined) {
        // A row that left is moved, not taken out and put in again, which would cost a layout each.
        item = spare.pop()
        if (item === undefined) {
          item = make()
          space.append(item.element)
        }
        item.at = at
        item.row = null
        item.element.style.transform = `translateY(${at * ROW}px)`
        item.element.id = `${name}-${at}`
        item.element.setAttribute('aria-rowindex', String(at + 2))
        shown.set(at, item)
      }
      item.element.classList.toggle('active', at === active)
      item.element.classList.toggle('opened', id === opened)
      item.element.setAttribute('aria-selected', String(id === opened))
      if (item.row === row) continue
      item.row = row
      item.element.dataset.id = id
      for (const [index, column] of columns.entries()) column.fill(/** @type {HTMLElement} */ (item.cells[index]), row)
    }
    for (const item of spare.splice(0)) item.element.remove()
    if (shown.has(active)) body.setAttribute('aria-activedescendant', `${name}-${active}`)
    else body.removeAttribute('aria-activedescendant')
  }

  /** @param {number} at */
  const move = (at) => {
    active = Math.max(0, Math.min(order.length - 1, at))
    // The head covers one row of what is seen.
    const top = active * ROW
    if (top < body.scrollTop) body.scrollTop = top
    else if (top + 2 * ROW > body.scrollTop + body.clientHeight) body.scrollTop = top + 2 * ROW - body.clientHeight
    draw()
  }
  body.addEventListener('scroll', () => draw(), { passive: true })
  new ResizeObserver(() => draw()).observe(body)
  body.addEventListener('keydown', (event) => {
    // The keys of a button in the head are its own.
    if (event.target !== body) return
    const page = Math.max(1, Math.floor(body.clientHeight / ROW) - 2)
    /** @type {Record<string, number>} */
    const to = {
      ArrowDown: active + 1,
      ArrowUp: active - 1,
      PageDown: active + page,
      PageUp: active - page,
      Home: 0,
      End: order.length - 1,
    }
    const at = to[event.key]
    if (at !== undefined) move(at)
    else if (event.key === 'Enter' && order[active] !== undefined) onOpen(/** @type {string} */ (order[active]))
    else return
    event.preventDefault()
  })
  body.addEventListener('click', (event) => {
    const row = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest('[data-id]'))
    const id = row?.dataset.id
    if (id === undefined) return
    active = order.indexOf(id)
    onOpen(id)
  })

  return {
    body,
    /** The active row stays with its session. @param {readonly string[]} ids */
    setOrder(ids) {
      const id = order[active]
      order = ids
      active = Math.max(0, id === undefined ? 0 : ids.indexOf(id))
      space.style.height = `${ids.length * ROW}px`
      body.setAttribute('aria-rowcount', String(ids.length + 1))
      for (const item of shown.values()) item.row = null
      draw()
    },
    /** Fills the rows that are seen anew: times go by. */
    refresh() {
      for (const item of shown.values()) item.row = null
      draw()
    },
    /** @param {string | null} id */
    setOpened(id) {
      opened = id
      draw()
    },
    /** @param {string} key @param {'ascending' | 'descending'} direction */
    setSort(key, direction) {
      for (const [index, column] of columns.entries())
        if (column.sortable) heads[index]?.setAttribute('aria-sort', column.key === key ? direction : 'none')
    },
    draw,
  }
}
