/** How far decisions were from falling the other way: two implementations may only be compared where all are wide. */

/**
 * - `rounding`: of a quotient x / s of the ternary products or of `whole` from one half;
 * - `route`: of two squared distances that stand beside one another in the order that counts;
 * - `trigger`, `jsd`: of max p, of the entropy, and of the divergence from their limits;
 * - `write`: of a surprisal from `write_nats`; `accept`: of J(θ') from J(θ).
 */
export type Margin = 'rounding' | 'route' | 'trigger' | 'jsd' | 'write' | 'accept'
export type Margins = Record<Margin, number>

export const wide = (): Margins => ({
  rounding: Number.POSITIVE_INFINITY,
  route: Number.POSITIVE_INFINITY,
  trigger: Number.POSITIVE_INFINITY,
  jsd: Number.POSITIVE_INFINITY,
  write: Number.POSITIVE_INFINITY,
  accept: Number.POSITIVE_INFINITY,
})
export const narrow = (margins: Margins, name: Margin, distance: number): void => {
  // A distance that is not a number is no distance at all.
  margins[name] = distance < margins[name] ? distance : Number.isNaN(distance) ? 0 : margins[name]
}
/** Whether all margins are at least these. */
export const within = (margins: Margins, limits: Partial<Margins>): boolean =>
  Object.entries(limits).every(([name, limit]) => margins[name as Margin] >= limit)
/** The narrower of each. */
export const together = (all: readonly Margins[]): Margins => {
  const out = wide()
  for (const each of all) for (const name of Object.keys(out) as Margin[]) narrow(out, name, each[name])
  return out
}
