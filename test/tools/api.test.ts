/**
 * Every name that src/index.ts exports has a doc comment, and so has every member of the interfaces and classes among
 * them. TypeDoc (npm run docs:api) says so too, of the types that these use as well, and checks links; it takes longer.
 */
import { execFile } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { ROOT } from '../package/project.ts'

const EXPORTS = /^export (?:type )?\{([^}]+)\} from '([^']+)'$/gm
const DOCUMENTED = /\*\/\s*$/

interface Exported {
  readonly name: string
  readonly path: string
}

/** The names of a module that others re-export, with the module that has each. */
const exportsOf = (path: string): readonly Exported[] =>
  [...readFileSync(path, 'utf8').matchAll(EXPORTS)].flatMap(([, names, from]) =>
    names!
      .split(',')
      .map((name) => name.trim().replace(/^type /, ''))
      .filter((name) => name !== '')
      .map((name) => ({ name, path: join(dirname(path), from!) })),
  )

/**
 * Sentences about a declaration without a doc comment, and about its members. Biome formats the sources, so that lines
 * tell.
 */
const faultsOf = (name: string, source: string): readonly string[] => {
  const lines = source.split('\n')
  const declared = new RegExp(String.raw`^export (?:async )?(interface|class|const|type|function\*?) ${name}\b`)
  const at = lines.findIndex((line) => declared.test(line))
  if (at === -1) return [`${name} is not declared`]
  const faults = DOCUMENTED.test(lines[at - 1]!) ? [] : [`${name} has no doc comment`]
  const [, kind] = declared.exec(lines[at]!)!
  if ((kind !== 'interface' && kind !== 'class') || lines[at]!.endsWith('}')) return faults
  const end = lines.indexOf('}', at)
  for (const [above, line] of lines.slice(at, end).entries()) {
    const [, member] = /^ {2}(?:readonly )?(\w+)\??[:(<]/.exec(line) ?? []
    if (member === undefined || member === 'constructor') continue
    if (!DOCUMENTED.test(lines[at + above - 1]!)) faults.push(`${name}.${member} has no doc comment`)
  }
  return faults
}

/** The module that declares the name: one that re-exports it says from where. */
const declaring = ({ name, path }: Exported): Exported => {
  const further = exportsOf(path).find((exported) => exported.name === name)
  return further === undefined ? { name, path } : declaring(further)
}

test('every exported name and every member has a doc comment', () => {
  const all = exportsOf(join(ROOT, 'src', 'index.ts')).map(declaring)
  expect(all.length).toBeGreaterThan(120)
  expect(all.flatMap(({ name, path }) => faultsOf(name, readFileSync(path, 'utf8')))).toEqual([])
})

test('the page on the library has the examples as they are', () => {
  const page = readFileSync(join(ROOT, 'docs', 'library.md'), 'utf8')
  for (const name of ['stream.js', 'driver.test.js'])
    expect(page).toContain(`\`\`\`js\n${readFileSync(join(ROOT, 'examples', name), 'utf8')}\`\`\`\n`)
})

describe('the reader of declarations', () => {
  test('finds names and members without a doc comment', () => {
    const source = [
      'export interface Open {',
      '  /** Ends it. */',
      '  close(): void',
      '  readonly name: string',
      '}',
      '/** Counted. */',
      'export const counted = 1',
      'export type Loose = string',
    ].join('\n')
    expect(['Open', 'counted', 'Loose', 'gone'].map((name) => faultsOf(name, source))).toEqual([
      ['Open has no doc comment', 'Open.name has no doc comment'],
      [],
      ['Loose has no doc comment'],
      ['gone is not declared'],
    ])
  })
})

test('TypeDoc makes the reference, and finds nothing wrong', { tags: ['slow'], timeout: 300_000 }, async () => {
  const out = mkdtempSync(join(tmpdir(), 'continuo-api-'))
  try {
    await promisify(execFile)('npm', ['run', '--silent', 'docs:api', '--', '--out', out], { cwd: ROOT })
    for (const page of [
      'index.html',
      'functions/startWorker.html',
      'functions/openLog.html',
      'classes/SessionManager.html',
    ])
      expect(existsSync(join(out, page)), page).toBe(true)
  } finally {
    rmSync(out, { recursive: true, force: true })
  }
})
