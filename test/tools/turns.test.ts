import { describe, expect, test } from 'vitest'
import { AGAIN, EVERYTHING_ON_A_DEVICE, filesOfTurn, TURNS } from '../../tools/turns.ts'

const files = [
  'test/cli/a.test.ts',
  'test/kafka/b.test.ts',
  'test/operators/c.test.ts',
  'test/blobs/d.test.ts',
  'test/crash/e.test.ts',
  ...['blobs', 'console', 'deploy', 'gateway', 'kafka', 'streams'].flatMap((folder) =>
    [...'stuvwxyz'].map((name) => `test/${folder}/${name}.test.ts`),
  ),
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
    const found = turns.map((turn) => run(turn, ['native/runtime/scheduler/engine.cc']))
    for (const each of found)
      expect(each).toEqual(expect.arrayContaining(['test/cli/a.test.ts', 'test/operators/c.test.ts']))
    expect(found.flat().length).toBeLessThan(TURNS * files.length)
  })

  test.each([
    ['package-lock.json'],
    ['models/demo/config.json'],
  ])('%s touches all, of which two fifths run', (altered) => {
    const found = turns.map((turn) => run(turn, [altered]))
    for (const each of found) expect(each).toHaveLength(Math.ceil(0.4 * files.length))
    expect(new Set(found.flat())).toEqual(new Set(files))
  })

  test('of a change that touches more than two fifths, the nearest run', () => {
    const chain = new Map([
      ...files.slice(1).map((file, at): [string, string[]] => [file, [files[at]!]]),
      [files[0]!, ['src/one.ts']],
    ])
    const many = [...files, ...files.map((file) => file.replace('test.ts', 'other.test.ts'))]
    for (const turn of turns) {
      const found = filesOfTurn(many, turn, ['src/one.ts'], chain)
      expect(found).toHaveLength(Math.ceil(0.4 * many.length))
      expect(found).toContain(files[0])
    }
  })

  test('of a change that alters all of them a half runs, or those whose turn it is where they run again elsewhere', () => {
    for (const turn of turns) {
      expect(filesOfTurn(files, turn, files, graph)).toHaveLength(Math.ceil(files.length / 2))
      const again = filesOfTurn(files, turn, files, graph, AGAIN)
      expect(again).toHaveLength(Math.ceil(files.length / TURNS))
    }
  })

  test('the CUDA backend and native tests touch no suite of the CPU alone', () => {
    const found = turns.map(
      (turn) => run(turn, ['native/backends/cuda/device.cc', 'native/test/kernels/wkv7_test.cc']).length,
    )
    expect(found.reduce((sum, length) => sum + length, 0)).toBe(files.length)
  })

  test('a build file or a page touches none: the suites whose turn it is try it', () => {
    for (const path of ['native/CMakeLists.txt', 'package.json', 'vitest.config.ts', 'models/watch/README.md']) {
      const found = turns.map(
        (turn) => filesOfTurn(files, turn, [path], graph, { everything: EVERYTHING_ON_A_DEVICE }).length,
      )
      expect(found.reduce((sum, length) => sum + length, 0)).toBe(files.length)
    }
  })

  test('the CUDA backend and its emulation touch all suites of a device', () => {
    for (const path of [
      'native/backends/cuda/device.cc',
      'native/test/emulate/block.cc',
      'native/runtime/scheduler/engine.cc',
    ])
      expect(filesOfTurn(files, 0, [path], graph, { everything: EVERYTHING_ON_A_DEVICE })).toHaveLength(
        Math.ceil(0.4 * files.length),
      )
  })

  test('where git does not tell what changed, everything runs', () => {
    for (const turn of turns) expect(run(turn, null)).toEqual(files)
  })
})
