/**
 * Facts and questions in the words that models/recall was trained on (train/recall/texts.py), and long texts to lose
 * them in.
 */
const NAMES = 'key code number price weight age size height depth rank date cost score mark load'.split(' ')
const KINDS =
  'blue red green black white silver golden old new small large tall broken quiet northern southern wooden iron stone'.split(
    ' ',
  )
const THINGS =
  'door house ship garden tower bridge river table lamp horse wagon letter book clock mill farm castle road market island'.split(
    ' ',
  )

export interface Fact {
  /** As `key of the blue door`. */
  readonly what: string
  /** Four digits. */
  readonly value: string
}

/** xorshift32: the same numbers everywhere. */
export const randomFrom = (seed: number): ((below: number) => number) => {
  let x = Math.imul(seed + 1, 2_654_435_761) >>> 0 || 1
  return (below) => {
    x ^= x << 13
    x = (x ^ (x >>> 17)) >>> 0
    x = (x ^ (x << 5)) >>> 0
    return Math.floor((x / 2 ** 32) * below)
  }
}

/** `count` facts about different things. */
export const factsFrom = (seed: number, count: number): readonly Fact[] => {
  const random = randomFrom(seed)
  const found = new Map<string, Fact>()
  while (found.size < count) {
    const what = `${NAMES[random(NAMES.length)]} of the ${KINDS[random(KINDS.length)]} ${THINGS[random(THINGS.length)]}`
    const value = Array.from({ length: 4 }, () => random(10)).join('')
    if (!found.has(what)) found.set(what, { what, value })
  }
  return [...found.values()]
}

export const stated = ({ what, value }: Fact): string => ` The ${what} is ${value}. `
/** The model answers `The … is<RETRIEVE> 7319.`: it asks its memory itself. */
export const question = ({ what }: Fact): string => `\nWhat is the ${what}?`
/** What a right answer has. */
export const isRight = (answer: string, { value }: Fact): boolean => answer.includes(value)

/** At least `length` characters: the paragraphs of a text again and again, each time in another order. */
export const longText = (text: string, length: number, seed: number): string => {
  const random = randomFrom(seed)
  const paragraphs = text.split(/\n{2,}/)
  const parts: string[] = []
  for (let size = 0; size < length; ) {
    for (let i = paragraphs.length - 1; i > 0; i -= 1) {
      const j = random(i + 1)
      ;[paragraphs[i], paragraphs[j]] = [paragraphs[j]!, paragraphs[i]!]
    }
    for (const paragraph of paragraphs) {
      parts.push(paragraph)
      size += paragraph.length + 2
    }
  }
  return parts.join('\n\n')
}

/** `facts` among the words of `text`, evenly, between the characters `from` and `to`. */
export const told = (text: string, facts: readonly Fact[], from: number, to: number): string => {
  let out = ''
  let at = 0
  for (const [i, fact] of facts.entries()) {
    const near = from + Math.floor(((to - from) * i) / facts.length)
    const space = text.indexOf(' ', near)
    const cut = space < 0 ? text.length : space
    out += text.slice(at, cut) + stated(fact)
    at = cut
  }
  return out + text.slice(at)
}
