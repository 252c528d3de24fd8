/** Benches with the shared model that adapts, and its input with two adaptations on the way. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll } from 'vitest'
import { type ModelPackage, openPackage } from '../../src/models/open.ts'
import { textOf } from '../../src/text.ts'
import type { ChunkInput } from '../../topics/chunks.ts'
import { DEAD_LETTER_HEADERS } from '../../topics/deadletters.ts'
import { sharedModel } from '../engine/paths.ts'
import { type Bench, createBench } from './harness.ts'

const NAME = 'perspective-tiny'
export const tiny = (): string => sharedModel(NAME)

interface Stage {
  readonly stage: string
  readonly was: number
  readonly now: number
  readonly accepted: boolean
}
interface Expected {
  readonly logits: readonly number[]
  readonly ids: readonly number[]
  readonly nll: readonly (number | null)[]
  readonly total_nll: number
  readonly adapts: readonly {
    readonly at: number
    readonly asked: number
    readonly seed: number
    readonly tokens: number
    readonly evaluations: number
    readonly stages: readonly Stage[]
    readonly written: number
    readonly loss: number
  }[]
  /** What a draw with seed 5 finds after i + 1 tokens; where an adaptation comes there, before it. */
  readonly draws: readonly {
    readonly fired: boolean
    readonly entropy: number
    readonly jsd?: number
    readonly agreed?: boolean
    readonly hdm?: {
      readonly token: number
      readonly distance: number
      readonly bank: number
      readonly hit: boolean
    } | null
    readonly weight?: number
  }[]
}
export const expected = (): Expected =>
  JSON.parse(readFileSync(join(sharedModel(NAME), 'expected.json'), 'utf8')) as Expected

/** The input of expected.json, with its two adaptations on the way. */
export const script = (): readonly ChunkInput[] => {
  const { ids, adapts } = expected()
  const [first, second] = adapts.map(
    ({ asked, seed }): ChunkInput => ({ type: 'adapt', evaluations: asked, seed, id: `a${seed}` }),
  )
  return [
    { type: 'tokens', tokens: ids.slice(0, 48) },
    first!,
    { type: 'tokens', tokens: ids.slice(48, 80) },
    second!,
    { type: 'tokens', tokens: ids.slice(80) },
  ]
}

/** The reasons of the dead letters, in order. */
export const reasonsIn = async (bench: Bench): Promise<readonly string[]> =>
  (await bench.records('deadletters')).map(({ headers }) =>
    textOf(headers.find(([name]) => name === DEAD_LETTER_HEADERS.reason)![1]),
  )
export const asking = (requestId: string, maxTokens = 24): ChunkInput => ({
  type: 'generate',
  requestId,
  maxTokens,
  temperature: 0.9,
  seed: 5,
})

export const chains = async (bench: Bench, ...sessions: readonly string[]): Promise<readonly string[]> => {
  const heads = await bench.heads()
  return sessions.map((session) => heads.get(session)!.chain)
}

/** For a `describe`: the model, opened once, and a bench for the length of a claim. */
export const tinyBenches = (): { readonly use: (claim: (bench: Bench) => Promise<void>) => Promise<void> } => {
  let shared: ModelPackage
  beforeAll(async () => {
    shared = await openPackage(tiny(), { threads: 2, keepPacked: false })
  })
  afterAll(() => shared.model.close())
  return {
    async use(claim) {
      const bench = await createBench(shared)
      try {
        await claim(bench)
      } finally {
        await bench.close()
      }
    },
  }
}
