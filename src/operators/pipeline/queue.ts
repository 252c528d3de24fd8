/**
 * A queue whose members can also leave from its middle. Adding, removing and finding the first cost O(1), however many
 * there are: a JavaScript Set would walk over the places of all that were removed since it last grew.
 */
export interface Queue<T> {
  /** Behind all others; nothing happens if it is a member already. */
  add(value: T): void
  /** Whether it was a member. */
  delete(value: T): boolean
  has(value: T): boolean
  readonly first: T | undefined
  readonly size: number
}

interface Link<T> {
  readonly value: T
  before: Link<T> | null
  behind: Link<T> | null
}

export const createQueue = <T>(): Queue<T> => {
  const links = new Map<T, Link<T>>()
  let first: Link<T> | null = null
  let last: Link<T> | null = null
  return {
    add(value) {
      if (links.has(value)) return
      const link: Link<T> = { value, before: last, behind: null }
      if (last === null) first = link
      else last.behind = link
      last = link
      links.set(value, link)
    },
    delete(value) {
      const link = links.get(value)
      if (link === undefined) return false
      links.delete(value)
      if (link.before === null) first = link.behind
      else link.before.behind = link.behind
      if (link.behind === null) last = link.before
      else link.behind.before = link.before
      return true
    },
    has: (value) => links.has(value),
    get first() {
      return first?.value
    },
    get size() {
      return links.size
    },
  }
}
