/**
 * One start of llama.cpp in Node: maps a GGUF file, reads a prompt and prints the first token. Plain JavaScript, so
 * that no time goes into stripping types.
 *
 *   node start-llama.mjs FILE THREADS PROMPT
 */
import { createRequire } from 'node:module'
import { arch, platform } from 'node:os'
import { dirname, join } from 'node:path'

const [path, threads, prompt] = process.argv.slice(2)
const require = createRequire(import.meta.url)
const here = `${platform()}-${arch()}`
const folder = join(dirname(require.resolve(`@node-llama-cpp/${here}`)), '..', 'bins', here)
const llama = require(join(folder, 'llama-addon.node'))
llama.setLogger(() => {})
llama.setLoggerLogLevel(0)
llama.loadBackends(folder)
await llama.init()
const model = new llama.AddonModel(path, { gpuLayers: 0, useMmap: true })
if (!(await model.init())) throw new Error(`llama.cpp does not load ${path}.`)
const context = new llama.AddonContext(model, {
  ...{ contextSize: 512, batchSize: 512, sequences: 1, flashAttention: false, threads: Number(threads) },
})
if (!(await context.init())) throw new Error(`llama.cpp makes no context for ${path}.`)
const ids = Uint32Array.of(model.tokenBos(), ...model.tokenize(prompt, false))
context.initBatch(ids.length)
const [output] = context.addToBatch(0, 0, ids, Uint32Array.of(ids.length - 1))
await context.decodeBatch()
const sampler = new llama.AddonSampler(model)
sampler.applyConfig({})
const token = await context.sampleToken(output, sampler)
process.stdout.write(model.detokenize(Uint32Array.of(token), true), () => process.exit(0))
