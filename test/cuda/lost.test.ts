/**
 * A device that is lost while workers run on it takes their contexts with it. Tasks that meet one are lost as if the
 * log had failed: they begin again at what was committed, and rebuild their sessions. The judge is a CPU that nothing
 * happened to.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { openLog } from '../../src/streams/open.ts'
import { collect } from '../crash/judge.ts'
import { appendAll, createCrashTopics, runWorker } from '../crash/life.ts'
import { scenario } from '../crash/scenario.ts'
import { expectSame } from '../crash/suite.ts'
import { emulated } from './helpers.ts'
import { BYTES, rwkv7 } from './packages.ts'

const dir = mkdtempSync(join(tmpdir(), 'continuo-lost-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

describe.runIf(emulated)('continuo run on a device that is lost', () => {
  it('leaves the tokens, observations and heads of a CPU, each once', async () => {
    const records = scenario(2).flat()
    const family = { flags: ['--model', rwkv7('F32', BYTES), '--max-resident-bytes', '9000'] }
    const feed = async (name: string) => {
      const url = `file:${join(dir, `${name}.db`)}`
      const log = await openLog(url)
      await createCrashTopics(log)
      await log.close()
      await appendAll(url, records)
      return url
    }
    const run = async (url: string, device: string, env: NodeJS.ProcessEnv) =>
      await runWorker(url, family, ['--until-idle', '300', '--device', device], undefined, env).over
    const serve = async (name: string, device: string, env: NodeJS.ProcessEnv) => {
      const url = await feed(name)
      const { code, stderr } = await run(url, device, env)
      expect(code, stderr).toBe(0)
      return { stderr, result: await collect(url) }
    }
    const { result } = await serve('cpu', 'cpu', {})
    // The first of these launches is the first read, the last is far into the work.
    for (const launch of [20, 1500, 5000]) {
      const cuda = await serve(`cuda-${launch}`, 'cuda', { CONTINUO_EMULATED_FAULT: String(launch) })
      expectSame(cuda.result, result)
      const lines = cuda.stderr
        .trim()
        .split('\n')
        .map(
          (line) => JSON.parse(line) as { readonly state?: string; readonly partition: number; readonly msg: string },
        )
      const lost = lines.filter(({ state }) => state === 'lost')
      expect(lost.length).toBeGreaterThan(0)
      // One loss of the device ends each task once at most.
      expect(new Set(lost.map(({ partition }) => partition)).size).toBe(lost.length)
      for (const { msg } of lost) expect(msg).toMatch(/lost/)
      if (launch > 1000) expect(lines.filter(({ msg }) => msg === 'session restored').length).toBeGreaterThan(0)
    }
    // Where a device stays away, whoever watches over the process has to start it again.
    const url = await feed('away')
    const { code, stderr } = await run(url, 'cuda', { CONTINUO_EMULATED_FAULT: '3000', CONTINUO_EMULATED_LASTING: '1' })
    expect(code, stderr).toBe(1)
    expect(stderr).toMatch(/could not be reset in this process: an illegal memory access .+ Start the process again\./)
    expect((await run(url, 'cuda', {})).code).toBe(0)
    expectSame(await collect(url), result)
  })
})
