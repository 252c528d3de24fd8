/**
 * A CUDA device (docs/gpu.md): the speed of decoding with 1 and 64 sessions and of reading, and the bandwidth of
 * decoding beside that of a copy within the device. For comparison also decoding with a launch for every node of the
 * graph. native/bench/gpu.cc measures; this program prepares the models and prints the figures, medians over the
 * rounds.
 *
 *   npx node bench/gpu.ts [--rounds N] [--model DIR] [--json]
 *
 * Without --model: the shipped model, and RWKV-7 of the 1.5B shape in bf16 with random weights (3 GB, in a temporary
 * folder).
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { versionOf } from '../src/cli/doctor/cuda.ts'
import { bytes, count, table } from '../src/cli/output.ts'
import { readPackage } from '../src/models/files/package.ts'
import { parseArgs } from './options.ts'
import { RWKV7_1B5, writeRwkv7 } from './rwkv7-package.ts'
import { modelDir, root } from './support.ts'

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '9' }, model: { type: 'string' }, json: { type: 'boolean' } },
})

/** The output of native/bench/gpu.cc. Rates are per second; tokens are those of all sessions together. */
interface Figures {
  readonly device: string
  readonly capability: string
  /** 13000 is CUDA 13.0. */
  readonly driver: number
  readonly runtime: number
  /** Bytes read and written. */
  readonly copyBytesPerSecond: number
  /** Bytes that a token moves at least: every matrix once, the state once in and once out. */
  readonly bytesPerToken: number
  readonly launchesPerStep: number
  readonly decode1: number
  readonly decode64: number
  readonly prefill: number
  readonly naive1: number
  readonly shareOfCopy: number
  readonly overNaive: number
}

/** Runs a program and passes its stderr on. Ends this process where the program fails. */
const outputOf = (program: string, args: readonly string[]): string => {
  const { status, stdout, error } = spawnSync(program, args, {
    cwd: root,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  if (error !== undefined) console.error(error.message)
  if (status !== 0) process.exit(1)
  return stdout
}

const program = outputOf(process.execPath, ['tools/gpu-bench.mjs']).trim()
const folder = mkdtempSync(join(tmpdir(), 'continuo-gpu-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))

const measure = async (dir: string): Promise<Figures> => {
  const { config, family, tensors, files } = await readPackage(dir)
  const graph = join(folder, 'graph.json')
  writeFileSync(graph, JSON.stringify(family.build(config, tensors).graph))
  return JSON.parse(outputOf(program, [graph, values.rounds, ...files])) as Figures
}

/**
 * A smaller model may fit in the device's cache (50 MB on an H100, 126 MB on a B200): then its bytes do not come from
 * memory.
 */
const CACHED = 256e6

const gigabytes = (rate: number): string => `${(rate / 1e9).toFixed(0)} GB/s`

const results: { readonly name: string; readonly figures: Figures }[] = []
if (values.model !== undefined) results.push({ name: values.model, figures: await measure(values.model) })
else {
  results.push({ name: 'the shipped model', figures: await measure(modelDir) })
  const large = join(folder, 'rwkv7-1.5b')
  await writeRwkv7(large, RWKV7_1B5)
  results.push({ name: 'RWKV-7 1.5B, bf16', figures: await measure(large) })
}

if (values.json) console.log(JSON.stringify({ rounds: Number(values.rounds), results }))
else {
  const { device, capability, driver, runtime } = results[0]!.figures
  console.log(
    `${device}, compute capability ${capability}, driver for CUDA ${versionOf(driver)}, built with ${versionOf(runtime)}; medians of ${values.rounds} rounds.`,
  )
  const rows = results.flatMap(({ name, figures }) => [
    [name, 'tokens/s, one session', count(figures.decode1)],
    [
      '',
      `bytes/s of that, ${bytes(figures.bytesPerToken)} a token`,
      gigabytes(figures.decode1 * figures.bytesPerToken),
    ],
    ['', 'bytes/s of a copy within the device', gigabytes(figures.copyBytesPerSecond)],
    ['', 'the first over the second', figures.bytesPerToken < CACHED ? 'in the cache' : figures.shareOfCopy.toFixed(2)],
    ['', `tokens/s, a launch for every node (instead of ${figures.launchesPerStep})`, count(figures.naive1)],
    ['', 'one session over that', figures.overNaive.toFixed(2)],
    ['', 'tokens/s, 64 sessions together', count(figures.decode64)],
    ['', 'tokens/s, reading', count(figures.prefill)],
  ])
  console.log(table(['', 'what', '>median'], rows))
}
