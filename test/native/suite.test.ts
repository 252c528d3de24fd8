/**
 * The engine's own tests, in C++, on the library that the addon is linked from: every kernel of the CPU against its
 * written rule and float64, formats against mutations, the scheduler, the thread pool. `npm run test:asan` runs them
 * all, with those of CUDA, under sanitizers.
 *
 * @module-tag slow
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, test } from 'vitest'

test('the native tests of the CPU pass', { timeout: 600_000 }, async () => {
  const child = spawn(process.execPath, ['tools/cpu-tests.mjs'], { stdio: ['ignore', 'pipe', 'pipe'] })
  let out = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text) => {
      out += text
    })
  const [code] = await once(child, 'close')
  expect(code, out).toBe(0)
  expect(out).toMatch(/^\d{2,} native tests, 0 failed$/m)
})
