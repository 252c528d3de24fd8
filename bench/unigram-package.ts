/**
 * Writes a package that knows how often each token of a vocabulary comes, and nothing else: the weakest checkpoint that
 * an ngram memory can stand behind (docs/performance.md, Reading logs). It is an RWKV-7 whose logits are the logarithms
 * of frequencies, whatever it reads, with the memory behind it.
 *
 *   node bench/unigram-package.ts --tokenizer DIR --out DIR TEXT…
 *   node bench/streams.ts --models DIR
 *
 * `--tokenizer` names a folder with a tokenizer.json; the texts are what is counted.
 */
import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ContinuoError } from '../src/errors.ts'
import { readJsonFile } from '../src/json.ts'
import { readNgramMemory } from '../src/models/families/ngram-memory.ts'
import { type TensorSpec, writeTensors } from '../src/models/files/package-writer.ts'
import { openTokenizer } from '../src/models/tokenizer/index.ts'
import { parseArgs } from './options.ts'
import { rwkv7Entries } from './rwkv7-package.ts'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { tokenizer: { type: 'string' }, out: { type: 'string' } },
})
const { tokenizer: from, out } = values
if (from === undefined || out === undefined || positionals.length === 0)
  throw new ContinuoError('INVALID', 'Expected --tokenizer DIR --out DIR and the texts to count.')

const file = join(from, 'tokenizer.json')
const { json } = await readJsonFile(file, 2 ** 28)
const vocabulary = Object.keys((json as { readonly model: { readonly vocab: object } }).model.vocab).length
const { tokenizer } = await openTokenizer(from, { vocabSize: vocabulary, config: {}, warn: console.error })

// Half a time each before the first text, so that no token is impossible.
const counts = new Float64Array(vocabulary).fill(0.5)
for (const path of positionals) {
  const { ids, held } = tokenizer.push('', await readFile(path, 'utf8'))
  for (const id of [...ids, ...tokenizer.flush(held)]) counts[id]! += 1
}
const total = counts.reduce((a, b) => a + b, 0)

const CHANNELS = 64
const entries = rwkv7Entries({ layers: 1, channels: CHANNELS, vocabulary, ranks: { w: 8, a: 8, v: 8, g: 8 } })
const lengthOf = (extents: readonly number[]): number => extents.reduce((product, extent) => product * extent, 1)
const specs: TensorSpec[] = entries.map(([name, shape]) => ({
  ...{ name, dtype: 'F32', shape },
  bytes: 4 * lengthOf(shape),
}))
await mkdir(out, { recursive: true })
await writeFile(join(out, 'config.json'), JSON.stringify({ model_type: 'rwkv7' }))
await writeFile(join(out, 'memory.json'), JSON.stringify(readNgramMemory({ kind: 'ngram' })))
await copyFile(file, join(out, 'tokenizer.json'))
await writeTensors(join(out, 'model.safetensors'), specs, {}, async (tensors) => {
  for (const [name, shape] of entries) {
    // All is zero but the first channel of the last norm, which is one, and what the head makes of it.
    const numbers = new Float32Array(lengthOf(shape))
    if (name === 'ln_out.bias') numbers[0] = 1
    if (name === 'head.weight')
      for (let id = 0; id < vocabulary; id += 1) numbers[id * CHANNELS] = Math.log(counts[id]! / total)
    await tensors.write(name, new Uint8Array(numbers.buffer), 0)
  }
})
console.log(
  `${out}: ${vocabulary.toLocaleString('en-US')} tokens, counted in ${Math.round(total).toLocaleString('en-US')}.`,
)
