/** Blocks and pages in words, for people: what of a session's state a blob holds. */
import { ARCHIVE, type Growth, placesOf } from '../memory.ts'

/** The properties of a growth by which its blocks are described. */
export interface Followed extends Pick<Growth, 'places' | 'block'> {
  /** Names of its tables. */
  readonly tables: readonly string[]
}

export const followedBy = ({ places, block, tables }: Growth): Followed => ({
  tables: tables.map(({ name }) => name),
  ...(places !== undefined && { places }),
  ...(block !== undefined && { block }),
})

/** What the tables hold, and what one position of it is. */
const kindOf = ({ places, tables }: Followed): { readonly what: string; readonly one: string } => {
  if (places !== undefined) return { what: 'the window', one: 'place' }
  if (tables.includes(ARCHIVE)) return { what: 'archived blocks', one: 'archived block' }
  if (tables.includes('index')) return { what: 'the index', one: 'row' }
  if (tables.includes('graph.member')) return { what: 'the topics', one: 'member' }
  return { what: 'the cache', one: 'position' }
}

/** "positions 256 to 511 of the cache", "archived block 7". */
export const blockText = (growth: Followed, run: number): string => {
  const { what, one } = kindOf(growth)
  const { from, to } = placesOf(growth, run)
  const which = to === from + 1 ? `${one} ${from}` : `${one}s ${from} to ${to - 1}`
  return one === 'archived block' ? which : `${which} of ${what}`
}

/** "page 3 of the names of archived blocks". */
export const pageText = (growth: Followed, page: number): string =>
  `page ${page} of the names of ${kindOf(growth).what}`

/** How the blobs of a session are mended. */
export const repairHint = (session: string): string =>
  `continuo repair --session ${/^[\w.-]+$/.test(session) ? session : JSON.stringify(session)} computes it again`
