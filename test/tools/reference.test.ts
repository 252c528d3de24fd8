/** The pages that `node tools/reference.ts` makes are what it makes of the code as it is. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { COMMANDS } from '../../src/cli/commands/index.ts'
import { commandsPage } from '../../tools/reference/commands.ts'
import { eventsPage } from '../../tools/reference/events.ts'
import { prose, table } from '../../tools/reference/markdown.ts'
import { TOPICS } from '../../topics/index.ts'

const read = (path: string): string => readFileSync(join(import.meta.dirname, '..', '..', path), 'utf8')

describe('a page that is made from code', () => {
  test('docs/commands.md has every command and flag as they are; where not, run `node tools/reference.ts`', async () => {
    const page = read('docs/commands.md')
    expect(page === (await commandsPage())).toBe(true)
    for (const { name, load } of COMMANDS) {
      expect(page).toContain(`\n### continuo ${name}\n`)
      for (const flag of Object.keys((await load()).flags)) expect(page).toContain(`\`--${flag}`)
    }
  })

  test('docs/events.md has every topic and event as they are; where not, run `node tools/reference.ts`', () => {
    const page = read('docs/events.md')
    expect(page === eventsPage()).toBe(true)
    for (const { name } of TOPICS) expect(page).toContain(`\n## continuo.${name}\n`)
    for (const event of ['open', 'text', 'generate', 'generated', 'observed', 'alert'])
      expect(page).toContain(`\n### ${event}\n`)
  })
})

test('text of a table of flags is no markup, but for its code and its pages', () => {
  expect(prose('a <b> of *all* `x_y` (docs/watch.md), x_y')).toBe(
    'a \\<b\\> of \\*all\\* `x_y` ([watch.md](watch.md)), x\\_y',
  )
  expect(table(['a', 'b'], [['`x|y`', '']])).toEqual(['| a | b |', '| --- | --- |', '| `x\\|y` |  |'])
})
