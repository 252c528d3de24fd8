// @ts-check
/**
 * The text of a session in two inks, read and written, each token on a ground that is the darker the less it was
 * expected.
 */
import { h, isStill } from './dom.js'

/**
 * @typedef {import('../gateway/console/types.ts').SessionEvent} SessionEvent
 * @typedef {Extract<SessionEvent, { type: 'read' | 'written' }>} Piece
 */

/** Tokens that stay in the page. */
const MOST_TOKENS = 8000
/** From so many bits on a token has the shade of this index. */
const SHADES = [1, 2, 3.5, 5, 8]

/** @param {number | null | undefined} nats */
export const shadeOf = (nats) => {
  if (nats === null || nats === undefined) return 0
  const bits = nats / Math.LN2
  let shade = 0
  while (shade < SHADES.length && bits >= /** @type {number} */ (SHADES[shade])) shade += 1
  return shade
}

/** What would move the cursor or be invisible, as a sign. @param {string} text */
const visible = (text) =>
  [...text]
    .map((sign) => {
      const code = /** @type {number} */ (sign.codePointAt(0))
      if (code < 0x20 && sign !== '\n' && sign !== '\t') return String.fromCodePoint(0x2400 + code)
      return code === 0x7f ? '␡' : sign
    })
    .join('')

/** @param {Piece} piece */
const blockOf = ({ type, text, nats }) => {
  const block = h('span', { class: type === 'read' ? 'ink-read' : 'ink-written' })
  let run = ''
  let shade = -1
  const end = () => {
    if (run === '') return
    block.append(shade <= 0 ? visible(run) : h('span', { class: `s${shade}` }, visible(run)))
    run = ''
  }
  for (const [at, token] of text.entries()) {
    const next = nats === null ? 0 : shadeOf(nats[at])
    if (next !== shade) end()
    shade = next
    run += token
  }
  end()
  return block
}

/** @param {HTMLElement} holder */
export const textView = (holder) => {
  /** In the order of their pulses. @type {{ from: number, tokens: number, element: HTMLElement }[]} */
  let blocks = []
  let tokens = 0
  /** @type {{ from: number, tokens: number, element: HTMLElement }[]} */
  let waiting = []

  /** @param {{ from: number, tokens: number, element: HTMLElement }} block */
  const insert = (block) => {
    let at = blocks.length
    while (at > 0 && /** @type {any} */ (blocks[at - 1]).from > block.from) at -= 1
    holder.insertBefore(block.element, blocks[at]?.element ?? null)
    blocks.splice(at, 0, block)
    tokens += block.tokens
  }

  return {
    /**
     * Brings the tokens of these pulses to where the reader looks, and marks their piece. Returns whether they are in
     * the page. @param {number} from @param {number} to
     */
    show(from, to) {
      for (const { element } of blocks) element.classList.remove('shown')
      const shown = blocks.filter((block) => block.from < to && block.from + block.tokens > from)
      for (const { element } of shown) element.classList.add('shown')
      shown[0]?.element.scrollIntoView({ block: 'center', behavior: isStill() ? 'auto' : 'smooth' })
      return shown.length > 0
    },
    clear() {
      blocks = []
      waiting = []
      tokens = 0
      holder.replaceChildren()
    },
    /** @param {Piece} piece */
    add(piece) {
      if (piece.text.length > 0)
        waiting.push({ from: piece.from, tokens: piece.to - piece.from, element: blockOf(piece) })
    },
    /** @param {number} from @param {string} text */
    mark(from, text) {
      waiting.push({ from, tokens: 0, element: h('span', { class: 'mark' }, ` ${text} `) })
    },
    /** Puts what came since the last picture into the page; stays at the end where the reader is at the end. */
    draw() {
      if (waiting.length === 0) return
      const isAtEnd = holder.scrollHeight - holder.scrollTop - holder.clientHeight < 40
      for (const block of waiting) insert(block)
      waiting = []
      while (tokens > MOST_TOKENS && blocks.length > 1) {
        const first = /** @type {any} */ (blocks.shift())
        tokens -= first.tokens
        first.element.remove()
      }
      if (isAtEnd) holder.scrollTop = holder.scrollHeight
    },
  }
}
