// Builds the native addon with cmake-js when its sources changed since the last build. Plain JavaScript: it also runs on the Node
// that happens to be installed, before the project's own is there.
//
// native/build/.stamp holds the hash of everything the build depends on; it is written last.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { availableParallelism } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const source = join(root, 'native')
const build = join(source, 'build')
const addon = join(build, 'Release', 'continuo.node')
const stamp = join(build, '.stamp')
const log = join(build, 'build.log')
const lock = join(source, 'building.log')
const require = createRequire(join(root, 'package.json'))

const sources = (folder) =>
  readdirSync(folder, { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap((entry) => {
      const path = join(folder, entry.name)
      if (entry.isDirectory()) return entry.name === 'test' || entry.name.startsWith('build') ? [] : sources(path)
      return /\.(cc|h|txt|json)$/.test(entry.name) ? [path] : []
    })

const currentHash = () => {
  const hash = createHash('sha256')
  hash.update(`${process.platform} ${process.arch}\n`)
  for (const name of ['cmake-js', 'node-addon-api', 'node-api-headers']) {
    hash.update(
      `${name} ${JSON.parse(readFileSync(join(root, 'node_modules', name, 'package.json'), 'utf8')).version}\n`,
    )
  }
  for (const path of sources(source))
    hash
      .update(`${relative(source, path)}\n`)
      .update(readFileSync(path))
      .update('\0')
  return hash.digest('hex')
}

const upToDate = (hash) => existsSync(addon) && existsSync(stamp) && readFileSync(stamp, 'utf8') === hash

const runs = (command) => spawnSync(command, ['--version'], { stdio: 'ignore' }).status === 0

export const missingTools = () => {
  const missing = []
  const compilers = process.env.CXX ? [process.env.CXX] : ['c++', 'g++', 'clang++']
  if (!compilers.some(runs)) missing.push('a C++20 compiler (g++ 12 or clang 15 and later)')
  if (!runs('cmake')) missing.push('CMake 3.18 or later')
  if (!runs('ninja') && !runs('make')) missing.push('make or ninja')
  return missing
}

const installHint = 'for example: `apt-get install g++ cmake make`'

/** Waits for a build that another process has under way; takes its place when that process is gone. */
const withLock = (work) => {
  mkdirSync(build, { recursive: true })
  for (;;) {
    try {
      const fd = openSync(lock, 'wx')
      writeSync(fd, String(process.pid))
      closeSync(fd)
      break
    } catch (error) {
      if (error.code !== 'EEXIST') throw error
      if (holderIsGone()) rmSync(lock, { force: true })
      else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200)
    }
  }
  try {
    return work()
  } finally {
    rmSync(lock, { force: true })
  }
}

const holderIsGone = () => {
  let pid
  try {
    pid = Number(readFileSync(lock, 'utf8'))
    // Between creation and the write of the pid the file is empty for a moment.
    if (!pid) return Date.now() - statSync(lock).mtimeMs > 5000
  } catch {
    return false
  }
  try {
    process.kill(pid, 0)
    return false
  } catch (error) {
    return error.code === 'ESRCH'
  }
}

/** A build folder that came along with a moved or copied checkout configures the old place. */
const dropForeignBuild = () => {
  const cache = join(build, 'CMakeCache.txt')
  if (!existsSync(cache)) return
  const home = /^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$/m.exec(readFileSync(cache, 'utf8'))
  if (home && home[1] === source) return
  rmSync(build, { recursive: true, force: true })
  mkdirSync(build, { recursive: true })
}

/** Returns a line that says what happened. Throws an Error whose message says what to do. */
export const buildNative = () => {
  const hash = currentHash()
  if (upToDate(hash)) return 'native engine: up to date'
  const missing = missingTools()
  if (missing.length > 0)
    throw new Error(
      `The native engine needs ${missing.join(' and ')}. Install it, ${installHint}, and run \`npm run setup\` again.`,
    )
  return withLock(() => {
    if (upToDate(hash)) return 'native engine: up to date'
    dropForeignBuild()
    rmSync(stamp, { force: true })
    const started = Date.now()
    const out = openSync(log, 'w')
    // native/package.json declares Node-API, so cmake-js takes the headers from node-api-headers and downloads nothing.
    const cmakeJs = join(dirname(require.resolve('cmake-js/package.json')), 'bin', 'cmake-js')
    const { status } = spawnSync(
      process.execPath,
      [
        cmakeJs,
        'build',
        '--directory',
        source,
        '--out',
        build,
        '--config',
        'Release',
        '--parallel',
        String(availableParallelism()),
      ],
      { cwd: root, stdio: ['ignore', out, out] },
    )
    closeSync(out)
    if (status !== 0 || !existsSync(addon)) {
      const tail = readFileSync(log, 'utf8').trimEnd().split('\n').slice(-30).join('\n')
      throw new Error(`${tail}\n\nBuilding the native engine failed; the full log is ${relative(process.cwd(), log)}.`)
    }
    writeFileSync(stamp, hash)
    return `native engine: built in ${((Date.now() - started) / 1000).toFixed(0)} s`
  })
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  try {
    console.log(buildNative())
  } catch (error) {
    console.error(error.message)
    process.exitCode = 1
  }
}
