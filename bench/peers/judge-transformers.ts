/**
 * transformers as a judge: small random models of every family, written and computed by Hugging Face's library, opened
 * here as any package is. The logits of every position must be the same within TOLERANCE, however the tokens are cut.
 *
 *   node judge-transformers.ts [--python transformers/venv/bin/python] [--only llama,falcon_h1] [--folder DIR]
 *
 * `--folder`: packages that `transformers/make.py` wrote before; without it they are written anew. Ends with 1 where a
 * family differs, or refuses what transformers computes; a setting that is refused on purpose is in REFUSED.
 */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Model } from '../../src/engine/types.ts'
import { messageOf } from '../../src/errors.ts'
import { openModel } from '../../src/models/open.ts'
import { parseArgs } from '../options.ts'

/** Settings that the engine refuses on purpose, by type, with a part of the sentence. */
const REFUSED: readonly (readonly [type: string, says: RegExp])[] = [
  ['llama', /has the type "yarn"/],
  ['qwen3', /has the type "yarn"/],
  ['qwen2', /use_sliding_window must be false/],
  ['gpt_neox', /attention_bias must be true/],
  ['nemotron_h', /n_group must be 1/],
]

/** Of a single logit. */
const TOLERANCE = 5e-4
/** Tokens in one call. */
const CUTS = [1, 7, 16, 1000]

interface Case {
  readonly folder: string
  readonly type: string
  readonly setting: string
  /** Why transformers itself does not compute it. */
  readonly refused: string | null
}

interface Expected {
  readonly tokens: readonly number[]
  /** [tokens, vocabulary], float64. */
  readonly logits: readonly (readonly number[])[]
  /** Farthest of transformers' own logits in float32 from these. */
  readonly float32: number
}

/** The farthest logit of those that stand behind a piece. */
const farthest = async (model: Model, { tokens, logits }: Expected, cut: number): Promise<number> => {
  const context = model.createContext()
  try {
    let most = 0
    for (let at = 0; at < tokens.length; at += cut) {
      const piece = Int32Array.from(tokens.slice(at, at + cut))
      await model.process([{ context, tokens: piece, nats: false }])
      const want = logits[at + piece.length - 1]!
      const got = await model.logits(context)
      if (got.length !== want.length) throw new Error(`Expected ${want.length} logits, got ${got.length}.`)
      for (const [i, value] of want.entries()) {
        const far = Math.abs(got[i]! - value)
        // Not a number is as far as can be.
        most = Math.max(most, Number.isNaN(far) ? Number.POSITIVE_INFINITY : far)
      }
    }
    return most
  } finally {
    context.close()
  }
}

const judge = async (root: string, { folder, type, refused }: Case): Promise<{ good: boolean; says: string }> => {
  if (refused !== null) return { good: true, says: `transformers does not compute it: ${refused}` }
  const expected = JSON.parse(readFileSync(join(root, folder, 'expected.json'), 'utf8')) as Expected
  let model: Model
  try {
    model = await openModel(join(root, folder), { threads: 1, device: 'cpu', keepPacked: false, warn: () => {} })
  } catch (error) {
    const says = messageOf(error)
    const meant = REFUSED.some(([of, part]) => of === type && part.test(says))
    return { good: meant, says: meant ? `refused on purpose: ${says}` : `REFUSED: ${says}` }
  }
  try {
    let most = 0
    for (const cut of CUTS) most = Math.max(most, await farthest(model, expected, cut))
    const flat = expected.logits.flat()
    const deviation = Math.sqrt(flat.reduce((sum, value) => sum + value * value, 0) / flat.length)
    const good = most <= TOLERANCE
    const says = `${good ? 'same' : 'DIFFERENT'}, at most ${most.toExponential(1)} (transformers in float32 ${expected.float32.toExponential(1)}; logits of ${deviation.toPrecision(2)})`
    return { good, says }
  } finally {
    model.close()
  }
}

const here = import.meta.dirname
const { values } = parseArgs({
  options: {
    python: { type: 'string', default: join(here, 'transformers', 'venv', 'bin', 'python') },
    only: { type: 'string' },
    folder: { type: 'string' },
  },
})
const root = values.folder ?? join(here, 'models', 'transformers')
const only = values.only?.split(',')
if (values.folder === undefined) {
  const { status, error } = spawnSync(values.python, [join(here, 'transformers', 'make.py'), root, ...(only ?? [])], {
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  if (status !== 0) {
    console.error(
      `${values.python} could not write the models${error ? ` (${error.message})` : ''}. Make the environment first: README.md, "transformers as a judge".`,
    )
    process.exit(2)
  }
}
const cases = (JSON.parse(readFileSync(join(root, 'cases.json'), 'utf8')) as readonly Case[]).filter(
  ({ type }) => only === undefined || only.includes(type),
)
let good = 0
for (const one of cases) {
  const verdict = await judge(root, one)
  if (verdict.good) good += 1
  console.log(`${one.type.padEnd(17)} ${one.setting.padEnd(48)} ${verdict.says}`)
}
console.log(
  `${good} of ${cases.length} settings give the logits of transformers within ${TOLERANCE}, or are refused on purpose.`,
)
process.exitCode = good === cases.length && cases.length > 0 ? 0 : 1
