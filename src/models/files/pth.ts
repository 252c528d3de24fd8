/**
 * RWKV-7 as its author publishes it: one file of torch.save, its vocabulary beside it, and no config.json. Sizes follow
 * from the shapes (rwkv7.ts). Older and experimental models of the same author have other tensors and are refused by
 * name.
 */
import type { TensorEntry } from '../../engine/native.ts'
import { ContinuoError } from '../../errors.ts'

/** What a config.json would say. */
export const PTH_CONFIG = { model_type: 'rwkv7' } as const

/** Names of a block of RWKV-7; what stands before is `blocks.N.`. */
const OWN =
  /^(?:ln[012]\.(?:weight|bias)|att\.(?:x_[rwkvag]|[wavg][012]|k_k|k_a|r_k|(?:receptance|key|value|output)\.weight|ln_x\.(?:weight|bias))|ffn\.(?:x_k|(?:key|value)\.weight))$/

/**
 * Checks by their names that the tensors of a .pth file are those of an RWKV-7 model. Throws INVALID, naming what the
 * file has instead.
 */
export const checkPth = (file: string, tensors: readonly TensorEntry[]): void => {
  const names = new Set(tensors.map(({ name }) => name))
  const refuse = (what: string, because: string): never => {
    throw new ContinuoError(
      'INVALID',
      `${file} holds ${what} (${because}), expected RWKV-7 "x070" as its author publishes it, or a folder with config.json for any other model.`,
    )
  }
  if (!names.has('emb.weight')) refuse('no RWKV model', 'there is no tensor "emb.weight"')
  if (names.has('blocks.0.att.time_maa_x')) refuse('an RWKV-6 model', 'tensor "blocks.0.att.time_maa_x"')
  const old = ['blocks.0.att.time_mix_k', 'blocks.0.att.time_decay'].find((name) => names.has(name))
  if (old !== undefined) {
    refuse(names.has('blocks.0.att.ln_x.weight') ? 'an RWKV-5 model' : 'an RWKV-4 model', `tensor "${old}"`)
  }
  if (!names.has('blocks.0.att.x_r')) refuse('no RWKV-7 model', 'there is no tensor "blocks.0.att.x_r"')
  for (const name of names) {
    const part = /^blocks\.\d+\.(.*)$/s.exec(name)?.[1]
    if (part === undefined || OWN.test(part)) continue
    refuse('an experiment beside RWKV-7, such as v7a, v7b or v8', `tensor "${name}"`)
  }
}
