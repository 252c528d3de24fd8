// What builds of the engine need: a compiler, CMake, Ninja, ccache, and which instruction sets are compiled. Plain
// JavaScript like build-native.mjs.
//
// CMake and Ninja are the system's, or, where it has none that is new enough, those of the packages in tools/cmake. A
// compiler is the system's; where there is none, root on a system with apt-get gets g++ (CONTINUO_INSTALL=no forbids
// that).
import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, readFileSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))

/** A package of its own, with a lock file: CMake and Ninja, as programs. Not in an installed Continuo. */
const own = join(root, 'tools', 'cmake')
const programs = ['cmake', 'ninja'].map((name) => join(own, 'node_modules', `${name}-runtime-linux-x64`, 'bin', name))

/**
 * The environment of a build. ccache finds an object again in another clone: paths below `root` count relative to it,
 * and the folder in which the compiler runs does not count. Its cache is the user's own, outside of the clone.
 */
export const buildEnvironment = (env = process.env) => ({
  CCACHE_BASEDIR: root,
  CCACHE_NOHASHDIR: '1',
  CCACHE_MAXSIZE: '5G',
  ...env,
  PATH: [...programs.filter(existsSync).map(dirname), env.PATH].join(delimiter),
})

/** Whether the program is there, for a build. */
export const runs = (program) =>
  spawnSync(program, ['--version'], { stdio: 'ignore', env: buildEnvironment() }).status === 0

/** a, b and c */
export const listed = (names) => new Intl.ListFormat('en-GB').format(names)

const COMPILER = 'a C++20 compiler (g++ 12 or clang 15 and later)'
/** What a build may miss, and Debian's package for it. */
const PACKAGES = { [COMPILER]: 'g++', 'CMake 3.18 or later': 'cmake', 'make or ninja': 'ninja-build' }

/** The oldest CMake that reads native/CMakeLists.txt. */
const hasCMake = () => {
  const { stdout } = spawnSync('cmake', ['--version'], { encoding: 'utf8', env: buildEnvironment() })
  const [, major, minor] = /version (\d+)\.(\d+)/.exec(stdout ?? '') ?? []
  return Number(major) > 3 || (Number(major) === 3 && Number(minor) >= 18)
}
const hasMaker = () => runs('ninja') || runs('make')
const hasCompiler = () => (process.env.CXX ? [process.env.CXX] : ['c++', 'g++', 'clang++']).some(runs)

export const missingTools = () => {
  const there = [hasCompiler(), hasCMake(), hasMaker()]
  return Object.keys(PACKAGES).filter((_, index) => !there[index])
}

/** A sentence for people who can install what is missing. `what`: who needs it. */
export const missingSentence = (what, missing) =>
  `${what} ${listed(missing)}. Install what is missing, for example: \`apt-get install ${missing.map((one) => PACKAGES[one] ?? one).join(' ')}\``

/**
 * Installs packages of Debian with apt-get where this process may: it is root, there is apt-get, and CONTINUO_INSTALL
 * is not no. Says so before. Returns whether they were installed.
 */
export const installPackages = (packages, why, say = (line) => console.error(line)) => {
  const may = process.getuid?.() === 0 && process.env.CONTINUO_INSTALL !== 'no'
  if (!may || spawnSync('apt-get', ['--version'], { stdio: 'ignore' }).status !== 0) return false
  say(`${why}: installing ${listed(packages)} with apt-get (CONTINUO_INSTALL=no forbids it) …`)
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const steps = [
    ['update', '-qq'],
    ['install', '-y', '-qq', '--no-install-recommends', ...packages],
  ]
  for (const args of steps) {
    const { status, stderr } = spawnSync('apt-get', args, {
      encoding: 'utf8',
      env,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    if (status === 0) continue
    say(`apt-get ${args[0]} failed:\n${(stderr ?? '').trimEnd()}`)
    return false
  }
  return true
}

/** Installs the packages of CMake and Ninja. npm unpacks their programs without the permission to run them. */
const installPrograms = () => {
  console.error('There is no CMake of 3.18 or later with Ninja or make: installing the packages of CMake and Ninja …')
  const { status, stderr } = spawnSync('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], {
    cwd: own,
    encoding: 'utf8',
  })
  if (status !== 0) console.error(`npm could not install them:\n${(stderr ?? '').trimEnd()}`)
  for (const program of programs.filter(existsSync)) chmodSync(program, 0o755)
}

/** Installs what a build misses where that is possible, and says so before. */
export const installTools = () => {
  if (!hasCompiler()) installPackages(['g++'], 'There is no C++ compiler')
  const packaged = process.platform === 'linux' && process.arch === 'x64' && existsSync(own)
  if (packaged && !(hasCMake() && hasMaker())) installPrograms()
}

/**
 * Definitions of CMake for a build of the whole engine: units of several sources (native/units.cmake), and a compiler
 * cache where ccache is installed. `units`: false where single sources are compiled.
 */
export const buildDefinitions = ({ units = true } = {}) => [
  `CONTINUO_UNITS=${units ? 'ON' : 'OFF'}`,
  ...['CXX', 'CUDA'].map((language) => `CMAKE_${language}_COMPILER_LAUNCHER=${runs('ccache') ? 'ccache' : ''}`),
]

/**
 * The sets that native/CMakeLists.txt can compile beside generic, and the flags of /proc/cpuinfo by which a processor
 * has each.
 */
const V3 = ['avx2', 'fma', 'bmi1', 'bmi2']
const V4 = [...V3, 'avx512f', 'avx512bw', 'avx512cd', 'avx512dq', 'avx512vl']
const SETS = { avx512vnni: [...V4, 'avx512_vnni'], avx512: V4, avx2: V3 }
const ALL = Object.keys(SETS)

/**
 * The fastest set that this machine runs, in a list; all of them where this system does not tell; none on other
 * architectures.
 */
export const machineSets = () => {
  if (process.arch !== 'x64') return []
  if (!existsSync('/proc/cpuinfo')) return ALL
  const [, line = ''] = /^flags\s*:(.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8')) ?? []
  const flags = new Set(line.trim().split(/\s+/))
  return ALL.filter((set) => SETS[set].every((flag) => flags.has(flag))).slice(0, 1)
}

/** The sets that an addon must have: those of this machine, and what CONTINUO_ISA asks for: one by its name, or all. */
export const wantedSets = (wanted = process.env.CONTINUO_ISA) => {
  if (process.arch !== 'x64') return []
  if (wanted === 'all') return ALL
  return ALL.filter((set) => set === wanted || machineSets().includes(set))
}

/** The definition of CMake for these sets. */
export const setsDefinition = (sets) => `CONTINUO_ISA=${sets.length === 0 ? 'none' : sets.join(';')}`
