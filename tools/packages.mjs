// Tools with a package of their own: what set-up need not install is installed where it is asked for first.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fail } from './addon.mjs'

/**
 * Installs the packages of the lock file in `folder`, where it is not what was installed there last, and says
 * `sentence`.
 */
export const installPackages = (folder, sentence) => {
  const lock = createHash('sha256')
    .update(readFileSync(join(folder, 'package-lock.json')))
    .digest('hex')
  const stamp = join(folder, 'node_modules', '.continuo-lock')
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === lock) return
  console.log(sentence)
  const flags = ['--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error']
  const { status, error } = spawnSync('npm', ['ci', ...flags], { cwd: folder, stdio: 'inherit' })
  if (status !== 0) fail(`npm ci in ${folder} failed${error === undefined ? '.' : `: ${error.message}`}`)
  writeFileSync(stamp, lock)
}
