/**
 * Which files of the suites have the tag "slow": all their tests do where the head of the file says `@module-tag slow`, some where a test's
 * options do. Known without opening them as modules, since some start a broker then.
 */
import { globSync, readFileSync } from 'node:fs'

const all = globSync('test/**/*.test.ts')
/** Files with a configuration of their own: those of a device and of a cluster. */
export const otherFiles: readonly string[] = all.filter((path) => /^test\/(cuda|cluster)\//.test(path))
const files = all
  .filter((path) => !otherFiles.includes(path))
  .map((path) => ({ path, text: readFileSync(path, 'utf8') }))
const whole = files.filter(({ text }) => text.includes('@module-tag slow'))

/** Files that npm test does not open. */
export const slowFiles: readonly string[] = whole.map(({ path }) => path)
/** Files of which npm test runs a part. */
export const mixedFiles: readonly string[] = files
  .filter((file) => !whole.includes(file) && file.text.includes("tags: 'slow'"))
  .map(({ path }) => path)
/** Files that npm test runs as they are. */
export const fastFiles: readonly string[] = files
  .map(({ path }) => path)
  .filter((path) => !slowFiles.includes(path) && !mixedFiles.includes(path))
