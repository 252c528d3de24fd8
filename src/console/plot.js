// @ts-check
/** Lines over a scale that moves, by uPlot, in the colours of the theme. */
import UPlot from '/console/uplot.js'
import { colour } from './dom.js'

/**
 * @typedef {{ label: string, colour: string, fill?: boolean }} Line
 * @typedef {{ data: any, range: [number, number] }} Drawing the first row of the data are the places on the x axis
 */

/** @type {Set<() => void>} */
const plots = new Set()

/** The theme changed: all plots take its colours. */
export const recolour = () => {
  for (const again of plots) again()
}

/**
 * @param {HTMLElement} holder
 * @param {readonly Line[]} lines
 * @param {{ time?: boolean, format?: (value: number) => string }} [options] `time`: the x axis is time in seconds since the epoch
 */
export const linePlot = (holder, lines, { time = true, format = (value) => String(value) } = {}) => {
  /** @type {any} */
  let plot = null
  /** @type {Drawing} */
  let last = { data: [[], ...lines.map(() => [])], range: [0, 1] }
  const size = () => ({ width: Math.max(120, holder.clientWidth), height: Math.max(60, holder.clientHeight) })

  const create = () => {
    plot?.destroy()
    const axis = {
      stroke: colour('quiet'),
      font: '11px system-ui, sans-serif',
      grid: { stroke: colour('line'), width: 1 },
      ticks: { show: false },
    }
    const scale = { range: () => last.range }
    plot = new UPlot(
      {
        ...size(),
        pxAlign: 1,
        legend: { show: false },
        cursor: { show: false },
        select: { show: false, left: 0, top: 0, width: 0, height: 0 },
        scales: {
          x: { time, ...scale },
          y: {
            range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ most) => [
              0,
              Math.max(1, (most ?? 1) * 1.1),
            ],
          },
        },
        axes: [
          {
            ...axis,
            grid: { show: false },
            size: 22,
            ...(time
              ? {}
              : {
                  values: (/** @type {any} */ _, /** @type {number[]} */ at) =>
                    at.map((value) => value.toLocaleString('en-US')),
                }),
          },
          {
            ...axis,
            size: 46,
            space: 24,
            values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map(format),
          },
        ],
        series: [
          {},
          ...lines.map((line) => ({
            label: line.label,
            stroke: colour(line.colour),
            width: 1.5,
            points: { show: false },
            ...(line.fill ? { fill: colour(`${line.colour}-soft`) } : {}),
          })),
        ],
      },
      last.data,
      holder,
    )
    plot.root.setAttribute('aria-hidden', 'true')
  }
  create()
  plots.add(create)
  new ResizeObserver(() => {
    const { width, height } = size()
    if (plot.width !== width || plot.height !== height) plot.setSize({ width, height })
  }).observe(holder)
  return {
    /** @param {Drawing} drawing */
    draw(drawing) {
      last = drawing
      plot.setData(drawing.data)
    },
  }
}
