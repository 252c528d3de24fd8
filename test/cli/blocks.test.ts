/**
 * A session whose snapshot lies in blocks, in the log or in a folder: every command sees the whole of it.
 *
 * @module-tag slow
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { readPartitionState } from '../../src/operators/worker/partition-state.ts'
import { topicNames } from '../../topics/index.ts'
import { openFamily } from '../families.ts'
import { continuo, DOCUMENT, json, sessionRow, temporary, withLog } from './helpers.ts'

const TEXT = readFileSync(DOCUMENT, 'utf8').slice(0, 700)
const LONG = readFileSync(DOCUMENT, 'utf8').slice(0, 5000)

interface Norm {
  readonly name: string
  readonly layer: number
  readonly norm: number
}

test.each([
  ['the topic of blobs', false],
  ['a folder', true],
])('with its blocks in %s', async (_, isFolder) => {
  const folder = temporary()
  const { dir: model } = await openFamily('qwen3', folder)
  const log = `file:${join(folder, 'log.db')}`
  const store = join(folder, 'store')
  const place = isFolder ? ['--blob-store', store] : []
  expect((await continuo(['feed', '-', '--log', log, '--session', 'kept'], { input: TEXT })).code).toBe(0)
  const run = ['run', '--log', log, '--model', model, '--until-idle', '50', '--log-level', 'warn', ...place]
  expect(await continuo(run)).toMatchObject({ code: 0 })
  // A byte is a position; two blocks of 256 are full.
  if (isFolder)
    expect(readdirSync(store, { recursive: true }).filter((name) => /\.[0-9a-f]{16}$/.test(String(name)))).toHaveLength(
      2,
    )
  else expect(existsSync(store)).toBe(false)

  const file = join(folder, 'kept.safetensors')
  expect(await continuo(['export', '--log', log, '--session', 'kept', file, ...place])).toMatchObject({ code: 0 })
  const bytes = readFileSync(file)
  const header = 8 + Number(bytes.readBigUInt64LE(0))
  const { shape, data_offsets: at } = JSON.parse(bytes.toString('utf8', 8, header)).keyCache as {
    shape: readonly number[]
    data_offsets: readonly [number, number]
  }
  expect(shape).toContain(Buffer.byteLength(TEXT))
  const keys = new Float32Array(Uint8Array.from(bytes.subarray(header + at[0], header + at[1])).buffer)
  const { health } = (
    await json<{ health: readonly Norm[] }>('sessions', '--log', log, '--session', 'kept', '--health', ...place)
  )[0]!
  const layers = shape[0]!
  expect(health.filter(({ name }) => name === 'keyCache')).toEqual(
    Array.from({ length: layers }, (_layer, layer) => {
      const part = keys.subarray((layer * keys.length) / layers, ((layer + 1) * keys.length) / layers)
      return expect.objectContaining({ layer, norm: expect.closeTo(Math.hypot(...part), 6) })
    }),
  )
  expect(await continuo(['verify', '--log', log, '--model', model, ...place])).toMatchObject({ code: 0 })
  if (!isFolder) return
  const without = await continuo(['export', '--log', log, '--session', 'kept', join(folder, 'none.safetensors')])
  expect(without.code).toBe(1)
  expect(without.err).toMatch(/--blob-store/)
})

test.each([
  ['the topic of blobs', false],
  ['a folder', true],
])('an imported session has its blocks in %s, however little memory there is, and goes on as where it came from', async (_, isFolder) => {
  const folder = temporary()
  const { dir: model } = await openFamily('memory', folder)
  const [before, after] = ['before', 'after'].map((name) => `file:${join(folder, `${name}.db`)}`)
  const store = join(folder, 'store')
  const place = isFolder ? ['--blob-store', store] : []
  const feed = async (log: string, input: string) =>
    expect((await continuo(['feed', '-', '--log', log, '--session', 's'], { input })).code).toBe(0)
  const run = async (log: string, ...more: readonly string[]) =>
    expect(
      await continuo(['run', '--log', log, '--model', model, '--until-idle', '50', '--log-level', 'warn', ...more]),
    ).toMatchObject({ code: 0, err: '' })
  await feed(before!, LONG)
  await run(before!)
  const file = join(folder, 's.safetensors')
  const own = ['--log', before!, '--model', model, '--session', 's']
  expect(await continuo(['export', ...own, file])).toMatchObject({ code: 0 })
  const importing = ['import', file, '--log', after!, '--model', model, '--session', 's', ...place]
  expect(await continuo([...importing, '--block-cache-bytes', '0'])).toMatchObject({ code: 0, err: '' })
  const { snapshot } = await withLog(
    after!,
    async (log) => (await readPartitionState(log, topicNames('continuo'), 0, 0)).heads.get('s')!,
  )
  expect(snapshot!.blobs!.count).toBeGreaterThan(3)
  expect(snapshot!.blobs!.in).toBe(isFolder ? undefined : 'topic')
  expect(existsSync(store)).toBe(isFolder)
  for (const log of [before!, after!]) {
    await feed(log, TEXT)
    await run(log, ...(log === after ? place : []))
  }
  const [one, other] = [await sessionRow(before!, 's'), await sessionRow(after!, 's')]
  expect(other).toMatchObject({ pulse: one.pulse, chain: one.chain })
  expect(await continuo(['verify', '--log', after!, '--model', model, '--blobs', ...place])).toMatchObject({ code: 0 })
  if (!isFolder) return
  const without = await continuo(['import', file, '--log', after!, '--model', model, '--session', 't'])
  expect(without).toMatchObject({ code: 3, err: expect.stringContaining('Name the store: --blob-store.') })
})
