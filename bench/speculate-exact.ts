/**
 * Whether guesses change nothing, over many tokens: for each family two engines with the same weights generate in the
 * same sessions, one without guesses and one whose number of guesses changes with every piece, from none to 16, as many
 * as there are or as many as pay.
 *
 *   node bench/speculate-exact.ts [--tokens 1000000] [--families rwkv7,qwen3,qwen35,titans] [--sessions 12] [--threads 2]
 *
 * Behind each piece the tokens and chains of all sessions are compared, and where a session ends its whole state. A
 * session has 1,500 tokens; of each three one is greedy, one draws at a low temperature with penalties, and one at a
 * temperature at which little repeats. Families are those of test/families.ts. Ends with 1 where anything differs.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { randomFrom } from '../src/cli/demo/facts.ts'
import { count, table } from '../src/cli/output.ts'
import type { Model } from '../src/engine/types.ts'
import type { Generate } from '../src/engine/work.ts'
import { openModel } from '../src/models/open.ts'
import { type FamilyKey, openFamily } from '../test/families.ts'
import { parseArgs } from './options.ts'

const { values } = parseArgs({
  options: {
    tokens: { type: 'string', default: '1000000' },
    families: { type: 'string', default: 'rwkv7,qwen3,qwen35,titans' },
    sessions: { type: 'string', default: '12' },
    threads: { type: 'string', default: '2' },
  },
})
const [wanted, sessions, threads] = [Number(values.tokens), Number(values.sessions), Number(values.threads)]
const LENGTH = 1500
const PROMPT = 40
const none = new Int32Array(0)

const samplingOf = (session: number, seed: bigint): Omit<Generate, 'count'> => {
  const plain = { temperature: 0, topK: 0, topP: 1, seed }
  const penalties = { repetition: 1.05, presence: 0, frequency: 0.01, counts: new Map<number, number>() }
  return [plain, { ...plain, temperature: 0.3, topK: 40, penalties }, { ...plain, temperature: 1.5, topP: 0.95 }][
    session % 3
  ]!
}

interface Outcome {
  readonly pieces: number
  readonly tokens: number
  readonly chains: number
  readonly states: number
  readonly different: string[]
}

/** Sessions from their first token to their last, in both engines. */
const live = async (plain: Model, guessing: Model, generation: number, budget: number): Promise<Outcome> => {
  const next = randomFrom(generation)
  const models = [plain, guessing]
  const different: string[] = []
  const prompts = Array.from({ length: sessions }, () =>
    Int32Array.from({ length: PROMPT }, () => 32 + next(plain.vocabSize > 96 ? 64 : plain.vocabSize - 32)),
  )
  const all = models.map((model) => prompts.map(() => model.createContext()))
  const [own, theirs] = all as [(typeof all)[0], (typeof all)[0]]
  for (const [m, model] of models.entries())
    await model.process(prompts.map((tokens, i) => ({ context: all[m]![i]!, tokens, nats: false })))
  let [tokens, pieces] = [0, 0]
  while (own[0]!.pulse < LENGTH && tokens < budget && different.length === 0) {
    const length = Math.min(1 + next(200), LENGTH + 1 - Number(own[0]!.pulse))
    guessing.speculate({ tokens: next(17), adapt: next(2) === 0 })
    const written = await Promise.all(
      models.map((model, m) =>
        model.process(
          prompts.map((_, i) => ({
            ...{ context: all[m]![i]!, tokens: none, nats: false },
            generate: { ...samplingOf(i, BigInt(1000 * generation + i)), count: length, more: true },
          })),
        ),
      ),
    )
    for (let i = 0; i < sessions; i += 1) {
      const [a, b] = written.map((results) => Buffer.from(results[i]!.generated.buffer)) as [Buffer, Buffer]
      const [p, q] = written.map((results) => Buffer.from(results[i]!.logprobs.buffer)) as [Buffer, Buffer]
      const where = `session ${i} of generation ${generation} at pulse ${own[i]!.pulse}`
      if (!a.equals(b)) different.push(`${where}: tokens`)
      if (!p.equals(q)) different.push(`${where}: log probabilities`)
      if (own[i]!.chain !== theirs[i]!.chain) different.push(`${where}: chains`)
      tokens += a.length / 4
    }
    pieces += 1
  }
  for (let i = 0; i < sessions; i += 1) {
    const [a, b] = all.map((contexts) => Buffer.from(contexts[i]!.serialize())) as [Buffer, Buffer]
    if (!a.equals(b)) different.push(`session ${i} of generation ${generation}: state`)
  }
  for (const context of all.flat()) context.close()
  return { pieces, tokens, chains: pieces * sessions, states: sessions, different }
}

const dir = mkdtempSync(join(tmpdir(), 'continuo-exact-'))
let failed = false
const rows: string[][] = []
try {
  for (const key of values.families.split(',')) {
    const { name, dir: folder, overflow } = await openFamily(key as FamilyKey, dir)
    const options = { threads, overflow, device: 'cpu', keepPacked: false } as const
    const [plain, guessing] = [await openModel(folder, options), await openModel(folder, options)]
    const sum = { tokens: 0, chains: 0, states: 0, different: [] as string[] }
    for (let generation = 0; sum.tokens < wanted && sum.different.length === 0; generation += 1) {
      const { tokens, chains, states, different } = await live(plain, guessing, generation, wanted - sum.tokens)
      sum.tokens += tokens
      sum.chains += chains
      sum.states += states
      sum.different.push(...different)
    }
    const { drafted, kept, steps } = guessing.stats
    for (const each of sum.different) console.error(`${name}: ${each} differ`)
    failed ||= sum.different.length > 0
    const numbers = [sum.tokens, drafted, kept, plain.stats.steps, steps, sum.chains, sum.states].map(count)
    rows.push([name, ...numbers, sum.different.length === 0 ? 'equal' : 'different'])
    console.error(rows.at(-1)!.join('  '))
    plain.close()
    guessing.close()
  }
  console.log(
    table(['family', '>tokens', '>drafted', '>kept', '>steps', '>with', '>chains', '>states', 'compared'], rows),
  )
} finally {
  rmSync(dir, { recursive: true, force: true })
}
if (failed) process.exit(1)
