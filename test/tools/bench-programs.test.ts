/**
 * The native programs of the benches, which nothing else builds, fit the engine as it is.
 *
 * @module-tag slow
 */
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const native = fileURLToPath(new URL('../../native/', import.meta.url))

const names = ['exactness.cc', 'free_order.cc', 'products.cc']
// Vectors of 16, 8 and 4 numbers, whatever this machine has.
const machines = process.arch === 'x64' ? ['x86-64-v4', 'x86-64-v3', 'x86-64'] : ['native']
const cases = names.flatMap((name) => machines.map((machine) => ({ name, machine })))

test.each(cases)('native/bench/$name compiles for $machine', ({ name, machine }) => {
  const { status, stderr } = spawnSync(
    process.env.CXX ?? 'c++',
    ['-std=c++20', '-fsyntax-only', `-march=${machine}`, '-Wno-psabi', `-I${native}`, `${native}bench/${name}`],
    { encoding: 'utf8' },
  )
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
})
