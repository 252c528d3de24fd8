/** Sessions of one name in more than one partition: memories that do not know of each other. */

export interface DuplicateSession {
  readonly session: string
  readonly partitions: readonly number[]
}

export const duplicatesIn = (
  places: Iterable<readonly [session: string, partition: number]>,
): readonly DuplicateSession[] => {
  const found = new Map<string, number[]>()
  for (const [session, partition] of places) found.set(session, [...(found.get(session) ?? []), partition])
  return [...found].flatMap(([session, partitions]) => (partitions.length > 1 ? [{ session, partitions }] : []))
}

/** What happened, and what is to be done, as two sentences. */
export const tellDuplicate = ({
  session,
  partitions,
}: DuplicateSession): { readonly what: string; readonly remedy: string } => ({
  what: `Session "${session}" stands in partitions ${partitions.join(' and ')}, each with a memory of its own: its producers do not agree on the partition of a key.`,
  remedy:
    'Give all producers one partitioner (librdkafka: partitioner=murmur2_random); docs/streams.md says which client uses which.',
})
