import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { against, circlesIn, partOf, readImports } from './imports.ts'

const ROOT = join(import.meta.dirname, '..', '..')

/** The numbered list in docs/architecture.md, lowest floor first. */
const documentedFloors = (): readonly (readonly string[])[] => {
  const text = readFileSync(join(ROOT, 'docs', 'architecture.md'), 'utf8')
  const [, section = ''] = text.split('\nDependencies point one way')
  const [list = ''] = section.split('\n## ')
  return [...list.matchAll(/^\d+\. (.*(?:\n {3}.*)*)/gm)].map(([, line]) =>
    [...line!.matchAll(/`((?:src|topics)\/[^`]*)`/g)].map(([, part]) => part!),
  )
}

/** A folder with these modules. */
const written = (modules: Readonly<Record<string, string>>): string => {
  const root = mkdtempSync(join(tmpdir(), 'continuo-imports-'))
  onTestFinished(() => rmSync(root, { recursive: true }))
  for (const [path, source] of Object.entries(modules)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), source)
  }
  return root
}

describe('imports of src/ and topics/', () => {
  const graph = readImports(ROOT, ['src', 'topics'])

  test('form no circle, types included', () => {
    expect(circlesIn(graph)).toEqual([])
  })

  test('lead to modules that exist', () => {
    const missing = [...graph].flatMap(([file, imports]) =>
      imports.filter((to) => !graph.has(to)).map((to) => [file, to]),
    )
    expect(missing).toEqual([])
  })

  test('point down the floors of docs/architecture.md, and every part of the code has its floor', () => {
    const floors = documentedFloors()
    expect(floors.flat().sort()).toEqual([...new Set([...graph.keys()].map(partOf))].sort())
    expect(against(graph, floors)).toEqual([])
  })
})

describe('the reader of imports', () => {
  test('finds a circle through a type-only import, a re-export and a dynamic import', () => {
    const root = written({
      'src/a/one.ts': "import {\n  readFileSync,\n} from 'node:fs'\nimport type { Two } from './two.ts'\n",
      'src/a/two.ts': "export * from '../b/three.ts'\n",
      'src/b/three.ts': "export const load = () => import('../a/one.ts')\n",
      'src/b/four.ts': "import './three.ts'\n// import from './four.ts'\n",
    })
    expect(circlesIn(readImports(root, ['src']))).toEqual([
      ['src/a/one.ts', 'src/a/two.ts', 'src/b/three.ts', 'src/a/one.ts'],
    ])
  })

  test('leaves out installed packages, whose folders may be named like files', () => {
    const root = written({
      'tools/a.ts': '',
      'tools/api/node_modules/punycode.js/index.js': '',
      'tools/api/b.ts': "import '../a.ts'\n",
    })
    expect([...readImports(root, ['tools']).keys()]).toEqual(['tools/a.ts', 'tools/api/b.ts'])
  })

  test('finds an import that points up, and one between neighbours above the ground', () => {
    const root = written({
      'topics/t.ts': '',
      'src/leaf.ts': "import '../topics/t.ts'\n",
      'src/low/a.ts': "import '../leaf.ts'\nimport '../high/c.ts'\n",
      'src/side/b.ts': "import type { A } from '../low/a.ts'\n",
      'src/high/c.ts': "import '../side/b.ts'\n",
    })
    const floors = [['topics/', 'src/leaf.ts'], ['src/low/', 'src/side/'], ['src/high/']]
    expect(against(readImports(root, ['src', 'topics']), floors)).toEqual([
      'src/low/a.ts → src/high/c.ts',
      'src/side/b.ts → src/low/a.ts',
    ])
  })
})
