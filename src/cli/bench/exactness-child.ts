/**
 * node exactness-child.ts '{"dirs": […], "matrix": {…}}': the cases of this process's instruction set. Prints lines of JSON: first which
 * one that is, or that this CPU does not run it; then one for each case.
 */
import { kernelFeatures } from '../../engine/engine.ts'
import { codeOf, messageOf } from '../../errors.ts'
import { type Matrix, runCases } from './exactness-cases.ts'

const write = (value: unknown): void => void process.stdout.write(`${JSON.stringify(value)}\n`)

const runnable = (): boolean => {
  try {
    write({ isa: kernelFeatures() })
    return true
  } catch (error) {
    if (codeOf(error) !== 'INVALID') throw error
    write({ isa: null })
    return false
  }
}

// A terminal sends its Ctrl-C to both processes; the parent decides, and what it has ended is no failure.
process.on('SIGINT', () => {})

const { dirs, matrix } = JSON.parse(process.argv[2]!) as { dirs: readonly string[]; matrix: Matrix }
try {
  if (runnable()) for await (const one of runCases(dirs, matrix)) write(one)
} catch (error) {
  process.stderr.write(`${messageOf(error)}\n`)
  process.exitCode = 1
}
