/**
 * Makes names for sessions that must belong to a given partition of the input: a fork is in the partition of its
 * parent.
 */

/** Names that are tried. */
const MOST_NAMES = 100_000

/** The first name that belongs to the partition, of those that `make` gives for 0, 1, 2 …; null: none of many does. */
export const nameIn = async (
  partition: number,
  partitionOf: (session: string) => Promise<number>,
  make: (tried: number) => string,
): Promise<string | null> => {
  for (let tried = 0; tried < MOST_NAMES; tried += 1) {
    const name = make(tried)
    if ((await partitionOf(name)) === partition) return name
  }
  return null
}
