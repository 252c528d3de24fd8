/** The package's modules as they are published, for tests and benches that run them outside of the checkout. */
import { execFileSync } from 'node:child_process'
import { symlinkSync } from 'node:fs'
import { join } from 'node:path'

const root = join(import.meta.dirname, '..')

/**
 * Compiles into the empty `folder`, beside links to the checkout's packages and addon: its own dist/ may be missing,
 * old, or just being made.
 */
export const writePublished = (folder: string): void => {
  for (const name of ['package.json', 'node_modules', 'native']) symlinkSync(join(root, name), join(folder, name))
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc')
  const project = join(root, 'tools', 'package.tsconfig.json')
  execFileSync(process.execPath, [tsc, '-p', project, '--outDir', join(folder, 'dist')])
}
