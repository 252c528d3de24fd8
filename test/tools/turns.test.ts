import { describe, expect, test } from 'vitest'
import { EVERYTHING_ON_A_DEVICE, filesOfTurn, TURNS } from '../../tools/turns.ts'

const files = [
  'test/cli/a.test.ts',
  'test/kafka/b.test.ts',
  'test/operators/c.test.ts',
  'test/blobs/d.test.ts',
  'test/crash/e.test.ts',
]
const graph = new Map([
  ['test/operators/c.test.ts', ['src/operators/one.ts']],
  ['src/operators/one.ts', ['src/operators/two.ts']],
  ['src/operators/two.ts', ['src/operators/one.ts']],
])
const turns = Array.from({ length: TURNS }, (_, turn) => turn)
const run = (turn: number, altered: readonly string[] | null) => filesOfTurn(files, turn, altered, graph)

describe('slow test files in turns', () => {
  test('each file has one turn, and all turns together are all files', () => {
    expect(turns.flatMap((turn) => run(turn, ['README.md'])).sort()).toEqual([...files].sort())
  })

  test('what a change touches runs in every turn: altered itself, imported over others, or in the table', () => {
    for (const turn of turns) {
      expect(run(turn, ['test/blobs/d.test.ts'])).toContain('test/blobs/d.test.ts')
      expect(run(turn, ['src/operators/two.ts'])).toEqual(
        expect.arrayContaining(['test/operators/c.test.ts', 'test/crash/e.test.ts']),
      )
      expect(run(turn, ['src/cli/flags.ts'])).toContain('test/cli/a.test.ts')
    }
  })

  test('the engine touches what computes with it; suites of brokers and stores take turns', () => {
    const found = turns.map((turn) => run(turn, ['native/runtime/engine.cc']))
    for (const each of found)
      expect(each).toEqual(expect.arrayContaining(['test/cli/a.test.ts', 'test/operators/c.test.ts']))
    expect(found.flat().length).toBeLessThan(TURNS * files.length)
  })

  test.each([['package-lock.json'], ['models/demo/config.json']])('%s touches all', (altered) => {
    for (const turn of turns) expect(run(turn, [altered])).toEqual(files)
  })

  test('the CUDA backend and native tests touch no suite of the CPU alone', () => {
    const found = turns.map((turn) => run(turn, ['native/backends/cuda/device.cc', 'native/test/wkv7_test.cc']).length)
    expect(found.reduce((sum, length) => sum + length, 0)).toBe(files.length)
  })

  test('a build file touches none: the suites whose turn it is try it', () => {
    for (const path of ['native/CMakeLists.txt', 'native/units.cmake', 'package.json', 'vitest.config.ts']) {
      const found = turns.map((turn) => filesOfTurn(files, turn, [path], graph, EVERYTHING_ON_A_DEVICE).length)
      expect(found.reduce((sum, length) => sum + length, 0)).toBe(files.length)
    }
  })

  test('the CUDA backend and its emulation touch all suites of a device', () => {
    for (const path of ['native/backends/cuda/device.cc', 'native/test/emulate/block.cc', 'native/runtime/engine.cc'])
      expect(filesOfTurn(files, 0, [path], graph, EVERYTHING_ON_A_DEVICE)).toEqual(files)
  })

  test('where git does not tell what changed, everything runs', () => {
    for (const turn of turns) expect(run(turn, null)).toEqual(files)
  })
})
