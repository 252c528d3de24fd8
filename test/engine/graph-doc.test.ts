/** docs/graph.md is held to what it describes: its example runs as it stands there, and no operation is left out. */
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { callNative } from '../../src/engine/native.ts'
import { temporaryFolder } from './packages.ts'

const root = join(import.meta.dirname, '..', '..')
const page = readFileSync(join(root, 'docs', 'graph.md'), 'utf8')

/** The programs of the page, under the headings above them, and what the page says they print. */
const examples = [...page.matchAll(/\n```ts\n(.*?)```\n\nIt prints:\n\n```\n(.*?)```/gs)].map(
  ({ 1: source = '', 2: printed = '', index }) => ({
    heading: [...page.slice(0, index).matchAll(/^###? (.*)$/gm)].at(-1)![1]!,
    source,
    printed,
  }),
)

describe('docs/graph.md', () => {
  it('has programs, each with what it prints', () => {
    expect(examples.map(({ heading }) => heading)).toEqual([
      'An example',
      'Constants for the host',
      'A volatile table',
      'A table that grows along two counters',
    ])
    expect(page.split('\n```ts\n')).toHaveLength(examples.length + 1)
  })

  it.each(examples)('$heading: the program runs and prints what the page says', ({ source, printed }) => {
    const file = join(temporaryFolder(), 'example.ts')
    expect(source).toContain("from './src/engine/builder.ts'")
    // It lies elsewhere here, so that a test writes nothing into the project.
    writeFileSync(file, source.replaceAll("from './src/", `from '${root}/src/`))
    const options = { encoding: 'utf8', env: { ...process.env, NO_COLOR: '1' } } as const
    expect(execFileSync(process.execPath, [file], options)).toBe(printed)
  })

  it('has every operation of the op table in one row of its tables, with its operands, attributes and state', () => {
    const rows = page.split('\n').filter((line) => line.startsWith('| `'))
    for (const { name, inputs, more, state, attributes } of callNative((addon) => addon.operations())) {
      const own = rows.filter((row) => row.split('|')[1]!.includes(`\`${name}\``))
      expect(own.length, name).toBeGreaterThan(0)
      const said = own.join('\n')
      // A memory's rule, retention and periods have a section of their own.
      const shown = attributes.includes('rule') ? attributes.filter((each) => each === 'groups') : attributes
      for (const attribute of shown) expect(said, name).toContain(`\`${attribute}\``)
      if (state && inputs.length > 0) expect(said, name).toMatch(/state|replaces/)
      if (more || inputs.length === 0 || inputs.includes('form') || inputs.includes('any')) continue
      const operands = own[0]!
        .split('|')[2]!
        .split('→')[0]!
        .replaceAll(/\[[^\]]*\]|\([^)]*\)/g, '')
        .split(',')
      expect(operands.filter((operand) => !/^\s*`?(?:state|$)/.test(operand)).length, name).toBe(inputs.length)
    }
  })

  it('says every attribute, and every member and kind of a declaration that the engine reads', () => {
    const read = ['reader.cc', 'reader_declarations.cc', 'reader_nodes.cc', 'node_attributes.cc'].map((file) =>
      readFileSync(join(root, 'native', 'graph', file), 'utf8'),
    )
    const members = read
      .join('\n')
      .matchAll(/(?:text_of|list_of|number|positive|real|floats)\((?:\w+, )?"([^"]+)"|find\("([^"]+)"\)/g)
    const names = [...members].map(([, first, second]) => first ?? second!)
    expect(names.length).toBeGreaterThan(40)
    for (const name of new Set(names)) expect(page).toMatch(new RegExp(`[\`{ ]${name.replace('.', '\\.')}[\`:, }]`))
  })

  it('has operations that the graph builder writes, and the builder writes no others', () => {
    const source = ['builder.ts', 'memory-ops.ts', 'routing-ops.ts', 'expert-ops.ts', 'ngram-ops.ts'].map((file) =>
      readFileSync(join(root, 'src', 'engine', file), 'utf8'),
    )
    const written = source
      .join('\n')
      .matchAll(/(?:write|like|compared|unary|normalised)\(\s*'([a-z][\w.]*)'|op: '([a-z][\w.]*)'/g)
    const names = new Set([...written].map(([, first, second]) => first ?? second!))
    const table = callNative((addon) => addon.operations()).map(({ name }) => name)
    expect([...names].sort()).toEqual([...table].sort())
  })
})
