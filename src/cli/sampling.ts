/** How tokens are drawn: as flags say, and where it was asked for as the package recommends. */
import type { ModelPackage } from '../models/open.ts'
import { recommendedSampling } from '../models/sampling.ts'
import { on } from './flags.ts'

export const recommendedFlag = on(
  'draw as generation_config.json of the package recommends, where no flag says otherwise',
)

interface Drawn {
  readonly recommended: boolean
  readonly temperature: number
  readonly 'top-k': number
  readonly 'top-p': number
}

/** The flags, with what the package recommends in place of their defaults; a flag that the user set counts. */
export const drawn = <F extends Drawn>(
  flags: F,
  set: ReadonlySet<string>,
  { model, sampling }: Pick<ModelPackage, 'model' | 'sampling'>,
): F => {
  if (!flags.recommended) return flags
  const { temperature, topK, topP } = recommendedSampling(model.dir, sampling)
  const all = { temperature, 'top-k': topK, 'top-p': topP }
  const used = Object.entries(all).filter(([name, value]) => value !== undefined && !set.has(name))
  return { ...flags, ...Object.fromEntries(used) }
}
