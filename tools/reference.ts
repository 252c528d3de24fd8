/**
 * Writes the pages that are made from code: docs/commands.md and docs/events.md. With `--check` it writes nothing, and
 * ends with 1 where a page is not what it would write; `test/tools/reference.test.ts` asks the same.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { commandsPage } from './reference/commands.ts'
import { eventsPage } from './reference/events.ts'

const root = join(import.meta.dirname, '..')
const check = process.argv.includes('--check')

for (const [path, text] of [
  ['docs/commands.md', await commandsPage()],
  ['docs/events.md', eventsPage()],
] as const) {
  const file = join(root, path)
  if (!check) writeFileSync(file, text)
  else if (readFileSync(file, 'utf8') !== text) {
    console.error(`${path} is not what the code says: node tools/reference.ts writes it.`)
    process.exitCode = 1
  }
}
