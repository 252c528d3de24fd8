/**
 * Finds the test files with the tag "slow": every test of a file has it where the head of the file says `@module-tag
 * slow`; some have it where their options do, in the file or in a module of tests that it shares with others. Reads the
 * files as text, since some start a broker when they are imported.
 */
import { globSync, readFileSync } from 'node:fs'
import { distancesFrom, readImports } from '../test/tools/imports.ts'

const all = globSync('test/**/*.test.ts')
/** Files with a configuration of their own: those of a device and of a cluster. */
export const otherFiles: readonly string[] = all.filter((path) => /^test\/(cuda|cluster)\//.test(path))
const files = all
  .filter((path) => !otherFiles.includes(path))
  .map((path) => ({ path, text: readFileSync(path, 'utf8') }))
const whole = files.filter(({ text }) => text.includes('@module-tag slow'))

/** Files that npm test does not open. */
export const slowFiles: readonly string[] = whole.map(({ path }) => path)
const graph = readImports('.', ['test'])
const tagged = new Set(
  [...graph.keys()].filter((path) => /\btags:[^}]*?('slow'|\w+With\b)/.test(readFileSync(path, 'utf8'))),
)
/** Files of which npm test runs a part. */
export const mixedFiles: readonly string[] = files
  .filter(
    (file) => !whole.includes(file) && [...distancesFrom(graph, file.path).keys()].some((path) => tagged.has(path)),
  )
  .map(({ path }) => path)
/** Files that npm test runs as they are. */
export const fastFiles: readonly string[] = files
  .map(({ path }) => path)
  .filter((path) => !slowFiles.includes(path) && !mixedFiles.includes(path))
