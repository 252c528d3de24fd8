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

/** The project's own Node: version 24, from the devDependencies. */
const node = at('node_modules', '.bin', 'node')

/** Whether node_modules is exactly what the lock file says. Optional packages of other systems may be absent. */
const installedByNpm = (lock) => {
  const list = at('node_modules', '.package-lock.json')
  if (!existsSync(node) || !existsSync(list)) return false
  const installed = JSON.parse(readFileSync(list, 'utf8')).packages
  const wanted = JSON.parse(lock).packages
  const is = (path, { version, integrity, optional = false }) => {
    const found = installed[path]
    return found === undefined ? optional : found.version === version && found.integrity === integrity
  }
  return (
    Object.keys(installed).every((path) => path in wanted) &&
    Object.entries(wanted).every(([path, entry]) => path === '' || is(path, entry))
  )
}

/** Installs the packages of the lock file where node_modules differs from it. */
const installPackages = () => {
  const text = readFileSync(at('package-lock.json'), 'utf8')
  const lock = createHash('sha256').update(text).digest('hex')
  const stamp = at('node_modules', '.continuo-lock')
  if (existsSync(stamp) && existsSync(node) && readFileSync(stamp, 'utf8') === lock) return
  if (!existsSync(stamp) && installedByNpm(text)) return writeFileSync(stamp, lock)
  console.log('Installing packages …')
  // The project's own Node is a devDependency, so devDependencies are installed even with NODE_ENV=production or npm's
  // omit=dev.
  const npm = spawnSync('npm', ['ci', '--include=dev', '--no-audit', '--no-fund', '--loglevel=error'], {
    cwd: root,
    encoding: 'utf8',
  })
  if (npm.error !== undefined)
    fail(`npm could not be started (${npm.error.message}). Install Node.js with npm, version 22.15 or newer.`)
  if (npm.status !== 0) fail(`Installing packages failed:\n${npm.stderr}\nIs the package registry reachable?`)
  if (!existsSync(node))
    fail(
      'The package "node" (version 24) was installed without its binary. Allow its install script (npm config ignore-scripts) and try again.',
    )
  mkdirSync(dirname(stamp), { recursive: true })
  writeFileSync(stamp, lock)
}

/** Builds the addon with the Node that will load it. */
const buildNative = () => {
  const built = spawnSync(node, [at('tools', 'build-native.mjs')], {
    cwd: root,
    stdio: 'inherit',
  })
  if (built.error !== undefined)
    fail(
      `The project's own Node.js, ${node}, could not be started (${built.error.message}). It needs glibc: on Alpine or another system with musl, use a Debian-based image. Elsewhere delete node_modules and try again.`,
    )
  if (built.signal !== null) fail(`Building the native engine was ended by ${built.signal}. Try again.`)
  if (built.status !== 0) process.exit(built.status)
}

installPackages()
buildNative()
