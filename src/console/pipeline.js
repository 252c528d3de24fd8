// @ts-check
/**
 * The pipeline as it stands in docs/architecture.md, with what is inside each stage and what passes from one to the
 * next.
 */
import { byId, count, h, isStill, plural, setText, short } from './dom.js'
import { linePlot } from './plot.js'
import { onDraw, rate, store } from './store.js'

/** @typedef {import('./store.js').PipelineRow} PipelineRow */

/** Time that the lines show, ms. */
const SHOWN = 60_000

/**
 * @typedef {object} Stage
 * @property {string} name
 * @property {string} unit of the number inside
 * @property {(row: PipelineRow) => number | null} inside
 * @property {(row: PipelineRow) => string} note
 * @property {'end' | 'offset' | 'tokens' | 'commits' | null} out rate of what passes on
 * @property {string} outUnit
 */

/** @type {readonly Stage[]} */
const STAGES = [
  {
    ...{ name: 'chunks', unit: 'waiting', out: 'offset', outUnit: 'events/s' },
    inside: ({ lag }) => lag,
    note: ({ end }) => `${short(end)} in the log`,
  },
  {
    ...{ name: 'validate', unit: 'in work', out: 'offset', outUnit: 'events/s' },
    inside: ({ records }) => records,
    note: ({ deadLetters }) => plural(deadLetters, 'dead letter'),
  },
  {
    ...{ name: 'tokenize · infer', unit: 'generating', out: 'tokens', outUnit: 'pulses/s' },
    inside: ({ generating }) => generating,
    note: ({ sessions }) => plural(sessions, 'session'),
  },
  {
    ...{ name: 'emit', unit: 'steps wait', out: 'commits', outUnit: 'commits/s' },
    inside: ({ steps }) => steps,
    note: ({ nats, predictions }) =>
      predictions === 0 ? '' : `${(nats / predictions / Math.LN2).toFixed(3)} bits/token`,
  },
  {
    ...{ name: 'commit', unit: 'commits', out: 'tokens', outUnit: 'tokens/s' },
    inside: ({ commits }) => commits,
    note: ({ commitMs }) => (commitMs === null ? '' : `last ${commitMs.toFixed(1)} ms`),
  },
  {
    ...{ name: 'tokens · state', unit: 'pulses', out: null, outUnit: '' },
    inside: ({ read, generated }) => read + generated,
    note: ({ generated }) => `${short(generated)} written`,
  },
]

/** @param {Stage['out']} out */
const rateOf = (out) => {
  if (out !== 'tokens') return out === null ? null : rate(out)
  const [read, written] = [rate('read'), rate('generated')]
  return read === null || written === null ? null : read + written
}

const ARROW = 'http://www.w3.org/2000/svg'
const arrow = () => {
  const svg = document.createElementNS(ARROW, 'svg')
  svg.setAttribute('viewBox', '0 0 100 8')
  svg.setAttribute('preserveAspectRatio', 'none')
  svg.setAttribute('aria-hidden', 'true')
  for (const [name, d] of [
    ['rail', 'M0 4H100'],
    ['run', 'M0 4H100'],
  ]) {
    const path = document.createElementNS(ARROW, 'path')
    path.setAttribute('class', /** @type {string} */ (name))
    path.setAttribute('d', /** @type {string} */ (d))
    svg.append(path)
  }
  return svg
}

export const drawPipeline = () => {
  const stages = STAGES.map((stage) => {
    const number = h('span', { class: 'number' }, '–')
    const note = h('span', { class: 'note' })
    const out = h('span', { class: 'rate' })
    const box = h(
      'div',
      { class: 'box' },
      h('h3', {}, stage.name),
      number,
      h('span', { class: 'unit' }, stage.unit),
      note,
    )
    const item = h('li', { class: 'stage' }, box)
    const flow = h('div', { class: 'arrow' }, out, arrow(), h('span', { class: 'per' }, stage.outUnit))
    if (stage.out !== null) item.append(flow)
    return { stage, number, note, out, flow, box, item }
  })
  const figure = byId('flow-figure')
  const trouble = h('p', { class: 'trouble', role: 'alert' })
  byId('stages').append(...stages.map(({ item }) => item))
  byId('stages').after(trouble)
  const plot = linePlot(byId('flow'), [
    { label: 'read', colour: 'read', fill: true },
    { label: 'written', colour: 'written' },
  ])
  let commits = -1
  let drawn = 0

  onDraw(() => {
    const { frame } = store
    if (frame === null) return
    for (const { stage, number, note, out, flow, box } of stages) {
      const inside = stage.inside(frame.pipeline)
      setText(number, inside === null ? '–' : short(inside))
      setText(note, stage.note(frame.pipeline))
      const passes = rateOf(stage.out)
      if (stage.out !== null) {
        setText(out, passes === null ? '' : short(passes))
        flow.classList.toggle('flowing', passes !== null && passes > 0)
      }
      if (stage.name === 'commit' && frame.pipeline.commits !== commits) {
        if (commits >= 0 && !isStill())
          box.animate([{ backgroundColor: 'var(--accent-soft)' }, { backgroundColor: 'transparent' }], 500)
        commits = frame.pipeline.commits
      }
    }
    const refused = frame.partitions.filter(({ failure, worker }) => failure ?? worker?.state === 'refused')
    const sentence = refused
      .map(({ partition, failure, worker }) => `Partition ${partition}: ${failure ?? worker?.reason}`)
      .join(' ')
    setText(trouble, sentence)
    trouble.hidden = sentence === ''
    if (frame.at - drawn < 250) return
    drawn = frame.at
    const flow = flowOf(frame.at)
    // A chart of nothing is not shown above everything; one that was there stays.
    if (
      flow.data.some(
        (/** @type {number[]} */ line, /** @type {number} */ at) => at > 0 && line.some((rate) => rate > 0),
      )
    )
      figure.hidden = false
    plot.draw(flow)
  })
}

/**
 * Tokens a second, read and written, over stretches of a second.
 * @param {number} now
 * @returns {import('./plot.js').Drawing}
 */
const flowOf = (now) => {
  const times = []
  const read = []
  const written = []
  let from = store.samples[0]
  for (const sample of store.samples) {
    if (from === undefined || sample.at - from.at < 1000) continue
    const seconds = (sample.at - from.at) / 1000
    times.push(sample.at / 1000)
    read.push(Math.max(0, sample.read - from.read) / seconds)
    written.push(Math.max(0, sample.generated - from.generated) / seconds)
    from = sample
  }
  return { data: [times, read, written], range: [(now - SHOWN) / 1000, now / 1000] }
}

/** @param {PipelineRow} row */
export const inWords = (row) =>
  `${count(row.read)} tokens read, ${count(row.generated)} written, ${count(row.lag)} events waiting, ${count(row.commits)} commits`
