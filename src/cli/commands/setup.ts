import { spawnSync } from 'node:child_process'
import { inPackage, SETUP } from '../../places.ts'
import { command } from '../command.ts'
import { usage } from '../flags.ts'

export const setup = command({
  name: 'setup',
  about:
    'Builds the native engine from the sources in the package, with CUDA where nvcc and a GPU are found. On Linux x64 the package brings an engine for the CPU, and this command is needed for CUDA alone. Quick when nothing changed.',
  flags: {},
  notes: `Needs a C++20 compiler, CMake and make. CONTINUO_CUDA=on, off or auto decides whether CUDA is built. Here the command is: ${SETUP}`,
  examples: ['setup'],
  async run({ json }) {
    if (json) throw usage('continuo setup prints what the build says and has no --json.')
    // A process of its own, because the tool is plain JavaScript that also runs before anything is built or installed.
    const { status } = spawnSync(process.execPath, [inPackage('tools', 'build-native.mjs')], { stdio: 'inherit' })
    return status === 0 ? 0 : 1
  },
})
