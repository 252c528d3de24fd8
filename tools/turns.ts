/**
 * Test files in turns: of the slow files, the engine's suites under sanitizers, those of an emulated device and those
 * with guesses, `.ci/run` takes a third, chosen by the commit's hash. Of the slow files it takes what the change
 * touches, too, up to two fifths of all. `npm run test:all`, and each suite run by hand, take all.
 *
 * A change touches a file that it alters itself or that imports, over any number of modules, a module that it alters.
 * What stands in no import is in the table: the engine below all, topics, packages. Beyond that share, those go first
 * from which the altered module is the fewest imports away; what is altered itself comes first, up to a half of all.
 * The change: the commits of the last hours before HEAD.
 */
import { execFileSync } from 'node:child_process'
import { globSync } from 'node:fs'
import { distancesFrom, readImports } from '../test/tools/imports.ts'

export const TURNS = 3
/**
 * Of all files, those that run at most, so that the answer to a change of everything comes in time; and where the
 * change alters so many itself.
 */
const MOST = { share: 2 / 5, altered: 1 / 2 }
/**
 * The same where a suite shows again, under sanitizers, on an emulated device or with guesses, what it shows by itself:
 * those whose turn it is.
 */
export const AGAIN = { share: 1 / TURNS, altered: 1 / TURNS }
/** As long as a change takes from its first commit to its last, hours. */
const HOURS = 4

/**
 * Altered paths that touch every file. A build file or a configuration of suites is tried by those whose turn it is.
 */
const EVERYTHING = /^(package-lock\.json$|models\/.*\.(json|safetensors)$)/
/** The same for the suites of a device: its kernels and their emulation touch them too. */
export const EVERYTHING_ON_A_DEVICE = new RegExp(
  `${EVERYTHING.source}|^native/((?!(bench|test)/).*|test/emulate/.*)\\.(cc|cu|h)$`,
)
/** What a path stands for beside imports. */
const TABLE: readonly (readonly [altered: RegExp, touched: RegExp])[] = [
  // The engine: all but suites of brokers, stores, pages and protocols, in which it computes what it computes in the
  // others.
  [
    /^native\/(?!(backends\/cuda|test|bench)\/).*\.(cc|h)$/,
    /^test\/(?!(blobs|console|deploy|gateway|kafka|streams)\/)/,
  ],
  [/^native\/(test|bench)\//, /^test\/(native|tools)\//],
  [/^tools\/(?!(kafka|s3)\/)/, /^test\/(tools|package|native)\//],
  [/^tools\/kafka\//, /^test\/kafka\//],
  [/^tools\/s3\//, /^test\/blobs\//],
  [/^(Dockerfile|docker-compose\.yml|deploy\/)/, /^test\/deploy\//],
  [/^(examples|docs)\//, /^test\/(package|tools|sessions|deploy)\//],
  [/^examples\/agent\.js$/, /^test\/gateway\/agent\./],
  // What a child process runs: the command line, the gateway and its page, a worker that is killed.
  [/^src\/cli\//, /^test\/cli\//],
  [/^src\/(console|gateway)\//, /^test\/(console|gateway)\//],
  [/^src\/(operators|state|streams|worker)\//, /^test\/(crash|verify-orders)\//],
]

const git = (...args: readonly string[]): string => execFileSync('git', args, { encoding: 'utf8' }).trim()

/** Paths that the last commits altered; null where git does not tell. */
export const alteredPaths = (hours = HOURS): readonly string[] | null => {
  try {
    const since = Number(git('log', '-1', '--format=%ct')) - hours * 3600
    const base = git('rev-list', '-1', `--before=${since}`, 'HEAD')
    if (base === '') return null
    return git('diff', '--name-only', base, 'HEAD').split('\n').filter(Boolean)
  } catch {
    return null
  }
}

interface Touched {
  /** Paths that touch all of these files. */
  readonly everything?: RegExp
  /** The share of them that runs at most, and that of files that are altered themselves. */
  readonly share?: number
  readonly altered?: number
}

/** Which of these files run now. `turn`: 0, 1 or 2; `altered`: null where everything runs. */
export const filesOfTurn = (
  files: readonly string[],
  turn: number,
  altered: readonly string[] | null,
  graph: ReturnType<typeof readImports>,
  { everything = EVERYTHING, share = MOST.share, altered: own = MOST.altered }: Touched = {},
): readonly string[] => {
  if (altered === null) return files
  const all = altered.some((path) => everything.test(path)) ? graph.size : Number.POSITIVE_INFINITY
  /** Imports between the file and what was altered; infinite where it is not touched. */
  const distanceOf = (file: string): number => {
    const inTable = altered.some((path) => TABLE.some(([from, to]) => from.test(path) && to.test(file)))
    const distances = distancesFrom(graph, file)
    return Math.min(all, inTable ? 1 : all, ...altered.map((path) => distances.get(path) ?? all))
  }
  const ranked = [...files]
    .sort()
    // Neighbours in the list come in different turns: the files of one folder take alike long.
    .map((file, index) => ({ file, rank: index % TURNS === turn ? -1 : distanceOf(file) }))
    .filter(({ rank }) => rank < Number.POSITIVE_INFINITY)
    .sort((a, b) => a.rank - b.rank)
  const altering = Math.min(ranked.filter(({ rank }) => rank < 1).length, Math.ceil(files.length * own))
  const most = Math.max(Math.ceil(files.length * share), altering)
  return ranked
    .slice(0, most)
    .map(({ file }) => file)
    .sort()
}

/** The turn of the commit that is checked out. */
export const turnOfCommit = (): number => Number.parseInt(git('rev-parse', 'HEAD').slice(0, 8), 16) % TURNS

/**
 * Files that these patterns name and that this run leaves to another turn, and says so: none but with
 * CONTINUO_TURNS=on, as in .ci/run.
 */
export const otherTurns = (patterns: readonly string[], touched: Touched = {}): readonly string[] => {
  if (process.env.CONTINUO_TURNS !== 'on') return []
  const files = globSync(patterns)
  const graph = readImports('.', ['src', 'topics', 'test', 'tools'])
  const run = filesOfTurn(files, turnOfCommit(), alteredPaths(), graph, touched)
  const later = files.filter((file) => !run.includes(file))
  if (later.length > 0) console.log(`Left to the turns of other commits: ${later.join(', ')}.`)
  return later
}

/** What touches a step that compiles and runs the native tests. A script of these steps is tried in their turns. */
export const NATIVE = /^native\//
/**
 * What touches a step that runs the engine's suites on another build of it: a gateway, a worker or a log gives the
 * engine nothing that these do not.
 */
export const ENGINE = /^(native|src\/(engine|models)|test\/(engine|cuda))\//

/**
 * Whether `.ci/run` leaves a whole step to another turn, and says so: it runs in its own turn and for a change below
 * it.
 */
export const isOtherTurn = (turn: number, below = NATIVE): boolean => {
  if (process.env.CONTINUO_TURNS !== 'on' || turnOfCommit() === turn) return false
  if (alteredPaths()?.some((path) => below.test(path)) ?? true) return false
  console.log('Left to the turns of other commits.')
  return true
}
