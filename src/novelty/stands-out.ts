import type { Standing } from './judge.ts'

/** Below these a line is nothing to look at, however it stands among quieter ones. */
const LEAST = { structure: 2, values: 3, rate: 7, silence: 3 } as const

/** What may stand out of a line. */
export type Part = keyof typeof LEAST
const PARTS = Object.keys(LEAST) as Part[]

/** What is known of a line's parts. Lines of earlier versions lack some. */
type Standings = { readonly [part in Part]?: Standing | undefined }

/** The ranks of those parts whose score is anything to look at. */
export const ranksOf = (line: Standings): { readonly [part in Part]?: number } =>
  Object.fromEntries(
    PARTS.flatMap((part) => {
      const { score, rank } = line[part] ?? { score: 0, rank: null }
      return rank !== null && score >= LEAST[part] ? [[part, rank]] : []
    }),
  )

/** In which parts a line stands out that is among the share `top` of the last thousand. */
export const standsOut = (line: Standings, top: number): Part[] => {
  const ranks = ranksOf(line)
  return PARTS.filter((part) => (ranks[part] ?? -1) >= 1 - top)
}
