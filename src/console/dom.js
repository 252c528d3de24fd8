// @ts-check
/** Elements, numbers and times as text. Text goes into the page as text only: nothing is ever parsed as HTML. */

/** @typedef {Record<string, string | number | boolean | ((event: any) => void) | undefined>} Attributes */

/**
 * The element with this id; the page has all of them.
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} id
 * @returns {T}
 */
export const byId = (id) => /** @type {T} */ (document.getElementById(id))

/**
 * A new element: attributes as they are, `on…` functions as listeners, texts as text nodes.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {Attributes} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export const h = (name, attributes = {}, ...children) => {
  const element = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(key.slice(2), value)
    else if (value === true) element.setAttribute(key, '')
    else if (value !== undefined && value !== false) element.setAttribute(key, String(value))
  }
  element.append(...children)
  return element
}

/**
 * Sets a text only where it differs: an equal text costs no layout, and no reader hears it again.
 * @param {Element} element
 * @param {string} text
 */
export const setText = (element, text) => {
  if (element.textContent !== text) element.textContent = text
}

/**
 * A text without its middle, where it has more characters than that.
 * @param {string} text
 * @param {number} most
 */
export const withoutMiddle = (text, most) => {
  const signs = [...text]
  const half = Math.floor((most - 1) / 2)
  return signs.length <= most ? text : `${signs.slice(0, half).join('')}…${signs.slice(-half).join('')}`
}

/**
 * A text that came from outside, such as a name, in one line: whole on hover, and without effect on the direction of
 * what stands beside it.
 * @param {string} text
 * @param {number} [most] characters that are shown
 */
export const outside = (text, most = 48) => {
  const shown = withoutMiddle(text, most)
  return h('bdi', { title: shown === text ? undefined : text }, shown)
}

const whole = new Intl.NumberFormat('en-US')

/** @param {number} value */
export const count = (value) => whole.format(Math.round(value))

/** @param {number} value */
export const short = (value) => {
  if (!Number.isFinite(value)) return '–'
  const size = Math.abs(value)
  if (size >= 1e9) return `${(value / 1e9).toFixed(1)}G`
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)}M`
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)}k`
  return size >= 100 || Number.isInteger(value) ? count(value) : value.toFixed(1)
}

/** @param {number} value */
export const bytes = (value) => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let at = 0
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024
    at += 1
  }
  return `${at === 0 ? value : value.toFixed(1)} ${units[at]}`
}

/** @param {number} at ms since the epoch */
export const clock = (at) => new Date(at).toLocaleTimeString('en-GB')

/** @param {number} ms */
export const ago = (ms) => {
  const seconds = Math.max(0, Math.round(ms / 1000))
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`
  return seconds < 86_400 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} d`
}

/** @param {number} n @param {string} noun */
export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? '' : 's'}`

/** Whether the reader asked for little movement. */
export const isStill = () => matchMedia('(prefers-reduced-motion: reduce)').matches

/** Colours of console.css as the theme has them now. @type {Map<string, string>} */
const colours = new Map()

/** The theme changed. */
export const forgetColours = () => colours.clear()

/** The value of a colour of console.css, for a canvas, which knows no variables. @param {string} name */
export const colour = (name) => {
  const known = colours.get(name)
  if (known !== undefined) return known
  const probe = document.body.appendChild(h('i'))
  probe.style.color = `var(--${name})`
  const { color } = getComputedStyle(probe)
  probe.remove()
  colours.set(name, color)
  return color
}

/**
 * A canvas at the size that it has on the screen, cleared.
 * @param {HTMLCanvasElement} canvas
 */
export const cleared = (canvas) => {
  const { clientWidth: width, clientHeight: height } = canvas
  const scale = devicePixelRatio || 1
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale)
    canvas.height = Math.round(height * scale)
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'))
  context.setTransform(scale, 0, 0, scale, 0, 0)
  context.clearRect(0, 0, width, height)
  return { context, width, height }
}
