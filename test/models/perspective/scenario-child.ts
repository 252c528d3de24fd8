/**
 * node scenario-child.ts '{"dir": …}': the kernels' name of this process, and the scenario; a CPU without them:
 * "missing".
 */
import { kernelFeatures } from '../../../src/engine/inspect.ts'
import { codeOf } from '../../../src/errors.ts'
import { openModel } from '../../../src/models/open.ts'
import { tell } from './scenario.ts'

const { dir } = JSON.parse(process.argv[2]!) as { readonly dir: string }
const isaOf = (): string => {
  try {
    return kernelFeatures()
  } catch (error) {
    if (codeOf(error) === 'INVALID') return 'missing'
    throw error
  }
}
const isa = isaOf()
const run = async (): Promise<string> => {
  const experts = { bytes: 1 << 22, frequencies: false }
  const model = await openModel(dir, { device: 'cpu', threads: 2, keepPacked: false, experts })
  const told = await tell(model, { chunk: 8, together: true })
  model.close()
  return told
}
process.stdout.write(JSON.stringify({ isa, told: isa === 'missing' ? '' : await run() }))
