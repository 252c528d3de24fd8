/** Loads the addon that native/ is built to. Its functions are typed where they are called: src/engine/native.ts, src/bulk.ts. */
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { ContinuoError } from './errors.ts'

/** Tests put other builds in its place: with sanitizers, or with the CUDA kernels emulated. */
const addonPath =
  process.env.CONTINUO_ADDON ?? fileURLToPath(new URL('../native/build/Release/continuo.node', import.meta.url))
let loaded: unknown

/** Throws UNAVAILABLE where the addon is missing or does not load. */
export const loadAddon = (): unknown => {
  if (loaded) return loaded
  if (!existsSync(addonPath)) {
    throw new ContinuoError('UNAVAILABLE', 'The native engine is not built. Run `npm run setup`.')
  }
  try {
    loaded = createRequire(import.meta.url)(addonPath)
  } catch (cause) {
    throw new ContinuoError(
      'UNAVAILABLE',
      'The native engine does not load on this system. Run `npm run setup` to build it again.',
      { cause },
    )
  }
  return loaded
}
