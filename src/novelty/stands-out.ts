import type { Standing } from './judge.ts'

/** Below these a line is nothing to look at, however it stands among quieter ones. */
const LEAST = { structure: 2, values: 3, rate: 7 } as const

/** What may stand out of a line. */
export type Part = keyof typeof LEAST
const PARTS = Object.keys(LEAST) as Part[]

/** In which parts a line stands out that is among the share `top` of the last thousand. Lines of earlier versions lack some. */
export const standsOut = (line: { readonly [part in Part]?: Standing | undefined }, top: number): Part[] =>
  PARTS.filter((part) => {
    const { score, rank } = line[part] ?? { score: 0, rank: null }
    return rank !== null && rank >= 1 - top && score >= LEAST[part]
  })
