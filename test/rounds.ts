/** Tests that draw their cases: a share of them belongs to `npm test`, all of them to the slow tests. */

export interface Rounds {
  readonly rounds: number
  /** What the name of the test says of them. */
  readonly says: string
  readonly options: { readonly tags: string[] }
}

/** A test for each tier, of so many rounds in the slow one. */
export const inBothTiers = (all: number): readonly Rounds[] => [
  { rounds: Math.ceil(all / 8), says: 'a few times', options: { tags: [] } },
  { rounds: all, says: `${all} times`, options: { tags: ['slow'] } },
]
