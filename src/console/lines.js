// @ts-check
/**
 * The lines of a session that tells of them: how many stand out, and which, with the words that cost most in shades.
 */
import { byId, clock, count, h, plural, setText } from './dom.js'
import { linePlot } from './plot.js'
import { redraw } from './store.js'
import { shadeOf } from './text.js'

/**
 * @typedef {import('../gateway/console/types.ts').FoundLine} FoundLine
 * @typedef {{ first: number, last: number, found: readonly FoundLine[] }} Told
 * @typedef {{ found: FoundLine, times: number }} Row a line, and how many later ones were like it
 */

/** Lines that stay in the page, and those of them that are shown. */
const MOST_LINES = 4000
const MOST_ROWS = 100
/** Lines that one point of the plot is about. */
const EACH = 100
const MOST_POINTS = 500

/** @param {FoundLine} found @param {number} top */
const partsOf = ({ ranks }, top) => Object.keys(ranks).filter((part) => /** @type {number} */ (ranks[part]) >= 1 - top)

/** The line, its dear words in the shades that a token of a session's text has. @param {FoundLine} found */
const marked = ({ text, words }) => {
  const line = h('span', { class: 'mono text-of' })
  const places = words
    .map(({ word, bits }) => ({ at: text.indexOf(word), word, bits }))
    .filter(({ at }) => at >= 0)
    .sort((a, b) => a.at - b.at)
  let end = 0
  for (const { at, word, bits } of places) {
    if (at < end) continue
    line.append(text.slice(end, at))
    line.append(h('span', { class: `s${Math.max(1, shadeOf((bits * Math.LN2) / word.length))}` }, word))
    end = at + word.length
  }
  line.append(text.slice(end))
  return line
}

/** @param {(from: number, to: number) => boolean} show brings a place of the text into sight, where the page has it */
export const linesView = (show) => {
  const section = byId('lines')
  const list = byId('lines-list')
  const note = byId('lines-note')
  const top = /** @type {HTMLSelectElement} */ (byId('lines-top'))
  const plot = linePlot(byId('lines-plot'), [{ label: 'lines that stand out', colour: 'read', fill: true }], {
    time: false,
    format: (value) => value.toFixed(0),
  })
  /** @type {FoundLine[]} */
  let lines = []
  let [first, last] = [0, 0]
  let isMoved = true

  /** @param {Row} row */
  const item = ({ found, times }) => {
    const { line, at, from, to, bits, seen, before, pattern, words } = found
    const parts = partsOf(found, Number(top.value))
    const silent = parts.includes('silence') ? (found.silent ?? []) : []
    // A line at which others are missed is itself nothing to look at.
    const isAbout = parts.some((part) => part !== 'silence')
    const open = h(
      'button',
      {
        type: 'button',
        class: 'plain',
        'aria-label': `Line ${count(line)} in the text`,
        onclick: () =>
          setText(
            note,
            show(from, to)
              ? `Line ${count(line)} is marked in the text of the session.`
              : `The text of line ${count(line)} is not in the page any more: it was read at pulse ${count(from)}.`,
          ),
      },
      count(line),
    )
    const about = [
      `${parts.map((part) => `${part} ${/** @type {number} */ (found.ranks[part]).toFixed(3)}`).join(', ')}`,
      ...(isAbout
        ? [
            `${bits.toFixed(0)} bits`,
            seen === 0 || before === null
              ? 'first of its kind'
              : `${plural(seen, 'line')} like it before, pulses ${count(before.first)} to ${count(before.last)}`,
          ]
        : []),
      ...(times > 1 ? [`${count(times)} times here`] : []),
    ].join(' · ')
    const dear = words.map(({ word, bits: own }) => `${word} (${own.toFixed(0)} bits)`).join(', ')
    return h(
      'li',
      {},
      open,
      h('time', { datetime: new Date(at).toISOString() }, clock(at)),
      h(
        'div',
        {},
        ...silent.map((kind) =>
          h(
            'p',
            {},
            `none for ${plural(kind.lines, 'line')}, where one came every ${count(kind.every)}: `,
            h('span', { class: 'mono' }, kind.pattern),
          ),
        ),
        isAbout ? marked(found) : '',
        h('p', { class: 'quiet', title: `${pattern}${dear === '' ? '' : `\nnew in it: ${dear}`}` }, about),
      ),
    )
  }

  /**
   * Lines of one pattern, for the same reason, are one row: the last of them. @param {readonly FoundLine[]} standing
   */
  const rowsOf = (standing) => {
    /** @type {Map<string, Row>} */
    const rows = new Map()
    for (const found of standing) {
      const parts = partsOf(found, Number(top.value))
      const silent = parts.includes('silence') ? (found.silent ?? []).map((kind) => kind.pattern) : []
      const key = [...parts, ...silent, ...(parts.some((part) => part !== 'silence') ? [found.pattern] : [])].join('\n')
      const times = (rows.get(key)?.times ?? 0) + 1
      rows.delete(key)
      rows.set(key, { found, times })
    }
    return [...rows.values()].reverse()
  }

  top.addEventListener('change', () => {
    isMoved = true
    draw()
    redraw()
  })

  const draw = () => {
    section.hidden = last === 0
    if (!isMoved || last === 0) return
    isMoved = false
    const standing = lines.filter((found) => partsOf(found, Number(top.value)).length > 0)
    const rows = rowsOf(standing)
    setText(
      byId('lines-count'),
      `${count(standing.length)} of ${count(last - first + 1)} stand out${standing.length > rows.length ? `, ${plural(rows.length, 'kind')}` : ''}`,
    )
    list.replaceChildren(...rows.slice(0, MOST_ROWS).map(item))
    const begin = Math.max(Math.floor((first - 1) / EACH), Math.ceil(last / EACH) - MOST_POINTS)
    const points = Array.from({ length: Math.ceil(last / EACH) - begin }, () => 0)
    for (const { line } of standing) {
      const at = Math.floor((line - 1) / EACH) - begin
      if (at >= 0) points[at] = /** @type {number} */ (points[at]) + 1
    }
    const xs = points.map((_, at) => (begin + at) * EACH + EACH / 2)
    plot.draw({ data: [xs, points], range: [begin * EACH, Math.max(begin * EACH + EACH, last)] })
  }

  return {
    clear() {
      lines = []
      first = last = 0
      isMoved = true
      list.replaceChildren()
      setText(note, '')
    },
    /** @param {Told} told */
    take(told) {
      if (first === 0) first = told.first
      // A context that was closed and begun anew counts from 1 again.
      if (told.first <= last) {
        lines = []
        first = told.first
      }
      last = told.last
      lines.push(...told.found)
      if (lines.length > MOST_LINES) lines = lines.slice(-MOST_LINES)
      isMoved = true
    },
    draw,
  }
}
