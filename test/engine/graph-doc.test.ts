/** docs/graph.md is held to what it describes: its example runs as it stands there, and no operation is left out. */
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from './packages.ts'

const root = join(import.meta.dirname, '..', '..')
const page = readFileSync(join(root, 'docs', 'graph.md'), 'utf8')

/** Text between fences that begin like this. */
const fenced = (opening: string): string => {
  const begin = page.lastIndexOf(`\n${opening}\n`) + opening.length + 2
  return page.slice(begin, page.indexOf('```', begin))
}

describe('docs/graph.md', () => {
  it('has an example that runs and prints what the page says', () => {
    const file = join(temporaryFolder(), 'example.ts')
    const source = fenced('```ts')
    expect(source).toContain("from './src/engine/builder.ts'")
    // It lies elsewhere here, so that a test writes nothing into the project.
    writeFileSync(file, source.replaceAll("from './src/", `from '${root}/src/`))
    const printed = execFileSync(process.execPath, [file], { encoding: 'utf8', env: { ...process.env, NO_COLOR: '1' } })
    const said = page.slice(page.indexOf('It prints:'))
    expect(printed).toBe(said.slice(said.indexOf('```\n') + 4, said.lastIndexOf('```')))
  })

  it('describes every operation, attribute and kind that the engine reads', () => {
    const rules = readFileSync(join(root, 'native', 'ops.cc'), 'utf8').matchAll(/\{Op::\w+, "([^"]+)",/g)
    const reader = readFileSync(join(root, 'native', 'graph_reader.cc'), 'utf8')
    const members = reader.matchAll(/(?:text_of|list_of|number)\(\w+, "([^"]+)"|find\("([^"]+)"\)/g)
    const names = [...rules, ...members].map(([, first, second]) => first ?? second!)
    expect(names.length).toBeGreaterThan(60)
    for (const name of new Set(names)) expect(page).toMatch(new RegExp(`[\`{ ]${name.replace('.', '\\.')}[\`:, }]`))
  })
})
