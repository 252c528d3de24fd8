// Checks the format of the C++ and CUDA sources (.clang-format); with --write, formats them.
import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

const root = join(import.meta.dirname, '..')
const formatter = join(
  dirname(createRequire(import.meta.url).resolve('clang-format-node/package.json')),
  'build',
  'cli.js',
)
const files = readdirSync(join(root, 'native'), { recursive: true })
  .filter((file) => /\.(h|cc|cu)$/.test(file) && !file.startsWith('build'))
  .map((file) => join('native', file))
  .sort()
const how = process.argv.includes('--write') ? ['-i'] : ['--dry-run', '--Werror', '--ferror-limit=1']
const { status } = spawnSync(process.execPath, [formatter, ...how, ...files], { cwd: root, stdio: 'inherit' })
if (status !== 0) console.error('The native sources are not formatted: npm run format writes them.')
process.exit(status ?? 1)
