/** Checks of this machine: versions, CPU, GPU, tools, the native engine, a model package. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { availableParallelism, totalmem } from 'node:os'
import { DatabaseSync } from 'node:sqlite'
import { cudaStatus, kernelFeatures } from '../../engine/inspect.ts'
import { messageOf } from '../../errors.ts'
import { openPackage } from '../../models/open.ts'
import { SETUP } from '../../places.ts'
import { bytes, count } from '../output.ts'
import { neededNode, nodeIsOld, version } from '../version.ts'
import { type Check, fail, ok, warn } from './check.ts'
import { checkCuda } from './cuda.ts'

const BUILD = `Run ${SETUP}; it builds the engine and says what is missing.`

/** First line of what a program prints; null where it is not there. */
const ask = (program: string, args: readonly string[]): string | null => {
  const answer = spawnSync(program, args, { encoding: 'utf8', timeout: 5000 })
  if (answer.error !== undefined || answer.status !== 0) return null
  return answer.stdout.split('\n')[0]?.trim() ?? ''
}

const checkNode = (): Check => {
  if (!nodeIsOld) return ok('node', process.versions.node)
  return fail(
    'node',
    `${process.versions.node}; Continuo runs on ${neededNode} or newer`,
    `Install a newer Node. In a checkout npm run continuo uses the one of node_modules.`,
  )
}

const checkSqlite = (): Check => {
  const db = new DatabaseSync(':memory:')
  const row = db.prepare('SELECT sqlite_version() AS version').get()
  db.close()
  return ok('sqlite', String(row?.version))
}

export const checkVersions = (): readonly Check[] => [ok('continuo', version), checkNode(), checkSqlite()]

const RELEVANT = ['avx2', 'fma', 'avx512f', 'avx512_vnni', 'avx_vnni', 'amx_int8', 'asimd', 'asimddp'] as const

const cpuFlags = (): readonly string[] => {
  try {
    const line = /^(?:flags|Features)\s*:(.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? ''
    const flags = new Set(line.trim().split(/\s+/))
    return RELEVANT.filter((flag) => flags.has(flag))
  } catch {
    return []
  }
}

const checkCpu = (): Check => {
  const flags = cpuFlags()
  const detail = `${process.arch}${flags.length === 0 ? '' : `: ${flags.join(' ')}`}`
  if (process.arch === 'arm64' || (flags.includes('avx2') && flags.includes('fma'))) return ok('cpu', detail)
  if (process.arch === 'x64' && flags.length === 0) return ok('cpu', `${detail} (features not known on this system)`)
  return warn(
    'cpu',
    `${detail}: no AVX2 and FMA`,
    'The plain kernels give the same results, slowly. Use a CPU of 2013 or later for speed.',
  )
}

/** A missing compiler matters only while there is nothing built. */
const checkTools = (built: boolean): readonly Check[] =>
  (
    [
      ['compiler', ['c++', 'g++', 'clang++'], 'Install a C++20 compiler (Debian: apt install g++).'],
      ['cmake', ['cmake'], 'Install CMake 3.18 or newer (Debian: apt install cmake).'],
    ] as const
  ).map(([name, programs, remedy]) => {
    for (const program of programs) {
      const found = ask(program, ['--version'])
      if (found !== null) return ok(name, found)
    }
    return built
      ? warn(name, 'none found; needed only to build the engine again', remedy)
      : fail(name, 'none found', remedy)
  })

export const checkEngine = (): readonly Check[] => {
  const threads = ok('threads', `${availableParallelism()} CPUs, ${bytes(totalmem())} of memory`)
  const gpus = ask('nvidia-smi', ['--query-gpu=name,memory.total', '--format=csv,noheader']) || null
  let built = true
  let engine: Check
  let cuda: Check
  try {
    engine = ok('engine', `loads; kernels: ${kernelFeatures()}`)
    cuda = checkCuda(cudaStatus(), gpus)
  } catch (error) {
    built = false
    engine = fail('engine', messageOf(error), BUILD)
    cuda = warn('cuda', 'not known, because the engine does not load', BUILD)
  }
  return [checkCpu(), threads, engine, cuda, ...checkTools(built)]
}

export const checkModel = async (dir: string): Promise<readonly Check[]> => {
  try {
    const { model, tokenizer } = await openPackage(dir)
    const { modelType, parameters, contextBytes, fingerprint, vocabSize } = model
    model.close()
    const reads = tokenizer === null ? `token ids (${vocabSize})` : 'text'
    return [
      ok(
        'model',
        `${dir}: ${modelType}, ${count(parameters)} parameters, reads ${reads}, ${bytes(contextBytes)} a session, fingerprint ${fingerprint.slice(0, 12)}…`,
      ),
    ]
  } catch (error) {
    return [
      fail(
        'model',
        messageOf(error),
        'Give --model a folder with config.json and the weights of a family Continuo knows, or a .gguf or .pth file.',
      ),
    ]
  }
}
