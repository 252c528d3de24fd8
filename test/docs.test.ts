/**
 * The pages in docs/ and README.md are held to the repository: a file that a page names exists, a function that stands
 * behind a file's name (`src/engine/items.ts:nativeItem`, `native/runtime/scheduler/engine.cc:Engine::submit`) is
 * defined in that file. A link of any page of the site leads somewhere.
 */
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { anchorOf, FILES } from '../tools/site/pages.ts'

const ROOT = join(import.meta.dirname, '..')
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')

const PAGES = ['README.md', ...globSync('docs/*.md', { cwd: ROOT }).sort()]
/** Pages in which every source file has its whole path, so that a reader finds it. */
const GUIDES = ['docs/architecture.md', 'docs/one-token.md']

/** Folders whose content is under version control. */
const FOLDERS = 'bench|docs|models|native|src|test|tools|topics|train'
const PATH = new RegExp(String.raw`^((?:${FOLDERS})/[\w./*-]*)(?::([\w:]+))?$`)
const SOURCE = /[\w/*-]\.(?:ts|mjs|cc|h|cu|cpp)(?::[\w:]+)?$/

/** What stands between backticks on one line, outside of fenced blocks. */
const quoted = (page: string): readonly string[] =>
  [...page.replace(/^```.*?^```/gms, '').matchAll(/`([^`\n]+)`/g)].map(([, text]) => text!)

const defines = (path: string, name: string, source: string): boolean => {
  if (/\.ts$/.test(path)) {
    const declared = new RegExp(String.raw`\b(?:const|function\*?|class|interface|type) ${name}\b`)
    return declared.test(source) || new RegExp(String.raw`^ +(?:async )?\*?${name}\(.*\{$`, 'm').test(source)
  }
  if (name.includes('::')) return source.includes(`${name}(`)
  const type = String.raw`(?!\s*(?:return|throw|else|case|new|co_return)\b)[\w:<>,*& ]+[ *&]`
  return (
    new RegExp(String.raw`^${type}${name}\(`, 'm').test(source) ||
    new RegExp(String.raw`^\s*(?:struct|class|enum class) ${name}\b`, 'm').test(source)
  )
}

/** What is wrong with the files and functions that a page names, a sentence each. */
const faultsOf = (page: string, whole: boolean): readonly string[] =>
  [...new Set(quoted(page))].flatMap((text) => {
    const [, path, name] = PATH.exec(text) ?? []
    if (path === undefined)
      return whole && SOURCE.test(text) && !text.includes(' ') ? [`${text}: not a whole path`] : []
    const found = path.includes('*') ? globSync(path, { cwd: ROOT }) : existsSync(join(ROOT, path)) ? [path] : []
    if (found.length === 0) return [`${text}: there is no ${path}`]
    return name === undefined || defines(path, name, read(path)) ? [] : [`${text}: ${path} does not define ${name}`]
  })

const anchorsOf = (page: string): readonly string[] =>
  [...page.replace(/^```.*?^```/gms, '').matchAll(/^#+ (.*)$/gm)].map(([, heading]) => anchorOf(heading!))

/** Links of a page that lead to no file or no heading. */
const brokenLinks = (path: string, page: string): readonly string[] =>
  [...page.matchAll(/\]\(([^)\s]+)\)/g)].flatMap(([, link]) => {
    if (/^https?:/.test(link!)) return []
    const [file = '', anchor] = link!.split('#')
    const target = file === '' ? path : join(dirname(path), file)
    if (file !== '' && !existsSync(join(ROOT, target))) return [`${link}: there is no ${target}`]
    const headings = anchor === undefined ? [] : anchorsOf(file === '' ? page : read(target))
    return anchor === undefined || headings.includes(anchor) ? [] : [`${link}: ${target} has no such heading`]
  })

describe('the pages', () => {
  test.each(PAGES)('%s names files and functions that exist', (path) => {
    expect(faultsOf(read(path), GUIDES.includes(path))).toEqual([])
  })

  test.each(FILES)('%s links to files and headings that exist', (path) => {
    expect(brokenLinks(path, read(path))).toEqual([])
  })

  test('one-token.md names a function at every station', () => {
    const named = quoted(read('docs/one-token.md')).filter((text) => PATH.exec(text)?.[2] !== undefined)
    expect(new Set(named).size).toBeGreaterThan(60)
  })
})

describe('the reader of pages', () => {
  test('finds a file that is gone, a function that is only called, and a name without its path', () => {
    const page = [
      'Here `src/engine/items.ts:nativeItem`, `native/runtime/scheduler/engine.cc:Engine::submit`, `native/runtime/sampling/sampler.cc:sample`,',
      '`topics/*.ts`, `native/runtime/` and `npx node bench/stream.ts` are right; but not `src/engine/gone.ts`,',
      '`src/engine/items.ts:callNative`, `native/runtime/scheduler/scheduler.cc:uniform_at`, `native/runtime/scheduler/scheduler.cc:sample`, `items.ts`.',
      '```',
      '`src/fenced.ts`',
      '```',
    ].join('\n')
    expect(faultsOf(page, true)).toEqual([
      'src/engine/gone.ts: there is no src/engine/gone.ts',
      'src/engine/items.ts:callNative: src/engine/items.ts does not define callNative',
      'native/runtime/scheduler/scheduler.cc:uniform_at: native/runtime/scheduler/scheduler.cc does not define uniform_at',
      'native/runtime/scheduler/scheduler.cc:sample: native/runtime/scheduler/scheduler.cc does not define sample',
      'items.ts: not a whole path',
    ])
  })

  test('finds links to no file and to no heading', () => {
    const page =
      '# One `two`, three\n[a](#one-two-three) [b](#two) [c](graph.md#operations) [d](graph.md#gone) [e](gone.md)'
    expect(brokenLinks('docs/page.md', page)).toEqual([
      '#two: docs/page.md has no such heading',
      'graph.md#gone: docs/graph.md has no such heading',
      'gone.md: there is no docs/gone.md',
    ])
  })
})
