/** How `continuo watch` and the demo print the lines of a stream that stand out. */
import { styleText } from 'node:util'
import type { Observation } from '../../topics/observations.ts'
import { bounded } from '../bounded.ts'
import type { Novelty, Standing, Word } from '../novelty/judge.ts'
import { type Part, standsOut } from '../novelty/stands-out.ts'
import { count, plural, print, printJson, printRow, shortName } from './output.ts'

/** A line like one that was shown is counted; of more patterns than these the oldest are shown again. */
const MOST_PATTERNS = 4096
/** Characters of a line that are shown. */
const SHOWN = 400

/** A line that stands out. */
export interface Found extends Pick<Novelty, Part> {
  readonly session?: string
  readonly standsOut: readonly Part[]
  /** Its number, from 1. */
  readonly line: number
  readonly pattern: string
  readonly seen: number
  readonly first: number | null
  readonly last: number | null
  readonly bits: number
  readonly words: readonly Word[]
  readonly text: string
  /** The earlier line that is most like this one; null: none is; undefined: nobody asked. */
  readonly nearest?: { readonly line: number; readonly text: string } | null
}

const NONE: Standing = { score: 0, rank: null }

/** The lines of an observation that are among the share `top` of the last thousand of their session. */
export const foundIn = (event: Observation, top: number): readonly Found[] => {
  if (event.type !== 'observed') return []
  const { session, lines = [] } = event
  return lines.flatMap((told) => {
    const { text, pattern, words, first = null, last = null, rate = NONE, silence = { ...NONE, kinds: [] } } = told
    const parts = standsOut(told, top)
    if (text === undefined || pattern === undefined || words === undefined || parts.length === 0) return []
    return [{ ...told, rate, silence, session, standsOut: parts, text, pattern, words, first, last }]
  })
}

const rounded = (number: number, digits: number): number => Number(number.toFixed(digits))

/** A line that stands out as JSON says it, with numbers that people can read. */
export const foundAsJson = (found: Found) => {
  const { session, standsOut: parts, line, pattern, seen, first, last, words, text, silence, nearest } = found
  const of = ({ score, rank }: Standing) => ({
    score: rounded(score, 3),
    rank: rank === null ? null : rounded(rank, 4),
  })
  return {
    ...(session !== undefined && { session }),
    line,
    standsOut: parts,
    structure: of(found.structure),
    values: of(found.values),
    rate: of(found.rate),
    silence: { ...of(silence), kinds: parts.includes('silence') ? silence.kinds : [] },
    pattern,
    seen,
    first,
    last,
    bits: rounded(found.bits, 2),
    words: words.map(({ word, bits }) => ({ word, bits: rounded(bits, 2) })),
    text,
    ...(nearest !== undefined && { nearest }),
  }
}

/** The line with the words that cost most marked, on a terminal. */
const marked = (text: string, words: readonly Word[]): string => {
  const shown = text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text
  if (!process.stdout.isTTY) return shown
  return words.reduce((line, { word }) => line.replace(word, (own) => styleText('yellow', own)), shown)
}

export interface Shower {
  show(found: Found): void
  /** Lines that were shown, and those that were only counted. */
  readonly shown: number
  readonly folded: number
}

/** `named`: lines are of several sessions. */
export const createShower = ({ json, named = false }: { json: boolean; named?: boolean }): Shower => {
  const patterns = bounded<true>(MOST_PATTERNS)
  let [shown, folded] = [0, 0]
  const show = (found: Found): void => {
    const { session, standsOut: parts, line, pattern, words, text, silence } = found
    const kinds = parts.includes('silence') ? silence.kinds : []
    // A line at which others are missed is itself nothing to look at.
    const isAbout = parts.some((part) => part !== 'silence')
    const about = [...(isAbout ? [pattern] : []), ...kinds.map((kind) => kind.pattern)]
    const key = `${parts.join(' ')} ${session ?? ''} ${about.join('\n')}`
    const isRepeat = patterns.get(key) !== undefined
    patterns.set(key, true)
    if (isRepeat) folded += 1
    shown += 1
    if (json) {
      printJson(foundAsJson(found))
      return
    }
    if (isRepeat) return
    const ranks = parts.map((part) => `${part} ${found[part].rank!.toFixed(3)}`).join(', ')
    const who = named ? `  ${shortName(session ?? '')}` : ''
    print(`${count(line).padStart(9)}  ${ranks}${who}`)
    for (const { pattern: silent, every, lines } of kinds)
      printRow(`           none for ${plural(lines, 'line')}, where one came every ${count(every)}: ${silent}`)
    if (!isAbout) return
    print(`           ${marked(text, words).replaceAll('\n', '\n           ')}`)
    const dear = words.map(({ word, bits }) => `${word} (${bits.toFixed(0)} bits)`).join(', ')
    if (dear !== '') print(`           new in it: ${dear}`)
    if (found.nearest !== undefined)
      printRow(
        found.nearest === null
          ? '           no earlier line is like it'
          : `           nearest: ${count(found.nearest.line)}  ${found.nearest.text}`,
      )
  }
  return {
    show,
    get shown() {
      return shown
    },
    get folded() {
      return folded
    },
  }
}
