/**
 * Commands whose log lies on a full disk.
 *
 * @module-tag slow
 */
import { cpSync, existsSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { hasShared, sharedModel } from '../engine/paths.ts'
import { smallDisk } from '../small-disk.ts'
import { continuo, json, MODEL, recordsOf, start } from './helpers.ts'

const { folder, need, fill, makeRoom } = smallDisk('4m')

const feed = (log: string): string[] => ['feed', '--log', log, '--session', 's', '--boundary']

describe('a full disk', () => {
  beforeEach(need)

  test('is called full by feed into a log that is there, which goes on when there is room', async () => {
    const log = `file:${join(folder, 'log.db')}`
    await json(...feed(log))
    fill()
    const { code, err } = await continuo(feed(log))
    expect([code, err]).toEqual([1, expect.stringContaining('The disk is full')])
    makeRoom()
    await json(...feed(log))
    expect((await recordsOf(log, 'continuo.chunks')).length).toBe(2)
  })

  test('is called full where a log should begin, and nothing is left behind', async () => {
    fill()
    const before = readdirSync(folder)
    for (const log of [`file:${join(folder, 'new.db')}`, `file:${join(folder, 'a', 'b', 'new.db')}`]) {
      for (const args of [feed(log), ['topics', 'apply', '--log', log]]) {
        const { code, err } = await continuo(args)
        expect([code, err]).toEqual([1, expect.stringContaining('The disk is full')])
      }
    }
    expect(readdirSync(folder)).toEqual(before)
    makeRoom()
    await json(...feed(`file:${join(folder, 'new.db')}`))
    expect(existsSync(join(folder, 'new.db'))).toBe(true)
  })

  test.each(
    [0, 36, 48].map((kilobytes) => [kilobytes]),
  )('with room for %i kB is told by serve before it gives an address, or it serves', async (kilobytes) => {
    const log = `file:${join(folder, `served-${kilobytes}.db`)}`
    await json(...feed(log))
    fill(kilobytes * 1024)
    const options = ['--model', MODEL, '--with-worker', '--port', '0', '--log-level', 'error']
    const { child, saw, done } = start(['serve', '--log', log, ...options])
    await Promise.race([saw(/Serving /).catch(() => undefined), done])
    child.kill('SIGTERM')
    const { out, err } = await done
    // The log's lines are JSON: a worker that joined tries again.
    expect([/Serving/.test(out), /^The disk is full/m.test(err)]).toSatisfy(([serves, full]) => serves !== full)
    makeRoom()
  })

  test.skipIf(!hasShared)('leaves the store of experts that was there, and says what the new one needs', async () => {
    const source = sharedModel('perspective-tiny')
    cpSync(join(source, 'config.json'), join(folder, 'config.json'))
    symlinkSync(join(source, 'experts.safetensors'), join(folder, 'experts.safetensors'))
    const [packed] = await json('experts', 'pack', folder)
    const layer = join(folder, 'experts', 'layer-003.experts')
    const before = readFileSync(layer)
    fill()
    const { code, err } = await continuo(['experts', 'pack', folder])
    expect([code, err]).toEqual([
      1,
      expect.stringMatching(
        /layer-000\.experts needs 200704 bytes, and the disk has \d+ free\. The store is as it was;|disk is full/,
      ),
    ])
    expect(readFileSync(layer).equals(before)).toBe(true)
    expect((await json('experts', 'check', folder))[0]).toMatchObject({ digest: packed!.digest })
    expect(readdirSync(folder).filter((name) => /^experts\..*(tmp|owner)$/.test(name))).toEqual([])
    makeRoom()
    expect((await json('experts', 'pack', folder))[0]).toMatchObject({ digest: packed!.digest })
  })
})
