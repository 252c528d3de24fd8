/**
 * Loads the addon that native/ is built to. Its functions are typed where they are called: src/engine/native.ts,
 * src/bulk.ts.
 */
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { ContinuoError } from './errors.ts'
import { inPackage, SETUP } from './places.ts'

/**
 * What was built on this machine comes before what the package brings: `setup` may have built it with CUDA. Tests put
 * other builds in their place: with sanitizers, or with the CUDA kernels emulated.
 */
const findAddon = (): string | undefined =>
  process.env.CONTINUO_ADDON ??
  [
    inPackage('native', 'build', 'Release', 'continuo.node'),
    inPackage('prebuilds', `${process.platform}-${process.arch}`, 'continuo.node'),
  ].find((path) => existsSync(path))

let loaded: unknown

/** Throws UNAVAILABLE where the addon is missing or does not load. */
export const loadAddon = (): unknown => {
  if (loaded) return loaded
  const path = findAddon()
  if (path === undefined || !existsSync(path)) {
    throw new ContinuoError(
      'UNAVAILABLE',
      `The native engine is not built for ${process.platform} ${process.arch}. Run \`${SETUP}\`.`,
    )
  }
  try {
    loaded = createRequire(import.meta.url)(path)
  } catch (cause) {
    throw new ContinuoError(
      'UNAVAILABLE',
      `The native engine does not load on this system. Run \`${SETUP}\` to build it here.`,
      { cause },
    )
  }
  return loaded
}
