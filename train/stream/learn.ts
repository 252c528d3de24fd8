/**
 * The first numbers of an ngram memory's mixture (docs/ngram.md): what invented systems (systems.py) taught it of how
 * far to believe a vote.
 *
 *   node train/stream/learn.ts OUT [--behind DIR] [--small] [--documents 128] [--bytes 60000] [--slots N] [--seed 1]
 *
 * With --small the memory has the small form. With --behind the memory stands behind that model, whose tokens are
 * bytes, and OUT is the model with memory.json and memory.safetensors. Reads one document after the other, each with
 * empty tables, each with the weights that those before it left; sums of squared gradients begin anew. Writes a
 * package: config.json, and the numbers as BF16 in model.safetensors. The same arguments give the same bytes on any
 * machine.
 */
import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { callNative } from '../../src/engine/native.ts'
import { MEMORY_FILE } from '../../src/models/families/memory-json.ts'
import { DEFAULT_SLOTS, DEFAULT_SMALL_SLOTS, LEARNED } from '../../src/models/families/ngram-memory.ts'
import { writeFolder, writeTensors } from '../../src/models/files/package-writer.ts'
import { openPackage } from '../../src/models/open.ts'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    behind: { type: 'string' },
    documents: { type: 'string', default: '128' },
    bytes: { type: 'string', default: '60000' },
    small: { type: 'boolean', default: false },
    slots: { type: 'string' },
    seed: { type: 'string', default: '1' },
  },
})
const [out] = positionals
if (out === undefined) throw new Error('Expected the folder to write: node train/stream/learn.ts OUT')
const { small } = values
const slots = Number(values.slots ?? (small ? DEFAULT_SMALL_SLOTS : DEFAULT_SLOTS))
const sizes = callNative((addon) => addon.ngram(small ? 'small' : 'bytes', slots))
const systems = fileURLToPath(new URL('systems.py', import.meta.url))

/** Rounded to BF16, ties to even. */
const narrowed = (numbers: Float32Array): Uint16Array => {
  const bits = new Uint32Array(numbers.buffer, numbers.byteOffset, numbers.length)
  return Uint16Array.from(bits, (word) => (word + 0x7fff + ((word >>> 16) & 1)) >>> 16)
}

const put = (folder: string, name: string, content: unknown): void =>
  writeFileSync(join(folder, name), `${JSON.stringify(content, null, 2)}\n`)

/** A package with these numbers, or with none. */
const writePackage = async (folder: string, learned: Float32Array | null): Promise<void> => {
  if (values.behind === undefined)
    put(folder, 'config.json', { model_type: 'ngram', vocab_size: 256, ...(small && { form: 'small' }), slots })
  else {
    for (const name of ['config.json', 'model.safetensors']) copyFileSync(join(values.behind, name), join(folder, name))
    put(folder, 'memory.json', { kind: 'ngram', slots, learn: 'read', ...(learned !== null && { learned: true }) })
    if (learned === null) return
  }
  const bytes = learned === null ? null : new Uint8Array(narrowed(learned).buffer)
  const tensors =
    learned === null
      ? []
      : [{ name: LEARNED, dtype: 'BF16' as const, shape: [learned.length], bytes: learned.length * 2 }]
  await writeTensors(
    join(folder, values.behind === undefined ? 'model.safetensors' : MEMORY_FILE),
    tensors,
    {},
    async (file) => {
      if (bytes !== null) await file.write(LEARNED, bytes, 0)
    },
  )
}

let learned: Float32Array | null = null
let read = 0
for (let at = 0; at < Number(values.documents); at += 1) {
  const text = execFileSync('python3', [systems, String(Number(values.seed) + at), values.bytes])
  const folder = mkdtempSync(join(tmpdir(), 'continuo-learn-'))
  await writePackage(folder, learned)
  const { model } = await openPackage(folder, { threads: 1, keepPacked: false })
  const executor = model.createExecutor()
  const tokens = Int32Array.from(text)
  for (let from = 0; from < tokens.length; from += 128) {
    const rows = tokens.subarray(from, from + 128)
    executor.insert('token', rows)
    await executor.step('step')
  }
  const mixture = executor.fetch('ngram.mixture').data as Float32Array
  learned = new Float32Array(sizes.learned)
  let filled = 0
  for (const { from, count } of sizes.parts) {
    learned.set(mixture.subarray(from, from + count), filled)
    filled += count
  }
  read += text.length
  model.close()
  rmSync(folder, { recursive: true })
}
await writeFolder(out, (folder) => writePackage(folder, learned))
console.log(`${values.documents} documents, ${read} bytes read; ${sizes.learned} numbers learned: ${out}`)
