/**
 * The native programs of the benches, which nothing else builds, fit the engine as it is.
 *
 * @module-tag slow
 */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const native = fileURLToPath(new URL('../../native/', import.meta.url))

test.each(['exactness.cc', 'free_order.cc', 'products.cc'])('native/bench/%s compiles', (name) => {
  const { status, stderr } = spawnSync(
    process.env.CXX ?? 'c++',
    ['-std=c++20', '-fsyntax-only', '-march=native', '-Wno-psabi', `-I${native}`, `${native}bench/${name}`],
    { encoding: 'utf8' },
  )
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
})
