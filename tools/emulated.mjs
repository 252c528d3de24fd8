// The CUDA backend without a GPU: builds the addon with emulated kernels (native/test/emulate) and runs the suites of a
// device on it. vitest gets the arguments.
import { buildAddon, runSuites } from './addon.mjs'
import { machineSets, setsDefinition } from './build-tools.mjs'
import { endInOtherTurn } from './native-tests.mjs'

await endInOtherTurn(2, 'ENGINE')

const addon = buildAddon(
  'build-emulated',
  ['CONTINUO_CUDA=emulate', setsDefinition(machineSets())],
  'the addon with emulated CUDA',
)
// With emulated kernels, thousands of steps of a graph take minutes.
process.exitCode = runSuites('tools/device.vitest.ts', addon, {}, ['--exclude', 'test/engine/custom-model.test.ts'])
