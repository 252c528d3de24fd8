/**
 * The list of the site's pages is held to the repository, without VitePress: `npm run docs -- --build` needs it and
 * checks every link.
 */
import { existsSync, globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { FILES, HOME, PARTS, pagesOf, placeOf, targetOf } from '../../tools/site/pages.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')
const repeated = (all: readonly string[]): readonly string[] => all.filter((one, at) => all.indexOf(one) !== at)

describe('the pages of the site', () => {
  test('every page of docs/ stands in the sidebar, and none twice', () => {
    expect(globSync('docs/*.md', { cwd: ROOT }).filter((file) => !FILES.includes(file))).toEqual([])
    expect(repeated(FILES)).toEqual([])
  })

  test('every entry of the sidebar leads to a file, and each to a place of its own', () => {
    expect(FILES.filter((file) => !existsSync(join(ROOT, file)))).toEqual([])
    expect(repeated(FILES.map(placeOf))).toEqual([])
    for (const part of PARTS) expect(repeated(pagesOf(part).map(([title]) => title))).toEqual([])
  })

  test('it has the three parts, and begins with the README', () => {
    expect(PARTS.map(({ title }) => title)).toEqual(['Guide', 'Reference', 'Internals'])
    expect(FILES[0]).toBe(HOME)
  })

  test.each(FILES)('%s links to no Markdown that is not a page', (file) => {
    const links = [...read(file).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => targetOf(file, link!)?.path ?? '')
    expect(links.filter((path) => path.endsWith('.md') && !FILES.includes(path))).toEqual([])
  })
})

test('its packages come from wherever npm takes packages from: the lock file names no host', () => {
  expect(read('tools/site/package-lock.json')).not.toMatch(/"resolved"|https?:\/\/[^"]*\.tgz/)
})

describe('the places of pages and links', () => {
  test('a page of docs/ lies at the root of the site, a README under the name of its folder', () => {
    expect(['README.md', 'docs/kafka.md', 'models/watch/README.md', 'SECURITY.md'].map(placeOf)).toEqual([
      'index.md',
      'kafka.md',
      'models/watch.md',
      'SECURITY.md',
    ])
  })

  test('a link is read from the folder of its page', () => {
    expect(targetOf('docs/kafka.md', '../README.md#http')).toEqual({ path: 'README.md', anchor: '#http' })
    expect(targetOf('docs/kafka.md', 'streams.md')).toEqual({ path: 'docs/streams.md', anchor: '' })
    expect(targetOf('docs/kafka.md', '#tls')).toEqual({ path: 'docs/kafka.md', anchor: '#tls' })
    expect(targetOf('docs/kafka.md', 'https://kafka.apache.org')).toBeNull()
  })
})
