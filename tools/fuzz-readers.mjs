// The fuzzer of the readers of GGUF, torch archives, pickles and safetensors (native/test/fuzz/fuzz.cc).
//
//   node tools/fuzz-readers.mjs [COUNT] [SEED]      cases of each kind; default 1000000 and 1
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { build, configureSanitized } from './native-tests.mjs'

const KINDS = ['gguf', 'torch', 'pickle', 'safetensors']

/** Builds it in that folder of sanitized builds and runs every kind. Returns whether there was no finding. */
export const fuzzReaders = (folder, count, seed = 1) => {
  build(folder, ['continuo_fuzz'])
  const found = KINDS.map((kind) => {
    const args = [kind, String(count), String(seed)]
    return spawnSync(join(folder, 'continuo_fuzz'), args, { stdio: 'inherit' }).status !== 0
  })
  return !found.includes(true)
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const [count = 1_000_000, seed = 1] = process.argv.slice(2).map(Number)
  process.exitCode = fuzzReaders(configureSanitized(), count, seed) ? 0 : 1
}
