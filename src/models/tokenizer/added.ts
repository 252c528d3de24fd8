/**
 * Added tokens in a stream of text: from left to right, the longest at each place. A place where a token may still
 * begin or grow is held back with all that follows it; so is white space that a token with lstrip may still swallow.
 */
import { MOST_HELD } from './limits.ts'

export interface AddedToken {
  readonly id: number
  readonly content: string
  readonly lstrip: boolean
  readonly rstrip: boolean
}

interface Branch {
  readonly next: Map<number, Branch>
  token: AddedToken | null
}

export interface AddedTokens {
  readonly root: Branch
  readonly stripsLeft: boolean
}

const isWhite = (unit: number): boolean =>
  unit <= 0x20
    ? unit === 0x20 || (unit >= 9 && unit <= 13)
    : unit >= 0x85 && /\p{White_Space}/u.test(String.fromCharCode(unit))

/** A token without characters is nowhere in a text. */
export const addedTokens = (tokens: readonly AddedToken[]): AddedTokens => {
  const root: Branch = { next: new Map(), token: null }
  for (const token of tokens) {
    if (token.content === '') continue
    let branch = root
    for (let at = 0; at < token.content.length; at += 1) {
      const unit = token.content.charCodeAt(at)
      let next = branch.next.get(unit)
      if (next === undefined) {
        next = { next: new Map(), token: null }
        branch.next.set(unit, next)
      }
      branch = next
    }
    branch.token = token
  }
  return { root, stripsLeft: tokens.some(({ lstrip }) => lstrip) }
}

export interface Found {
  /** Where the text begins that more text may still make part of an added token. */
  readonly rest: number
  /** Whether white space at the beginning of the next text is dropped: the last token found has rstrip. */
  readonly stripping: boolean
}

/**
 * Finds the added tokens of a text. Calls `giveText` and `giveToken` in the order of the text. `ended`: no more text
 * follows. `stripping`: what `Found.stripping` of the call before was.
 */
export const findAdded = (
  { root, stripsLeft }: AddedTokens,
  text: string,
  ended: boolean,
  stripping: boolean,
  giveText: (text: string) => void,
  giveToken: (token: AddedToken) => void,
): Found => {
  let from = 0 // text not given out yet begins here
  let at = 0
  let white = -1 // where the run of white space before `at` begins
  let strips = stripping
  const giveTo = (end: number): void => {
    if (end > from) giveText(text.slice(from, end))
    from = Math.max(from, end)
  }
  const undecided = (): Found => {
    giveTo(stripsLeft && white >= 0 ? white : at)
    return { rest: from, stripping: strips }
  }
  while (at < text.length) {
    let branch: Branch | undefined = root
    let token: AddedToken | null = null
    let seen = at
    for (;;) {
      if (branch.token !== null) token = branch.token
      if (seen === text.length) {
        if (branch.next.size > 0 && !ended) return undecided()
        break
      }
      branch = branch.next.get(text.charCodeAt(seen))
      if (branch === undefined) break
      seen += 1
    }
    if (token !== null) {
      giveTo(token.lstrip && white >= 0 ? white : at)
      giveToken(token)
      at += token.content.length
      from = at
      white = -1
      strips = token.rstrip
      continue
    }
    const blank = (strips || stripsLeft) && isWhite(text.charCodeAt(at))
    if (strips && blank) from = at + 1
    else {
      strips = false
      if (!blank) white = -1
      else if (white < 0) white = at
      else if (at - white >= MOST_HELD) {
        giveTo(at)
        white = at
      }
    }
    at += 1
  }
  if (!ended) return undecided()
  giveTo(text.length)
  return { rest: text.length, stripping: strips }
}
