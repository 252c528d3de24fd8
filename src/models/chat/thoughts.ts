/**
 * What a model thinks before it answers: `<think>…</think>` in front of the answer, as Qwen 3, the distillations of
 * DeepSeek R1 and RWKV G1 write it.
 */

const OPEN = '<think>'
const CLOSE = '</think>'
/** Behind a prompt that opens thoughts, where there shall be none. */
export const NO_THOUGHTS = `\n${CLOSE}\n\n`

/** Whether a template knows of thoughts. */
export const knowsThoughts = (source: string): boolean => source.includes(OPEN) || /\benable_thinking\b/.test(source)

/** Whether a prompt ends within thoughts that it opened. */
export const opensThoughts = (prompt: string): boolean => prompt.trimEnd().endsWith(OPEN)

/**
 * Where an answer begins: `plain`, it is text alone; `before`, thoughts may come; `inside` of them; `opening` and
 * `closing`, in their tags, before the last letter. The places in this list are in ids of responses.
 */
export const STARTS = ['plain', 'before', 'inside', 'opening', 'closing'] as const
export type Start = (typeof STARTS)[number]

/** `goesOn`: the prompt ends in an answer that is gone on with. */
export const startBehind = (prompt: string, goesOn: boolean): Start => {
  if (opensThoughts(prompt)) return 'inside'
  if (prompt.endsWith(OPEN.slice(0, -1))) return 'opening'
  if (prompt.endsWith(CLOSE.slice(0, -1))) return 'closing'
  return goesOn ? 'plain' : 'before'
}

/** What stands in a piece of an answer. */
export interface Thought {
  readonly thought: string
  readonly text: string
}

export interface ThoughtReader {
  push(text: string): Thought
  /** The answer is over, or something else than text begins: what is held back is told. */
  end(): Thought
  /** Whether the answer stands within thoughts; null: that is not known yet. */
  thinks(): boolean | null
}

/**
 * How much of the end may yet be the tag that closes thoughts, with the white space before it, which is no part of
 * them.
 */
const heldAtEnd = (text: string): number => {
  let tag = Math.min(CLOSE.length - 1, text.length)
  while (!CLOSE.startsWith(text.slice(text.length - tag))) tag -= 1
  return text.length - text.slice(0, text.length - tag).trimEnd().length
}

/**
 * Reads thoughts and text out of an answer, piece by piece. The white space around thoughts, and line ends before the
 * text, are part of neither.
 */
export const readThoughts = (start: Start): ThoughtReader => {
  let at: Start | 'behind' = start
  let held = ''
  let begun = false
  const takeTag = (): void => {
    if (held === '') return
    if (held.startsWith('>')) held = held.slice(1)
    at = at === 'opening' ? 'inside' : 'behind'
  }
  return {
    push(piece) {
      held += piece
      let thought = ''
      let text = ''
      if (at === 'opening' || at === 'closing') takeTag()
      if (at === 'before') {
        const said = held.trimStart()
        if (said.startsWith(OPEN)) {
          at = 'inside'
          held = said.slice(OPEN.length)
        } else if (!OPEN.startsWith(said)) at = 'plain'
      }
      if (at === 'inside') {
        if (!begun) held = held.trimStart()
        const end = held.indexOf(CLOSE)
        thought = end < 0 ? held.slice(0, held.length - heldAtEnd(held)) : held.slice(0, end).trimEnd()
        begun ||= thought !== ''
        held = held.slice(end < 0 ? thought.length : end + CLOSE.length)
        if (end >= 0) at = 'behind'
      }
      if (at === 'behind') {
        held = held.replace(/^[\r\n]+/, '')
        if (held !== '') at = 'plain'
      }
      if (at === 'plain') {
        text = held
        held = ''
      }
      return { thought, text }
    },
    end() {
      const rest = held
      held = ''
      if (at === 'inside') return { thought: rest, text: '' }
      return { thought: '', text: at === 'before' ? rest : '' }
    },
    thinks: () => (at === 'before' ? null : at === 'inside' || at === 'opening'),
  }
}
