/**
 * llama.cpp as a judge of how texts are split before bytes are joined: for every name that tokenizer.ggml.pre may have
 * here, both sides read the same GGUF file with a vocabulary alone, and must give the same ids for texts that are hard
 * to split.
 *
 *   node pre-tokenizers.ts [--only tekken,falcon] [--write FILE]
 *
 * Joins are learned on these texts without any split, so that they cross the places at which texts are split. --write
 * keeps digests of llama.cpp's ids, for test/models/tokenizer/gguf-pre.test.ts. Ends with 1 where a text differs, but
 * for the texts and names of which is known why (split-texts.ts).
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { GGUF_PRE } from '../../src/models/tokenizer/gguf-pre.ts'
import { openGgufTokenizer } from '../../src/models/tokenizer/index.ts'
import { readText } from '../../test/models/tokenizer/fixtures.ts'
import {
  asRead,
  digestOf,
  isKnownToDiffer,
  learnJoins,
  SPLIT_TEXTS,
  splitMetadata,
} from '../../test/models/tokenizer/split-texts.ts'
import { parseArgs } from '../options.ts'
import { ggufHeader } from './gguf.ts'
import { loadLlama } from './llama-binding.ts'

const { values } = parseArgs({ options: { only: { type: 'string' }, write: { type: 'string' } } })
const folder = fileURLToPath(new URL('models/pre-tokenizers', import.meta.url))
mkdirSync(folder, { recursive: true })
const names = [...GGUF_PRE.keys()].filter((name) => values.only?.split(',').includes(name) ?? true)

const { binding, release } = await loadLlama()
const joins = learnJoins()
console.log(`llama.cpp ${release}, ${SPLIT_TEXTS.length} texts, ${joins.length} joins`)
const kept: Record<string, string> = {}
for (const name of names) {
  const metadata = splitMetadata(name, joins)
  const path = join(folder, `${name}.gguf`)
  writeFileSync(path, ggufHeader({ 'general.architecture': 'llama', ...metadata }, []))
  const theirs = new binding.AddonModel(path, { vocabOnly: true })
  if (!(await theirs.init())) throw new Error(`llama.cpp does not load ${path}; its own message stands above.`)
  const plain = asRead(metadata)
  const vocabSize = (metadata['tokenizer.ggml.tokens'] as readonly string[]).length
  const { tokenizer } = openGgufTokenizer(plain, { vocabSize, path })!
  const different: string[] = []
  const digests = SPLIT_TEXTS.map((text) => {
    const wanted = [...theirs.tokenize(text, false)]
    const ids = readText(tokenizer, [text])
    const own = ids[0] === vocabSize - 2 ? ids.slice(1) : ids
    const begun = wanted[0] === vocabSize - 2 ? wanted.slice(1) : wanted
    if (!isKnownToDiffer(name, text) && digestOf(own) !== digestOf(begun)) {
      const show = (all: readonly number[]) =>
        all.map((id) => Buffer.from(tokenizer.bytesOf(id)).toString('latin1')).join('|')
      different.push(`${JSON.stringify(text.slice(0, 60))}\n    here      ${show(own)}\n    llama.cpp ${show(begun)}`)
    }
    return digestOf(begun)
  })
  kept[name] = digests.join(' ')
  await theirs.dispose()
  console.log(`${name}: ${SPLIT_TEXTS.length - different.length} of ${SPLIT_TEXTS.length} equal`)
  for (const line of different.slice(0, 4)) console.log(`  ${line}`)
  if (different.length > 0) process.exitCode = 1
}
if (values.write !== undefined) {
  mkdirSync(dirname(values.write), { recursive: true })
  writeFileSync(values.write, `${JSON.stringify(kept, null, 2)}\n`)
}
