/**
 * Inputs on which two implementations may be compared: decisions are far from ties, and a disturbance of the embeddings
 * by 10⁻⁶, ten times what f32 does, moves the results less than the comparison allows. (A key almost orthogonal to its
 * query, for one, leaves a first token's recall to its last bits.)
 */
import { random } from '../../engine/safetensors.ts'
import { together, within } from './margins.ts'
import { ADAPT_LIMITS, LIMITS } from './package.ts'
import { openReference, type Session } from './reference.ts'

export interface Twins {
  readonly session: Session
  /** The same package with disturbed embeddings. */
  readonly shaken: Session
}
export interface Asked {
  readonly evaluations: number
  readonly seed: number
}
export interface Reading {
  readonly ids: readonly number[]
  /** Behind the ids; null: there is none. */
  readonly adapt: Asked | null
}

/** How far results of the twins may be apart. */
const APART = 2e-4
/** Twice §18's: a first token's recall may be ten times less exact than the usual one. */
const ROUNDING = 2 * LIMITS.rounding

export const openTwins = (dir: string, clock = 0): Twins => {
  const shaken = openReference(dir)
  const next = random(77)
  for (const [i, value] of shaken.model.embed.entries()) shaken.model.embed[i] = value * (1 + 2e-6 * (next() - 0.5))
  return { session: openReference(dir).open(clock), shaken: shaken.open(clock) }
}
export const forked = ({ session, shaken }: Twins): Twins => ({ session: session.fork(), shaken: shaken.fork() })
export const resetTwins = ({ session, shaken }: Twins): void => {
  session.reset()
  shaken.reset()
}

const close = (a: ArrayLike<number>, b: ArrayLike<number>): boolean =>
  Array.from(a).every((value, i) => Math.abs(value - b[i]!) < APART)

/**
 * Feeds the id where the twins agree on it and on the draw behind it; false, and fork is of no more use, where they do
 * not.
 */
const fed = ({ session, shaken }: Twins, id: number, drawSeed: number): boolean => {
  const [own, other] = [session.feed(id), shaken.feed(id)]
  const [draw, shakenDraw] = [session.draw(drawSeed), shaken.draw(drawSeed)]
  return (
    within(together([own.margins, draw.margins]), { ...LIMITS, rounding: ROUNDING }) &&
    close(own.logits, other.logits) &&
    close(draw.drawn, shakenDraw.drawn) &&
    close(draw.jsds ?? [], shakenDraw.jsds ?? [])
  )
}

const adapted = ({ session, shaken }: Twins, { evaluations, seed }: Asked, accept: number): boolean => {
  const [own, other] = [session.adapt(evaluations, seed), shaken.adapt(evaluations, seed)]
  const lossesOf = ({ stages }: typeof own): number[] => stages.flatMap(({ was, now }) => [was, now])
  return (
    within(own.margins, { ...ADAPT_LIMITS, accept }) &&
    close(own.nll, other.nll) &&
    close(lossesOf(own), lossesOf(other))
  )
}

/**
 * `count` ids, and an adaptation behind them, that suit where the twins stand; they stay there. Throws where nothing
 * suits.
 */
export const chooseSteady = (
  twins: Twins,
  {
    count,
    vocabulary,
    seed,
    drawSeed,
    evaluations,
    accept = ADAPT_LIMITS.accept,
  }: {
    readonly count: number
    readonly vocabulary: number
    readonly seed: number
    readonly drawSeed: number
    /** 0: no adaptation. */
    readonly evaluations: number
    /** How far J of what is tried must be from J of what is; 0 where a stage can move nothing. */
    readonly accept?: number | undefined
  },
): Reading => {
  const next = random(seed)
  const chosen = (from: Twins): { readonly at: Twins; readonly id: number } => {
    for (let tries = 0; tries < 8 * vocabulary; tries += 1) {
      const id = Math.floor(next() * vocabulary)
      const at = forked(from)
      if (fed(at, id, drawSeed)) return { at, id }
    }
    throw new Error(`no id of ${vocabulary} keeps a token away from ties`)
  }
  for (let texts = 0; texts < 60; texts += 1) {
    let at = forked(twins)
    const ids: number[] = []
    while (ids.length < count) {
      const found = chosen(at)
      at = found.at
      ids.push(found.id)
    }
    // The first evaluation does not depend on the seed: where it comes close to a tie, only other ids help.
    for (let by = 0; by < (evaluations > 0 ? 12 : 1); by += 1) {
      const adapt = evaluations > 0 ? { evaluations, seed: by } : null
      if (adapt !== null && !adapted(forked(at), adapt, accept)) continue
      return { ids, adapt }
    }
  }
  throw new Error(`no text keeps an adaptation of ${evaluations} evaluations away from ties`)
}
