/** The model families Continuo knows, by `model_type` in config.json. */
import type { Family } from './family.ts'
import { rwkv7 } from './rwkv7.ts'
import { titans } from './titans.ts'

export const families: ReadonlyMap<string, Family> = new Map([
  ['rwkv7', rwkv7],
  ['titans', titans],
])
