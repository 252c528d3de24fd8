/** The engine's own tests, in C++: kernels against float64, formats against mutations, the thread pool; under ASan and UBSan. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, test } from 'vitest'

test('the native tests pass under sanitizers', { timeout: 900_000 }, async () => {
  const child = spawn(process.execPath, ['tools/asan.mjs'], { stdio: ['ignore', 'pipe', 'pipe'] })
  let out = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text) => {
      out += text
    })
  const [code] = await once(child, 'close')
  expect(code, out).toBe(0)
  expect(out).toMatch(/^\d{2,} native tests, 0 failed$/m)
})
