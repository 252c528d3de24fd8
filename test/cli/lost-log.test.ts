/** A log file that is removed, or replaced by another one, while commands have it open. */
import { copyFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { faultyDisk } from '../faulty-disk.ts'
import { json, ROOT, recordsOf, start, temporary } from './helpers.ts'

const WATCH = join(ROOT, 'models', 'watch')

const LOSSES = {
  removed: (path: string) => renameSync(path, `${path}.aside`),
  'replaced by another file': (path: string) => {
    copyFileSync(path, `${path}.copy`)
    renameSync(path, `${path}.aside`)
    renameSync(`${path}.copy`, path)
  },
} as const

const logOfOne = async (): Promise<string> => {
  const path = join(temporary(), 'log.db')
  await json('feed', '--log', `file:${path}`, '--session', 's', '--boundary')
  return path
}
const sentence = (path: string, loss: string): string =>
  `The log file ${path} was ${loss} while it was open here, and nothing more is written.`

describe.each(Object.keys(LOSSES) as (keyof typeof LOSSES)[])('a log that is %s', (loss) => {
  test('ends its worker with a sentence', async () => {
    const path = await logOfOne()
    const { done, saw } = start(['run', '--log', `file:${path}`, '--model', WATCH])
    await saw(/"state":"running"/)
    LOSSES[loss](path)
    const { code, err } = await done
    expect([code, err]).toEqual([3, expect.stringContaining(sentence(path, loss))])
  })

  test('ends its gateway with a sentence; what it is asked is refused, and not kept', async () => {
    const path = await logOfOne()
    const { done, saw } = start(['serve', '--log', `file:${path}`, '--model', WATCH, '--port', '0'])
    const [, url] = await saw(/at (http:\S+\d)\./)
    LOSSES[loss](path)
    const answer = await fetch(`${url}/v1/sessions/s/chunks`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{"type":"text","text":"a"}',
    })
    expect([answer.status, await answer.text()]).toEqual([503, expect.stringContaining('The log file')])
    const { code, err } = await done
    expect([code, err]).toEqual([3, expect.stringContaining(sentence(path, loss))])
    expect(await recordsOf(`file:${path}.aside`, 'continuo.chunks')).toHaveLength(1)
  })
})

describe('a log whose file system becomes read-only', () => {
  const { folder, need, fail } = faultyDisk()

  test('ends worker and gateway with a sentence, as it does who comes then', { tags: 'slow' }, async (context) => {
    need(context)
    const path = join(folder, 'log.db')
    await json('feed', '--log', `file:${path}`, '--session', 's', '--boundary')
    const worker = start(['run', '--log', `file:${path}`, '--model', WATCH])
    await worker.saw(/"state":"running"/)
    const gateway = start(['serve', '--log', `file:${path}`, '--model', WATCH, '--port', '0'])
    const [, url] = await gateway.saw(/at (http:\S+\d)\./)
    const feed = () =>
      fetch(`${url}/v1/sessions/s/chunks`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{"type":"text","text":"a"}',
      })
    fail()
    const answer = await feed()
    expect([answer.status, await answer.text()]).toEqual([503, expect.stringContaining('became read-only')])
    for (const { done } of [gateway, worker]) {
      const { code, err } = await done
      expect([code, err]).toEqual([
        3,
        expect.stringContaining(`The file system of the log file ${path} became read-only`),
      ])
    }
    const late = await start(['feed', '--log', `file:${path}`, '--session', 's', '--boundary']).done
    expect([late.code, late.err]).toEqual([3, expect.stringContaining('became read-only')])
  })
})
