/**
 * One process of the fuzzers: replays the corpus of a kind, then makes cases. Before each it writes into the file
 * `progress` of its folder which one begins and how those before it ended, so that whoever started it knows when this
 * process dies or stands still. A line in a file takes microseconds, a message to another process as long as many cases
 * do.
 *
 *   child.ts KIND SEED FROM COUNT FOLDER        KIND: a name, or the path of a file; FROM −n: the n-th last file of the corpus
 */
import { openSync, readFileSync, writeFileSync, writeSync } from 'node:fs'
import { isAbsolute, join } from 'node:path'
import { ContinuoError } from '../../src/errors.ts'
import { corpusOf } from './corpus.ts'
import type { OpenKind } from './kind.ts'
import { randomOf } from './mutate.ts'

/** What the parent hears. */
export type Told =
  /**
   * A case that is neither a result nor a refusal with a sentence; its input stands in the file `input` of the folder.
   */
  { readonly at: number; readonly base: string; readonly failed: string } | { readonly done: true }

/** The line in `progress`. */
export interface Progress {
  /** The case that runs now. */
  readonly at: number
  readonly base: string
  /** How the cases of this process ended, and how many so. */
  readonly ends: Readonly<Record<string, number>>
  /** Bytes of this process before its first case. */
  readonly resident: number
}

/** Bytes by which this process may grow before it collects what earlier cases left. */
const UNCOLLECTED = 1e8

const [kindName, seed, from, count, folder] = process.argv.slice(2) as [string, string, string, string, string]
const { open } = (await import(isAbsolute(kindName) ? kindName : `./kinds/${kindName}.ts`)) as { open: OpenKind }
const tell = (told: Told): Promise<void> =>
  new Promise((resolve, reject) => process.send!(told, (error: Error | null) => (error ? reject(error) : resolve())))

const kind = await open(join(folder, 'work'))

const progress = openSync(join(folder, 'progress'), 'w')
const resident = process.memoryUsage.rss()
const ends: Record<string, number> = {}
const note = (at: number, base: string): void => {
  const line: Progress = { at, base, ends, resident }
  writeSync(progress, `${JSON.stringify(line)}\n`, 0)
}

const attempt = async (at: number, base: string, input: Uint8Array): Promise<void> => {
  note(at, base)
  const ended = (how: string): void => {
    ends[how] = (ends[how] ?? 0) + 1
  }
  const failed = async (what: string): Promise<void> => {
    writeFileSync(join(folder, 'input'), input)
    await tell({ at, base, failed: what })
  }
  try {
    ended(await kind.run(base, input))
  } catch (error) {
    const named = error instanceof ContinuoError && error.code !== 'INTERNAL'
    if (named && /^\S+( \S+){3,}[.?!)]$/.test(error.message.replaceAll(/\s+/g, ' '))) ended(error.code)
    else if (named) await failed(`${error.code}, but no sentence: ${error.message}`)
    else await failed(error instanceof Error ? (error.stack ?? error.message) : String(error))
  }
}

const corpus = corpusOf(kindName)
for (let at = Number(from); at < 0; at += 1) {
  const { base, path } = corpus[corpus.length + at]!
  await attempt(at, base, readFileSync(path))
}
for (let at = Math.max(0, Number(from)); at < Number(count); at += 1) {
  const base = kind.bases[at % kind.bases.length]!
  await attempt(at, base, kind.make(base, randomOf(Number(seed), at)))
  // A collection takes as long as a hundred small cases.
  if (at % 50 === 49 && process.memoryUsage.rss() > resident + UNCOLLECTED) globalThis.gc?.()
}
note(Number(count), '')
await kind.close()
await tell({ done: true })
process.exit(0)
