/**
 * A model without a network: an ngram memory alone (docs/ngram.md). It begins with no knowledge of any text, or with
 * weights that other texts taught how far to believe what followed before, and learns the text that it reads. Its
 * tokens are bytes.
 */
import { z } from 'zod'
import { buildGraph } from '../../engine/builder.ts'
import type { TensorEntry } from '../../engine/native.ts'
import { callNative } from '../../engine/native.ts'
import { NGRAM_TOKENS } from '../../engine/ngram-ops.ts'
import { readBySchema } from '../config.ts'
import { type Family, type FamilyModel, tensorSet } from '../family.ts'
import { DEFAULT_SLOTS, DEFAULT_SMALL_SLOTS, LEARNED, ngramLearn, ngramSlots } from './ngram-memory.ts'

export const ngramConfig = z.looseObject({
  model_type: z.literal('ngram'),
  vocab_size: z.literal(NGRAM_TOKENS).default(NGRAM_TOKENS),
  /** "small": fewer contexts and rows, for sessions by the million. */
  form: z.enum(['whole', 'small']).default('whole'),
  slots: ngramSlots.optional(),
  learn: ngramLearn,
})

const build = (raw: unknown, tensors: readonly TensorEntry[]): FamilyModel => {
  const { form, learn, ...given } = readBySchema(ngramConfig, raw)
  const small = form === 'small'
  const slots = given.slots ?? (small ? DEFAULT_SMALL_SLOTS : DEFAULT_SLOTS)
  const sizes = callNative((addon) => addon.ngram(small ? 'small' : 'bytes', slots))
  const set = tensorSet(tensors)
  const g = buildGraph()
  const token = g.dynamic('token', [], 'i32')
  const learned = set.has(LEARNED) ? g.vector('learned', sizes.learned, set.take(LEARNED, [sizes.learned])) : null
  const tables = {
    slots: g.table('ngram.slots', [slots, 2], { dtype: 'i32' })(),
    text: g.table('ngram.text', [sizes.text], { dtype: 'i32' })(),
    mixture: g.table('ngram.mixture', [sizes.mixture])(),
  }
  const last = g.table('hidden.last', [NGRAM_TOKENS])
  g.block('first', [], () => {
    g.cacheNgramFirst(tables.mixture, learned)
    return {}
  })
  g.block('step', [token], () => {
    const hidden = g.cacheNgram('hidden', tables, token, learn)
    return { hidden, previous: g.cacheShift('hidden.previous', last(), hidden) }
  })
  const input = g.dynamic('predict.hidden', [NGRAM_TOKENS], 'f32')
  g.block('predict', [input], () => ({ logits: g.scale('logits', input, 1) }))
  set.finish()
  return { graph: g.finish(), vocabSize: NGRAM_TOKENS }
}

export const ngram: Family = { build }
