/**
 * Normalizers on a stream. Text is cut before a character where what precedes cannot change with it: where, fully
 * decomposed, its first character is neither a mark nor the second of any composition. (Unicode Standard Annex 15,
 * stable code points.) So the last such character and the marks behind it are held back.
 */
import { z } from 'zod'
import { MOST_GROWTH, MOST_HELD, MOST_STAGES } from './limits.ts'
import { Unstreamable } from './unstreamable.ts'

export interface NormalizerPlan {
  /** The mark that the normalizer puts in the place of spaces; null where it puts none. */
  readonly spaceMark: string | null
  /** Whether text that it normalized has no space. */
  readonly leavesNoSpace: boolean
  /** Whether it puts something before each section. */
  readonly prepends: boolean
  /** Normalizes the first part of a section, with what is put before it. */
  readonly first: (text: string) => string
  /** Normalizes any later part of a section. */
  readonly rest: (text: string) => string
  /** Whether text may be cut before this character. */
  readonly splitsBefore: (char: string) => boolean
}

type Form = 'NFC' | 'NFD' | 'NFKC' | 'NFKD'
type Step =
  | { readonly kind: 'form'; readonly form: Form }
  | { readonly kind: 'replace'; readonly from: string; readonly to: string }
  | { readonly kind: 'prepend'; readonly text: string }

let seconds: Set<string> | null = null

/** Characters that stand behind the first one in some canonical decomposition. */
const composedSeconds = (): Set<string> => {
  if (seconds !== null) return seconds
  seconds = new Set()
  for (let code = 0xc0; code < 0x110000; code += 1) {
    if (code === 0xd800) code = 0xe000
    // Planes 3 to 15 hold no compositions.
    if (code === 0x30000) break
    const char = String.fromCodePoint(code)
    const parts = char.normalize('NFD')
    if (parts !== char) for (const part of [...parts].slice(1)) seconds.add(part)
  }
  return seconds
}

const firstOf = (text: string): string => String.fromCodePoint(text.codePointAt(0)!)

const stepsOf = (json: unknown): Step[] => {
  const item = z.looseObject({ type: z.string() }).safeParse(json)
  if (!item.success) throw new Unstreamable('a malformed normalizer: expected an object with a type')
  const { type } = item.data
  switch (type) {
    case 'NFC':
    case 'NFD':
    case 'NFKC':
    case 'NFKD':
      return [{ kind: 'form', form: type }]
    case 'Sequence': {
      const list = z.looseObject({ normalizers: z.array(z.unknown()) }).safeParse(json)
      if (!list.success) throw new Unstreamable('a normalizer of type Sequence without a list of normalizers')
      return list.data.normalizers.flatMap(stepsOf)
    }
    case 'Prepend': {
      const found = z.looseObject({ prepend: z.string() }).safeParse(json)
      if (!found.success) throw new Unstreamable('a normalizer of type Prepend without a text')
      return found.data.prepend === '' ? [] : [{ kind: 'prepend', text: found.data.prepend }]
    }
    case 'Replace': {
      const found = z
        .looseObject({ pattern: z.strictObject({ String: z.string() }), content: z.string().min(1) })
        .safeParse(json)
      if (!found.success || [...found.data.pattern.String].length !== 1)
        throw new Unstreamable('a normalizer of type Replace for more than one character by another text')
      return [{ kind: 'replace', from: found.data.pattern.String, to: found.data.content }]
    }
  }
  throw new Unstreamable(`a normalizer of type ${type}, which cannot be streamed exactly here`)
}

const apply = (steps: readonly Step[], text: string): string =>
  steps.reduce((out, step) => {
    if (step.kind === 'form') return out.normalize(step.form)
    return step.kind === 'replace' ? out.replaceAll(step.from, () => step.to) : step.text + out
  }, text)

/** How many UTF-16 units a form makes of one at most (Unicode Standard Annex 15, expansion factors). */
const FORM_GROWTH: Readonly<Record<Form, number>> = { NFC: 3, NFD: 4, NFKC: 18, NFKD: 18 }

const growthOf = (step: Step): number =>
  step.kind === 'form' ? FORM_GROWTH[step.form] : step.kind === 'replace' ? step.to.length : 1 + step.text.length

const bounded = (steps: readonly Step[]): readonly Step[] => {
  if (steps.length > MOST_STAGES)
    throw new Unstreamable(`${steps.length} normalizers one after the other; at most ${MOST_STAGES} are taken`)
  const growth = steps.reduce((product, step) => product * growthOf(step), 1)
  if (growth <= MOST_GROWTH.normalizer) return steps
  throw new Unstreamable(
    `normalizers that may make a text ${growth} times as long; at most ${MOST_GROWTH.normalizer} times is taken`,
  )
}

/** Throws Unstreamable. */
export const normalizerOf = (json: unknown): NormalizerPlan | null => {
  if (json === null || json === undefined) return null
  const steps = bounded(stepsOf(json))
  const lasting = steps.filter(({ kind }) => kind !== 'prepend')
  const space = steps.find((step) => step.kind === 'replace' && step.from === ' ')
  // Only a form of Unicode could make new spaces, of other white space.
  const after = space === undefined ? [] : steps.slice(steps.lastIndexOf(space))
  const makesSpaces = (step: Step): boolean =>
    step.kind === 'form' || (step.kind === 'replace' ? step.to : step.text).includes(' ')
  const splits = (char: string): boolean => {
    let image = char
    for (const step of lasting) {
      if (step.kind === 'replace') image = image === step.from ? firstOf(step.to) : image
      else if (step.kind === 'form') {
        const begins = firstOf(image.normalize(step.form.startsWith('NFK') ? 'NFKD' : 'NFD'))
        if (/\p{M}/u.test(begins) || composedSeconds().has(begins)) return false
        image = begins
      }
    }
    return true
  }
  const known = new Map<string, boolean>()
  return {
    spaceMark: space?.kind === 'replace' ? space.to : null,
    leavesNoSpace: space !== undefined && !after.some(makesSpaces),
    prepends: lasting.length < steps.length,
    first: (text) => apply(steps, text),
    rest: (text) => apply(lasting, text),
    splitsBefore: (char) => {
      let answer = known.get(char)
      if (answer === undefined) {
        answer = splits(char)
        if (known.size < 0x10000) known.set(char, answer)
      }
      return answer
    },
  }
}

/**
 * Where to cut a text that begins at such a place: each part can be normalized alone. A part without an inner place to
 * cut ends after MOST_HELD units. What follows the last cut may still change, unless the text has ended.
 */
export const cutsOf = ({ splitsBefore }: NormalizerPlan, text: string): number[] => {
  const cuts: number[] = []
  let safe = 0
  let begin = 0
  let at = 0
  for (const char of text) {
    if (at > 0 && splitsBefore(char)) {
      safe = at
      begin = at
    } else if (at - begin >= MOST_HELD) {
      cuts.push(at)
      begin = at
    }
    at += char.length
  }
  if (safe > (cuts.at(-1) ?? 0)) cuts.push(safe)
  return cuts
}
