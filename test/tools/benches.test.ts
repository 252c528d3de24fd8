/**
 * Every bench says with --help what it measures and which options it has, before it begins.
 *
 * @module-tag slow
 */
import { execFile } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { ROOT } from '../package/project.ts'

const run = promisify(execFile)
const benches = globSync('bench/{*,peers/*,scale/*,streams/*}.ts', { cwd: ROOT })
  .filter((file) => readFileSync(join(ROOT, file), 'utf8').includes('parseArgs('))
  // Those of the peers need packages of their own.
  .filter((file) => file !== 'bench/options.ts' && !file.startsWith('bench/peers/'))

test.each(benches)('%s', async (file) => {
  const { stdout } = await run(process.execPath, [file, '--help'], { cwd: ROOT })
  expect(stdout.length).toBeGreaterThan(100)
  expect(stdout).toContain('Options:')
})

test('an option that there is not is refused with where they stand', async () => {
  const refused = await run(process.execPath, [benches[0]!, '--no-such-option'], { cwd: ROOT }).catch(
    (error: unknown) => error,
  )
  expect(refused).toMatchObject({ code: 2, stdout: '', stderr: expect.stringMatching(/--help lists the options\.\n$/) })
})
