/**
 * Forks of a long prompt (docs/performance.md): what a thousand of them take in memory and time, each with one token of
 * its own. The model is a Llama with random weights, whose keys and values take 16 KiB a token.
 *
 *   node --expose-gc bench/fork.ts [--tokens 10000] [--forks 1000] [--threads 2]
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeTensors } from '../src/models/files/package-writer.ts'
import { openModel } from '../src/models/open.ts'
import { SessionManager } from '../src/sessions/manager.ts'
import { parseArgs } from './options.ts'
import { quantile } from './support.ts'

const { values } = parseArgs({
  options: {
    tokens: { type: 'string', default: '10000' },
    forks: { type: 'string', default: '1000' },
    threads: { type: 'string', default: '2' },
  },
})
const tokens = Number(values.tokens)
const count = Number(values.forks)

const SHAPE = { layers: 8, channels: 256, heads: 4, inner: 512, vocabulary: 256 }

type Entry = readonly [name: string, shape: readonly number[]]

/** A package with small random weights. */
const writeLlama = async (dir: string): Promise<void> => {
  const { layers, channels: D, heads, inner, vocabulary } = SHAPE
  const config = {
    model_type: 'llama',
    vocab_size: vocabulary,
    hidden_size: D,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    intermediate_size: inner,
    max_position_embeddings: tokens + 4096,
    rms_norm_eps: 1e-5,
    hidden_act: 'silu',
  }
  writeFileSync(join(dir, 'config.json'), JSON.stringify(config))
  const layer = (l: number): readonly Entry[] => {
    const own: readonly Entry[] = [
      ['input_layernorm', [D]],
      ...['q', 'k', 'v', 'o'].map((name): Entry => [`self_attn.${name}_proj`, [D, D]]),
      ['post_attention_layernorm', [D]],
      ...['gate', 'up'].map((name): Entry => [`mlp.${name}_proj`, [inner, D]]),
      ['mlp.down_proj', [D, inner]],
    ]
    return own.map(([name, shape]) => [`model.layers.${l}.${name}.weight`, shape])
  }
  const entries: readonly Entry[] = [
    ['model.embed_tokens.weight', [vocabulary, D]],
    ...Array.from({ length: layers }, (_, l) => layer(l)).flat(),
    ['model.norm.weight', [D]],
    ['lm_head.weight', [vocabulary, D]],
  ]
  const size = (shape: readonly number[]): number => shape.reduce((product, extent) => product * extent, 1)
  const specs = entries.map(([name, shape]) => ({ name, dtype: 'F32', shape, bytes: 4 * size(shape) }))
  await writeTensors(join(dir, 'model.safetensors'), specs, {}, async (file) => {
    let state = 1
    for (const [name, shape] of entries) {
      const numbers = Float32Array.from({ length: size(shape) }, () => {
        state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
        return shape.length === 1 ? 1 : (state / 2 ** 31 - 1) / Math.sqrt(D)
      })
      await file.write(name, new Uint8Array(numbers.buffer), 0)
    }
  })
}

const MB = 1 << 20
const resident = (): number => {
  globalThis.gc?.()
  return process.memoryUsage.rss() / MB
}
const megabytes = (bytes: number): string => `${bytes.toFixed(0)} MiB`

const dir = mkdtempSync(join(tmpdir(), 'continuo-fork-'))
try {
  await writeLlama(dir)
  const model = await openModel(dir, { threads: Number(values.threads), keepPacked: false })
  const manager = new SessionManager(model, { verifyWeights: false })
  const empty = resident()
  const prompt = manager.createSession('prompt')
  const started = performance.now()
  await manager.process(
    prompt,
    Int32Array.from({ length: tokens }, (_, i) => (i * 7919 + (i >> 3)) % SHAPE.vocabulary),
  )
  const reading = (performance.now() - started) / 1000
  const before = resident()
  console.log(
    `${tokens} tokens read in ${reading.toFixed(1)} s; their context takes ${megabytes(prompt.bytes / MB)}, the process ${megabytes(before - empty)} more than without it`,
  )
  const times: number[] = []
  const forks = []
  for (let n = 0; n < count; n += 1) {
    const begun = performance.now()
    forks.push(await manager.fork(prompt, `fork${n}`))
    times.push(performance.now() - begun)
  }
  const between = resident()
  console.log(
    `${count} forks: ${quantile(times, 0.5).toFixed(3)} ms each at the median, ${quantile(times, 0.99).toFixed(3)} ms at p99; the process takes ${megabytes(between - before)} more, ${(((between - before) * 1024) / count).toFixed(0)} KiB a fork`,
  )
  await Promise.all(forks.map((fork, n) => manager.process(fork, [n % SHAPE.vocabulary])))
  const after = resident()
  console.log(
    `each with a token of its own: ${megabytes(after - before)} more than the prompt alone; copies would take ${megabytes((count * prompt.bytes) / MB)}`,
  )
  await manager.close()
  model.close()
} finally {
  rmSync(dir, { recursive: true, force: true })
}
