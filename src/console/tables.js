// @ts-check
/** Partitions, workers, and dead letters with their way back into the input. */
import { get, post } from './api.js'
import { ago, byId, bytes, clock, count, h, outside, setText, withoutMiddle } from './dom.js'
import { onDraw, redraw, store } from './store.js'

/**
 * Rows of cells into a table; a row is touched only where a text of it differs.
 * @param {HTMLTableElement} table
 * @param {readonly string[]} titles
 * @param {ReadonlySet<number>} numbers columns of numbers
 */
const plainTable = (table, titles, numbers) => {
  const body = h('tbody')
  const kind = (/** @type {number} */ at) => (numbers.has(at) ? 'num' : '')
  table.append(
    h('thead', {}, h('tr', {}, ...titles.map((title, at) => h('th', { scope: 'col', class: kind(at) }, title)))),
    body,
  )
  return (/** @type {readonly (readonly string[])[]} */ rows) => {
    while (body.rows.length > rows.length) body.deleteRow(-1)
    for (const [at, texts] of rows.entries()) {
      const row =
        body.rows[at] ?? body.appendChild(h('tr', {}, ...titles.map((_, column) => h('td', { class: kind(column) }))))
      for (const [column, text] of texts.entries()) setText(/** @type {Element} */ (row.cells[column]), text)
    }
  }
}

export const drawTables = () => {
  const partitions = plainTable(
    /** @type {HTMLTableElement} */ (byId('partitions-table')),
    ['Partition', 'State', 'Owner', 'Offset', 'Lag', 'Sessions', 'Pulse', 'In memory', 'Last commit'],
    new Set([3, 4, 5, 6, 7, 8]),
  )
  const workers = plainTable(
    /** @type {HTMLTableElement} */ (byId('workers-table')),
    ['Worker', 'State', 'Tokens/s', 'Resident', 'Paged', 'Sleeping blocks', 'Experts in memory'],
    new Set([2, 3, 4, 5, 6]),
  )
  onDraw(() => {
    const { frame } = store
    if (frame === null) return
    partitions(
      frame.partitions.map(({ partition, worker, failure, owner, offset, end, sessions, pulse, at, commits }) => [
        String(partition),
        failure ??
          (worker === undefined
            ? owner === null
              ? 'no worker'
              : 'served'
            : `${worker.state}${worker.reason === undefined ? '' : `: ${worker.reason}`}`),
        owner ?? '–',
        offset === null ? '–' : count(offset),
        offset === null || end === null ? '–' : count(Math.max(0, end - offset)),
        count(sessions),
        count(pulse),
        worker === undefined ? '–' : bytes(worker.bytes),
        at === null || commits === 0 ? '–' : `${ago(frame.at - at)} ago`,
      ]),
    )
    workers(
      frame.workers.map((worker) => [
        worker.url ?? 'this process',
        worker.reachable
          ? `${worker.ready ? 'ready' : 'not ready'}, ${worker.device}`
          : worker.instance === null
            ? 'not there yet'
            : 'does not answer',
        count(worker.speed),
        bytes(worker.residentBytes),
        bytes(worker.spillBytes),
        worker.blocks === null ? '–' : `${bytes(worker.blocks.bytes)} + ${bytes(worker.blocks.fileBytes)} in files`,
        worker.experts === null ? '–' : `${bytes(worker.experts.residentBytes)} of ${bytes(worker.experts.bound)}`,
      ]),
    )
  })
}

/** @typedef {import('../gateway/console/routes.ts').Letter} Letter */

export const drawLetters = () => {
  const table = /** @type {HTMLTableElement} */ (byId('letters-table'))
  const status = byId('letters-status')
  const body = h('tbody')
  const titles = ['When', 'Session', 'Event', 'Reason', 'Bytes', '']
  table.append(
    h('thead', {}, h('tr', {}, ...titles.map((title) => (title === '' ? h('td') : h('th', { scope: 'col' }, title))))),
    body,
  )
  let known = -1
  let isAsking = false
  /** Letters that were sent again from this page. */
  const sent = new Set()

  /** @param {Letter} letter @param {HTMLButtonElement} button */
  const replay = async ({ partition, offset }, button) => {
    button.disabled = true
    try {
      const placed = await post('/v1/console/deadletters/replay', { partition, offset })
      sent.add(`${partition}:${offset}`)
      setText(button, 'Sent again')
      setText(status, `The event went into the input again, at partition ${placed.partition}, offset ${placed.offset}.`)
    } catch (error) {
      button.disabled = false
      setText(status, /** @type {Error} */ (error).message)
    }
  }

  /** @param {Letter} letter */
  const rowOf = (letter) => {
    const { partition, offset, at, session, reason, text, bytes: size } = letter
    const isSent = sent.has(`${partition}:${offset}`)
    const button = h(
      'button',
      {
        type: 'button',
        class: 'plain',
        disabled: isSent,
        'aria-label': `Replay the dead letter of ${session === null ? 'no session' : withoutMiddle(session, 48)} at offset ${letter.from.offset}`,
      },
      isSent ? 'Sent again' : 'Replay',
    )
    button.addEventListener('click', () => void replay(letter, button))
    return h(
      'tr',
      { 'data-letter': `${partition}:${offset}` },
      h('td', {}, clock(at)),
      h('td', { class: 'mono' }, session === null ? '–' : outside(session)),
      h('td', { class: 'mono event' }, h('bdi', {}, text)),
      h('td', { class: 'reason' }, reason === null ? '–' : outside(reason, 400)),
      h('td', { class: 'num' }, count(size)),
      h('td', {}, button),
    )
  }

  const ask = async () => {
    isAsking = true
    try {
      const { letters } = await get('/v1/console/deadletters')
      body.replaceChildren(...letters.map(rowOf))
      if (letters.length === 0) setText(status, 'There are none.')
      else if (status.textContent === 'There are none.') setText(status, '')
    } catch (error) {
      setText(status, /** @type {Error} */ (error).message)
      known = -1
    }
    isAsking = false
    redraw()
  }

  onDraw(() => {
    const letters = store.frame?.pipeline.deadLetters
    if (letters === undefined) return
    byId('letters').hidden = letters === 0
    setText(byId('letters-count'), count(letters))
    if (letters === known || isAsking) return
    known = letters
    void ask()
  })
}
