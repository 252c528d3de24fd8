/**
 * node exactness-child.ts '{"dirs": […], "matrix": {…}, "device": "cpu"}': the cases of this process's instruction set,
 * or of the CUDA device. Prints lines of JSON: first which kernels those are, or that this CPU does not run them; then
 * one for each case.
 */
import { kernelFeatures } from '../../engine/inspect.ts'
import type { DeviceKind } from '../../engine/options.ts'
import { codeOf, messageOf } from '../../errors.ts'
import { type Matrix, runCases } from './exactness-cases.ts'

const { dirs, matrix, device } = JSON.parse(process.argv[2]!) as {
  readonly dirs: readonly string[]
  readonly matrix: Matrix
  readonly device: DeviceKind
}
const write = (value: unknown): void => void process.stdout.write(`${JSON.stringify(value)}\n`)

const runnable = (): boolean => {
  try {
    write({ isa: device === 'cpu' ? kernelFeatures() : device })
    return true
  } catch (error) {
    if (codeOf(error) !== 'INVALID') throw error
    write({ isa: null })
    return false
  }
}

// A terminal sends its Ctrl-C to both processes; the parent decides, and what it has ended is no failure.
process.on('SIGINT', () => {})

try {
  if (runnable()) for await (const one of runCases(dirs, matrix, device)) write(one)
} catch (error) {
  process.stderr.write(`${messageOf(error)}\n`)
  process.exitCode = 1
}
