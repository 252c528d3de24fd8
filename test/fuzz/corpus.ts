/**
 * The corpus: inputs that were findings once, in corpus/KIND/, each named BASE.WHAT. They are replayed before anything
 * new.
 */
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'

const folderOf = (kind: string): string => join(import.meta.dirname, 'corpus', basename(kind))

export interface Kept {
  readonly base: string
  readonly path: string
}

export const corpusOf = (kind: string): readonly Kept[] => {
  const folder = folderOf(kind)
  if (!existsSync(folder)) return []
  return readdirSync(folder)
    .sort()
    .map((name) => ({ base: name.slice(0, name.indexOf('.')), path: join(folder, name) }))
}

/** Returns where the input lies from now on. */
export const keep = (kind: string, base: string, what: string, input: Uint8Array): string => {
  const folder = folderOf(kind)
  mkdirSync(folder, { recursive: true })
  const path = join(folder, `${base}.${what}`)
  writeFileSync(path, input)
  return path
}

/** The kinds there are: a file each. */
export const kindNames = (): readonly string[] =>
  readdirSync(join(import.meta.dirname, 'kinds')).map((name) => name.replace(/\.ts$/, ''))
