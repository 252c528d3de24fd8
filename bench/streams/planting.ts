/** A log with lines planted in it that ought to be found, of five kinds. The same log and seed give the same lines. */
import { randomFrom } from '../../src/cli/demo/facts.ts'
import type { LogLine } from './logs.ts'

export const KINDS = ['structure', 'word', 'order', 'number', 'burst'] as const
export type Kind = (typeof KINDS)[number]

/** What KINDS are, for people. */
export const MEANINGS: { readonly [kind in Kind]: string } = {
  structure: 'a line of another system',
  word: 'a word never seen in a known line',
  order: 'the halves of a line exchanged',
  number: 'a number a thousand times larger',
  burst: 'a burst of 40 equal lines (its tenth)',
}

export interface Planted {
  readonly lines: readonly LogLine[]
  /** Which lines were planted; of a burst one. */
  readonly marks: readonly { readonly at: number; readonly kind: Kind }[]
}

/** Lines before the first planted one, and behind the last. */
const BEFORE = 800
const BEHIND = 60
/** Of every kind but bursts, of which a log has one. */
const EACH = 5
const BURST = 40
const TENTH = 9
/** Lines, or words, that are drawn until one will do. */
const DRAWS = 1000
/** A heartbeat comes once in so many lines, every other one a line later. */
export const EVERY = 20

const FOREIGN = [
  'valve 3 of the cooling loop did not close within 20 s',
  'lost quorum: 2 of 5 voters reachable, stepping down',
  'invoice run aborted, ledger is 14 cents off',
  'page allocation failure, order:4, mode:0x40d0',
  'calibration of the tide gauge refused by operator',
  'certificate for mail.example.org expired 3 days ago',
  'clock stepped back by 3 hours',
  'replica fell behind by 81920 pages and was detached',
  'panic: runtime error: index out of range [7] with length 7',
  'spool folder cannot be written to, jobs are dropped',
]

/** `undefined`: no line of the log can have it. */
type Change = (line: string, nth: number) => string | undefined

/**
 * The log needs 1,001 lines or more, as readLog sees to. A kind that none of DRAWS drawn lines can have is left out.
 */
export const plant = (log: readonly LogLine[], seed: number): Planted => {
  const random = randomFrom(seed)
  const all = log.map(({ content }) => content).join('\n')
  const pick = <T>(from: readonly T[]): T | undefined => from[random(from.length)]
  const letter = (of: string): string => of[random(of.length)]!
  const wordNeverSeen = (): string => {
    let word = ''
    for (let draws = 0; draws < DRAWS && (word === '' || all.includes(word)); draws += 1)
      word = Array.from({ length: 3 }, () => letter('bcdfgklmnprst') + letter('aeiou')).join('')
    return word
  }
  const offset = random(FOREIGN.length)
  const changes: { readonly [kind in Exclude<Kind, 'burst'>]: Change } = {
    structure: (_, nth) => FOREIGN[(offset + nth) % FOREIGN.length]!,
    word(line) {
      const word = pick([...line.matchAll(/[A-Za-z]{4,}/g)])
      return word && line.slice(0, word.index) + wordNeverSeen() + line.slice(word.index + word[0].length)
    },
    order(line) {
      const words = line.split(' ')
      const half = words.length >> 1
      const turned = [...words.slice(half), ...words.slice(0, half)].join(' ')
      return words.length < 4 || turned === line ? undefined : turned
    },
    number(line) {
      const digits = pick([...line.matchAll(/[1-9][0-9]*/g)])
      if (digits === undefined) return undefined
      const end = digits.index + digits[0].length
      return line.slice(0, end) + String(100 + random(900)) + line.slice(end)
    },
  }

  const last = log.length - BEHIND - BURST
  const places = new Map<number, { readonly kind: Kind; readonly line: string }[]>()
  const put = (at: number, kind: Kind, line: string): void =>
    void places.set(at, [...(places.get(at) ?? []), { kind, line }])
  for (const kind of KINDS)
    for (let nth = 0; nth < (kind === 'burst' ? 1 : EACH); nth += 1)
      for (let draws = 0; draws < DRAWS; draws += 1) {
        const at = BEFORE + random(last - BEFORE)
        const { content } = log[at]!
        const line = kind === 'burst' ? content : changes[kind](content, nth)
        if (line === undefined) continue
        put(at, kind, line)
        break
      }

  const lines: LogLine[] = []
  const marks: { at: number; kind: Kind }[] = []
  for (const [at, source] of log.entries()) {
    for (const { kind, line } of places.get(at) ?? []) {
      const copies = kind === 'burst' ? BURST : 1
      marks.push({ at: lines.length + (kind === 'burst' ? TENTH : 0), kind })
      for (let i = 0; i < copies; i += 1) lines.push({ ...source, content: line })
    }
    lines.push(source)
  }
  return { lines, marks }
}

/**
 * The log with a heartbeat among its lines; `stop`: the line behind which none comes any more, somewhere behind line
 * 800.
 */
export const plantHeartbeat = (
  log: readonly LogLine[],
  seed: number,
): { readonly lines: readonly LogLine[]; readonly stop: number } => {
  const end = BEFORE + randomFrom(seed)((log.length - BEFORE) >> 1)
  const lines: LogLine[] = []
  let stop = 0
  for (const [at, source] of log.entries()) {
    const beat = Math.floor(at / EVERY)
    if (at < end && at === beat * EVERY + (beat % 2)) {
      lines.push({ ...source, content: `node ${beat % 4} is alive, ${beat} beats so far` })
      stop = lines.length
    }
    lines.push(source)
  }
  return { lines, stop }
}
