/**
 * Sets everything up, from a fresh clone or after a pull: packages, then the native addon. Quick when nothing changed.
 *
 * Plain JavaScript that old versions of Node can read: it runs before `node@24` from the devDependencies is there.
 */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const at = (...names) => join(root, ...names)

const fail = (sentence) => {
  console.error(`\n${sentence}`)
  process.exit(1)
}

/** Installs exactly what the lock file says, when it says something new. */
const installPackages = () => {
  const lock = createHash('sha256')
    .update(readFileSync(at('package-lock.json')))
    .digest('hex')
  const stamp = at('node_modules', '.continuo-lock')
  const node = at('node_modules', '.bin', 'node')
  if (existsSync(stamp) && existsSync(node) && readFileSync(stamp, 'utf8') === lock) return
  console.log('Installing packages …')
  const npm = spawnSync('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: root, encoding: 'utf8' })
  if (npm.error !== undefined)
    fail(`npm could not be started (${npm.error.message}). Install Node.js with npm, version 22.12 or newer.`)
  if (npm.status !== 0) fail(`Installing packages failed:\n${npm.stderr}\nIs the package registry reachable?`)
  if (!existsSync(node))
    fail(
      'The package "node" (version 24) was installed without its binary. Allow its install script (npm config ignore-scripts) and try again.',
    )
  mkdirSync(dirname(stamp), { recursive: true })
  writeFileSync(stamp, lock)
}

/** The addon is built by the Node that will load it. */
const buildNative = () => {
  const built = spawnSync(at('node_modules', '.bin', 'node'), [at('tools', 'build-native.mjs')], {
    cwd: root,
    stdio: 'inherit',
  })
  if (built.status !== 0) process.exit(built.status ?? 1)
}

installPackages()
buildNative()
