// Builds the native addon with cmake-js when its sources changed since the last build. Plain JavaScript, because it
// also runs on the machine's Node before the project's own is installed, and in an installed package, which has it for
// `continuo setup`.
//
// native/build/.stamp has the hash of everything the build depends on; it is written last. CONTINUO_CUDA decides
// whether the CUDA backend is built: on, off, or auto (where nvcc and a GPU are found); see cuda.mjs.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  closeSync,
  existsSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { availableParallelism } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { tellProgress } from './build-progress.mjs'
import {
  buildDefinitions,
  buildEnvironment,
  installTools,
  listed,
  missingSentence,
  missingTools,
  runs,
  setsDefinition,
  wantedSets,
} from './build-tools.mjs'
import { chooseCuda } from './cuda.mjs'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const source = join(root, 'native')
const build = join(source, 'build')
const addon = join(build, 'Release', 'continuo.node')
const stamp = join(build, '.stamp')
const log = join(build, 'build.log')
/**
 * The definitions of the build folder. cmake-js passes definitions on only when it configures a folder for the first
 * time.
 */
const configured = join(build, '.cuda')
/** The instruction sets of the addon, in a line. */
const sets = join(build, '.sets')
const lock = join(source, 'building.log')
const require = createRequire(join(root, 'package.json'))
/** What the user calls: setup.mjs, which also installs packages, is only in a checkout. */
const command = existsSync(join(root, 'tools', 'setup.mjs')) ? 'npm run setup' : 'npx continuo setup'

const sources = (folder) =>
  readdirSync(folder, { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap((entry) => {
      const path = join(folder, entry.name)
      if (entry.isDirectory()) return entry.name === 'test' || entry.name.startsWith('build') ? [] : sources(path)
      return /\.(cc|cu|h|txt|json)$/.test(entry.name) ? [path] : []
    })

/** off, or the release of nvcc. */
const nameOf = ({ nvcc }) => (nvcc === null ? 'off' : nvcc.release)

const currentHash = (cuda) => {
  const hash = createHash('sha256')
  hash.update(`${process.platform} ${process.arch} ${nameOf(cuda)}\n`)
  for (const name of ['cmake-js', 'node-addon-api', 'node-api-headers']) {
    // Where npm put the package: in node_modules of the checkout, or beside an installed Continuo.
    const { version } = JSON.parse(readFileSync(require.resolve(`${name}/package.json`), 'utf8'))
    hash.update(`${name} ${version}\n`)
  }
  for (const path of sources(source))
    hash
      .update(`${relative(source, path)}\n`)
      .update(readFileSync(path))
      .update('\0')
  return hash.digest('hex')
}

const textOf = (path) => (existsSync(path) ? readFileSync(path, 'utf8') : '')
const builtSets = () => textOf(sets).split(' ').filter(Boolean)

const fitsSources = (hash) => existsSync(addon) && textOf(stamp) === hash
const lackingSets = (wanted) => wanted.filter((set) => !builtSets().includes(set))
const upToDate = (hash, wanted) => fitsSources(hash) && lackingSets(wanted).length === 0

/**
 * The longest wait for another build, ms. Bounded, because the process id in the lock file may belong to another
 * program by now.
 */
const LONGEST_BUILD = 30 * 60 * 1000
/** A wait is reported once it has lasted this long, ms. */
const SHORT_WAIT = 2000
const sleep = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)

/** Takes the build lock. Waits while another process builds; takes the lock over when that process has ended. */
const withLock = (work) => {
  mkdirSync(build, { recursive: true })
  const started = Date.now()
  let told = false
  for (;;) {
    try {
      writeFileSync(lock, String(process.pid), { flag: 'wx' })
      break
    } catch (error) {
      if (error.code !== 'EEXIST') throw error
    }
    const held = readLock(lock)
    if (held === null) continue
    if (isStale(held)) takeAway(held)
    else {
      if (!told && Date.now() - started > SHORT_WAIT) {
        told = true
        const holder = held.text ? `process ${held.text}` : 'another process'
        console.error(
          `Waiting for ${holder}, which builds the native engine. If no build is under way, delete ${relative(process.cwd(), lock)}.`,
        )
      }
      sleep(200)
    }
  }
  try {
    return work()
  } finally {
    const held = readLock(lock)
    if (held !== null && held.text === String(process.pid)) rmSync(lock, { force: true })
  }
}

/** The process that has the lock, and since when; null if the lock is free. */
const readLock = (path) => {
  try {
    return { text: readFileSync(path, 'utf8'), since: statSync(path).mtimeMs }
  } catch (error) {
    if (error.code === 'ENOENT') return null
    throw error
  }
}

const isStale = ({ text, since }) => {
  const age = Date.now() - since
  const pid = Number(text)
  // Between creation and the write of the pid the file is empty for a moment.
  if (!pid) return age > 5000
  if (pid === process.pid || age > LONGEST_BUILD) return true
  try {
    process.kill(pid, 0)
    return false
  } catch (error) {
    return error.code === 'ESRCH'
  }
}

/**
 * Removes a stale lock. Several processes may do so at once, and a slow one must not remove the new lock of a quick
 * one. So the lock is moved aside, compared, and put back if it is not the stale one.
 */
const takeAway = (stale) => {
  const aside = join(source, `building-${process.pid}-${Date.now()}.log`)
  try {
    renameSync(lock, aside)
    const taken = readLock(aside)
    if (taken.text !== stale.text || taken.since !== stale.since) linkSync(aside, lock)
  } catch (error) {
    if (error.code !== 'ENOENT' && error.code !== 'EEXIST') throw error
  }
  rmSync(aside, { force: true })
}

/** A value of CMake's cache in a build folder; undefined if it has none. */
export const cached = (folder, name) => {
  const cache = join(folder, 'CMakeCache.txt')
  if (!existsSync(cache)) return undefined
  const found = new RegExp(`^${name}:INTERNAL=(.*)$`, 'm').exec(readFileSync(cache, 'utf8'))
  return found ? found[1] : ''
}

/**
 * Removes a build folder that was moved or copied with the checkout, since CMake would go on building the old place,
 * and one that was made for another generator.
 */
export const dropForeignBuild = (folder, home) => {
  const place = cached(folder, 'CMAKE_HOME_DIRECTORY')
  const generator = cached(folder, 'CMAKE_GENERATOR')
  if (place === undefined) return
  if (place !== home || (generator !== undefined && (generator === 'Ninja') !== runs('ninja'))) drop(folder)
}

const drop = (folder) => {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
}

/**
 * Whether somebody works on the sources in native/: then each is compiled alone, so that a change compiles what it
 * touches.
 */
export const editing = () => {
  const { status, stdout } = spawnSync('git', ['status', '--porcelain', '--', 'native'], {
    cwd: root,
    encoding: 'utf8',
  })
  return status === 0 && stdout !== ''
}

/** Removes a build folder that was configured for another CUDA. */
const dropOtherCuda = (name) => {
  const before = existsSync(configured) ? readFileSync(configured, 'utf8') : undefined
  if (before !== name && existsSync(join(build, 'CMakeCache.txt'))) drop(build)
  writeFileSync(configured, name)
}

/**
 * Builds the addon where necessary. `wanted`: instruction sets that it must have. Returns a line for the user. Throws
 * an Error whose message says what to do.
 */
export const buildNative = (wanted = wantedSets()) => {
  const cuda = chooseCuda()
  const hash = currentHash(cuda)
  if (upToDate(hash, wanted)) return 'native engine: up to date'
  installTools()
  const missing = missingTools()
  if (missing.length > 0)
    throw new Error(`${missingSentence('The native engine needs', missing)}, and run \`${command}\` again.`)
  return withLock(() => {
    if (upToDate(hash, wanted)) return 'native engine: up to date'
    if (fitsSources(hash))
      console.error(`The native engine has no kernels for ${listed(lackingSets(wanted))}; it is built again with them.`)
    dropForeignBuild(build, source)
    dropOtherCuda(nameOf(cuda))
    rmSync(stamp, { force: true })
    const started = Date.now()
    const out = openSync(log, 'w')
    // native/package.json declares Node-API, so cmake-js takes the headers from node-api-headers and downloads nothing.
    const cmakeJs = join(dirname(require.resolve('cmake-js/package.json')), 'bin', 'cmake-js')
    // A checkout that several machines use keeps the sets of each.
    const all = [...new Set([...wanted, ...builtSets()])]
    const definitions = [...buildDefinitions({ units: !editing() }), setsDefinition(all)]
    // A folder that is configured gets no definitions from cmake-js.
    if (existsSync(join(build, 'CMakeCache.txt')))
      spawnSync('cmake', [...definitions.map((one) => `-D${one}`), build], {
        stdio: ['ignore', out, out],
        env: buildEnvironment(),
      })
    const told = tellProgress('compiling the native engine', log)
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
        ...[`CONTINUO_CUDA=${cuda.mode}`, ...definitions].map((one) => `--CD${one}`),
        '--parallel',
        String(availableParallelism()),
      ],
      {
        cwd: root,
        stdio: ['ignore', out, out],
        env: buildEnvironment(cuda.nvcc === null ? process.env : { ...process.env, CUDACXX: cuda.nvcc.program }),
      },
    )
    told()
    closeSync(out)
    if (status !== 0 || !existsSync(addon)) {
      const tail = readFileSync(log, 'utf8').trimEnd().split('\n').slice(-30).join('\n')
      throw new Error(`${tail}\n\nBuilding the native engine failed; the full log is ${relative(process.cwd(), log)}.`)
    }
    writeFileSync(sets, all.join(' '))
    writeFileSync(stamp, hash)
    const what = cuda.nvcc === null ? 'built' : `built with CUDA ${cuda.nvcc.release}`
    return `native engine: ${what} in ${((Date.now() - started) / 1000).toFixed(0)} s`
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
