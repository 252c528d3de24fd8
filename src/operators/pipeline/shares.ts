/**
 * shares: sessions that count as one when turns are given. The header `continuo-share` of an input record names the
 * share that its work counts for; the gateway writes the name of the API key there. It decides which session goes first
 * and nothing else: no output depends on it, and none carries it.
 */
import type { StoredRecord } from '../../streams/log.ts'

export const SHARE_HEADER = 'continuo-share'

/** Names that are remembered; one that was forgotten begins with nothing had. */
const MOST_NAMES = 10_000

const utf8 = new TextDecoder()

/** Whom the record's work counts for; undefined: its session alone. */
export const shareOf = ({ headers }: Pick<StoredRecord, 'headers'>): string | undefined => {
  const found = headers.find(([name]) => name === SHARE_HEADER)
  return found === undefined || found[1].length === 0 ? undefined : utf8.decode(found[1])
}

export const createShares = () => {
  /** In the order of their last use. */
  const groups = new Map<string, object>()
  return {
    /** What stands for all sessions of this name. */
    groupOf(share: string): object {
      const group = groups.get(share) ?? {}
      groups.delete(share)
      groups.set(share, group)
      if (groups.size > MOST_NAMES) groups.delete(groups.keys().next().value!)
      return group
    },
  }
}
