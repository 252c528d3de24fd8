/**
 * Memory of contexts that come and go: what one leaves serves the next.
 *
 * @module-tag slow
 */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

test('a thousand contexts, a hundred at a time, take the memory of a hundred', async () => {
  const root = fileURLToPath(new URL('../..', import.meta.url))
  const { stdout } = await promisify(execFile)(process.execPath, ['test/engine/churn.ts'], { cwd: root })
  const { resident, contextBytes } = JSON.parse(stdout) as { resident: number[]; contextBytes: number }
  // From the second hundred on: the first also pays for what the engine takes once.
  expect(resident.at(-1)! - resident[1]!).toBeLessThan(100 * contextBytes)
})
