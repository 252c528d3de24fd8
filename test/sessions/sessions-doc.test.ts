/**
 * docs/sessions.md is held to what it says: its examples run in a program that has the package under its name.
 *
 * @module-tag slow
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, expect, it } from 'vitest'
import { temporaryFolder } from '../engine/packages.ts'
import { writePublished } from '../published.ts'

const root = join(import.meta.dirname, '..', '..')
const page = readFileSync(join(root, 'docs', 'sessions.md'), 'utf8')
const examples = [...page.matchAll(/```ts\n(.*?)```\n\nIt prints:\n\n```\n(.*?)```/gs)]

let published = ''
beforeAll(() => {
  published = temporaryFolder()
  writePublished(published)
}, 300_000)

/** A folder of somebody who installed the package by a link. */
const consumer = (): string => {
  const folder = temporaryFolder()
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  mkdirSync(join(folder, 'node_modules'))
  symlinkSync(published, join(folder, 'node_modules', 'continuo'))
  return folder
}

it('has four examples', () => expect(examples).toHaveLength(4))

it.each(
  examples.map(([, source, printed], n) => [n + 1, source!, printed!] as const),
)('example %i prints what the page says', (_, source, printed) => {
  const folder = consumer()
  writeFileSync(join(folder, 'example.ts'), source)
  // The page speaks of models/demo, so the program runs where that is.
  const options = { cwd: root, encoding: 'utf8', env: { ...process.env, NO_COLOR: '1' } } as const
  expect(execFileSync(process.execPath, [join(folder, 'example.ts')], options)).toBe(printed)
  // And a compiler finds its types under that name.
  const config = {
    extends: join(root, 'tsconfig.json'),
    compilerOptions: { typeRoots: [join(root, 'node_modules', '@types')] },
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ ...config, include: ['example.ts'] }))
  const tsc = join(root, 'node_modules', '.bin', 'tsc')
  expect(execFileSync(tsc, ['-p', folder], { encoding: 'utf8' })).toBe('')
})
