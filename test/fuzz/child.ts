/**
 * One process of the fuzzers: replays the corpus of a kind, then makes cases. Says over IPC what it is about to do and how it ended, so
 * that whoever started it knows which case it was when this process dies or stands still.
 *
 *   child.ts KIND SEED FROM COUNT FOLDER        KIND: a name, or the path of a file; FROM −n: the n-th last file of the corpus
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { isAbsolute, join } from 'node:path'
import { ContinuoError } from '../../src/errors.ts'
import { corpusOf } from './corpus.ts'
import type { OpenKind } from './kind.ts'
import { randomOf } from './mutate.ts'

/** What the parent hears. */
export type Told =
  /** The case that begins; its input stands in the file `input` of the folder. */
  | { readonly begins: number; readonly base: string }
  | { readonly ended: string }
  /** Neither a result nor a refusal with a sentence. */
  | { readonly failed: string }
  | { readonly done: true }

const [kindName, seed, from, count, folder] = process.argv.slice(2) as [string, string, string, string, string]
const { open } = (await import(isAbsolute(kindName) ? kindName : `./kinds/${kindName}.ts`)) as { open: OpenKind }
const tell = (told: Told): Promise<void> =>
  new Promise((resolve, reject) => process.send!(told, (error: Error | null) => (error ? reject(error) : resolve())))

const kind = await open(join(folder, 'work'))

const attempt = async (at: number, base: string, input: Uint8Array): Promise<void> => {
  writeFileSync(join(folder, 'input'), input)
  await tell({ begins: at, base })
  try {
    await tell({ ended: await kind.run(base, input) })
  } catch (error) {
    const named = error instanceof ContinuoError && error.code !== 'INTERNAL'
    if (named && /^\S+( \S+){3,}[.?!)]$/.test(error.message.replaceAll(/\s+/g, ' '))) await tell({ ended: error.code })
    else if (named) await tell({ failed: `${error.code}, but no sentence: ${error.message}` })
    else await tell({ failed: error instanceof Error ? (error.stack ?? error.message) : String(error) })
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
  if (at % 50 === 49) globalThis.gc?.()
}
await kind.close()
await tell({ done: true })
process.exit(0)
