/** In order of seniority, oldest first. */
export interface Holder {
  readonly member: string
  readonly partitions: readonly number[]
}

/**
 * Shares partitions 0…n-1 among the members: every partition has one holder, no two members differ by more than one,
 * and a member keeps what it held as far as balance allows. A pure function of its input, so every member that computes
 * it gets the same.
 */
export const assign = (partitions: number, holders: readonly Holder[]): Map<string, number[]> => {
  const floor = Math.floor(partitions / holders.length)
  let extras = partitions % holders.length
  const free = new Set(Array.from({ length: partitions }, (_, partition) => partition))
  const shares = holders.map(({ member, partitions: held }) => {
    const kept = held.filter((partition) => free.delete(partition))
    return { member, kept, room: floor }
  })
  // The larger shares go to members that would give up a partition otherwise; the sort is stable, so seniority decides.
  for (const share of [...shares].sort((a, b) => b.kept.length - a.kept.length)) if (extras-- > 0) share.room++
  for (const { kept, room } of shares) for (const partition of kept.splice(room)) free.add(partition)
  const rest = [...free].sort((a, b) => a - b)
  return new Map(
    shares.map(({ member, kept, room }) => [
      member,
      [...kept, ...rest.splice(0, room - kept.length)].sort((a, b) => a - b),
    ]),
  )
}
