import { readFileSync } from 'node:fs'
import { inPackage } from '../places.ts'

const manifest = JSON.parse(readFileSync(inPackage('package.json'), 'utf8')) as {
  readonly version: string
  readonly engines: { readonly node: string }
}

/** The version in package.json. */
export const version = manifest.version

/** The oldest Node that has all that Continuo uses. */
export const neededNode = manifest.engines.node.replace('>=', '')

export const nodeIsOld = process.versions.node.localeCompare(neededNode, 'en', { numeric: true }) < 0
