/**
 * Licences of all packages of the lock file: of those that are installed with Continuo, licences that ask for nothing
 * but to be named; of those that it is built and tested with, also ones that cover their own files alone.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { ROOT } from '../cli/helpers.ts'

interface Locked {
  readonly license?: string
  readonly dev?: boolean
  readonly devOptional?: boolean
  readonly link?: boolean
}

const NAMED_ALONE = [
  ...['0BSD', 'Apache-2.0', 'BlueOak-1.0.0', 'BSD-2-Clause', 'BSD-3-Clause', 'CC0-1.0', 'ISC', 'MIT', 'MIT-0'],
  ...['Python-2.0', 'Unlicense'],
]
const OWN_FILES = ['MPL-2.0']
/** Their package.json says nothing in the form of SPDX; these are what their LICENSE files are. */
const READ: Readonly<Record<string, string>> = { buildcheck: 'MIT', 'cpu-features': 'MIT', ssh2: 'MIT' }

const LOCKS = [
  'package-lock.json',
  ...['api', 'cmake', 'site'].map((name) => `tools/${name}/package-lock.json`),
  'bench/peers/package-lock.json',
]

/** Packages whose licence is not one of these, as "name: licence". A choice of several is any of them. */
const others = (packages: Readonly<Record<string, Locked>>, isDev: boolean): string[] => {
  const taken = isDev ? [...NAMED_ALONE, ...OWN_FILES] : NAMED_ALONE
  return Object.entries(packages)
    .filter(
      ([path, { dev, devOptional, link }]) => path !== '' && !link && (dev === true || devOptional === true) === isDev,
    )
    .flatMap(([path, { license }]) => {
      const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
      const said = license ?? READ[name] ?? 'none'
      const choices = said.replace(/^\((.*)\)$/, '$1').split(' OR ')
      return choices.some((each) => taken.includes(each)) ? [] : [`${name}: ${said}`]
    })
}

const packagesOf = (file: string): Record<string, Locked> =>
  (JSON.parse(readFileSync(join(ROOT, file), 'utf8')) as { readonly packages: Record<string, Locked> }).packages

describe('licences', () => {
  test.each(LOCKS)('of %s are known ones', (file) => {
    const packages = packagesOf(file)
    expect(Object.keys(packages).length).toBeGreaterThan(1)
    expect([...others(packages, false), ...others(packages, true)]).toEqual([])
  })

  test('another one is found, also where it is taken for tests alone', () => {
    const packages = {
      '': {},
      'node_modules/a': { license: 'GPL-3.0' },
      'node_modules/b': { license: 'MPL-2.0' },
      'node_modules/c/node_modules/d': { license: '(GPL-3.0 OR MIT)' },
      'node_modules/e': {},
      'node_modules/f': { license: 'MPL-2.0', dev: true },
    }
    expect(others(packages, false)).toEqual(['a: GPL-3.0', 'b: MPL-2.0', 'e: none'])
    expect(others(packages, true)).toEqual([])
  })
})
