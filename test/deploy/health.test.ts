/** deploy/health.mjs, the image's health check, beside a gateway and a worker. */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
import { freePorts } from '../../tools/kafka/properties.ts'
import { ROOT } from '../cli/helpers.ts'
import { servingAll } from '../gateway/helpers.ts'
import { temporaryFile } from './helpers.ts'

/** Asks as the container's would, of the command that runs with these words. */
const check = async (command: readonly string[], variables: Readonly<Record<string, string>> = {}) => {
  const line = temporaryFile('cmdline', ['node', '/usr/local/bin/continuo', ...command, ''].join('\0'))
  const { PATH } = process.env
  return promisify(execFile)(process.execPath, [join(ROOT, 'deploy', 'health.mjs'), line], {
    env: { PATH, ...variables },
  }).then(
    () => 'well',
    ({ stderr }: { readonly stderr: string }) => stderr,
  )
}

test('asks a gateway, a worker, or both, where flags and variables say that they listen', {
  tags: 'slow',
}, async () => {
  const gateway = await servingAll((end) => onTestFinished(async () => void (await end())), '--metrics-port', '0')
  const { port } = new URL(gateway.url)
  const [, metrics] = await gateway.saw(/http:\/\/127\.0\.0\.1:(\d+)\/metrics/)
  const [nobody] = await freePorts(1)
  expect(await check(['serve', '--port', port])).toBe('well')
  expect(await check(['serve', `--port=${port}`, '--host', '0.0.0.0'])).toBe('well')
  expect(await check(['serve'], { CONTINUO_PORT: port })).toBe('well')
  expect(await check(['run'], { CONTINUO_METRICS_PORT: metrics! })).toBe('well')
  expect(await check(['serve', '--with-worker', '--port', port, '--metrics-port', metrics!])).toBe('well')
  expect(await check(['serve', '--port', String(nobody)])).toMatch(/does not answer/)
  expect(await check(['run', '--metrics-port', String(nobody)])).toMatch(/does not answer/)
  expect(await check(['serve', '--with-worker', '--port', port, '--metrics-port', String(nobody)])).toMatch(/does not/)
})

test('has nothing to ask of other commands', async () => {
  expect(await check(['tail', '--follow'], { CONTINUO_METRICS_PORT: '1' })).toBe('well')
  expect(await check([])).toBe('well')
})
