/** continuo pack, and what starts do with its file. */
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { continuo, MODEL, temporary } from './helpers.ts'

let [dir, packed, cache] = ['', '', '']
const run = (...args: readonly string[]) => continuo(args, { env: { CONTINUO_CACHE: cache } })

beforeEach(() => {
  dir = join(temporary(), 'demo')
  cache = temporary()
  mkdirSync(dir)
  for (const file of ['config.json', 'model.safetensors']) copyFileSync(join(MODEL, file), join(dir, file))
  packed = join(dir, 'model.safetensors.packed')
  const then = Date.now() / 1000 - 60
  utimesSync(join(dir, 'model.safetensors'), then, then)
})

/** The sessions of a worker on a log of its own, with what it printed to stderr. */
const worked = async (log: string): Promise<{ readonly rows: string; readonly err: string }> => {
  const fed = ['feed', join(dir, 'config.json'), '--log', log, '--session', 's', '--generate', '12']
  expect(await run(...fed)).toMatchObject({ code: 0 })
  const { code, err } = await run(
    ...['run', '--log', log, '--model', dir, '--until-idle', '50', '--device', 'cpu', '--log-level', 'warn'],
  )
  expect(code, err).toBe(0)
  expect((await run('verify', '--log', log, '--model', dir, '--device', 'cpu')).code).toBe(0)
  const { out } = await run('sessions', '--log', log, '--json')
  const [row] = out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { pulse: number; chain: string })
  return { rows: `${row!.pulse} ${row!.chain}`, err }
}

describe('continuo pack', () => {
  test('writes a file beside the model, which starts map; --remove deletes it', { tags: 'slow' }, async () => {
    const made = await run('pack', dir)
    expect(made).toMatchObject({ code: 0, out: expect.stringMatching(`^Wrote ${packed}: 6\\.\\d MB in `) })
    const { ino, size } = statSync(packed)
    const said = JSON.parse((await run('pack', dir, '--json')).out)
    expect(said).toMatchObject({ path: packed, bytes: size })
    expect(statSync(packed).ino).not.toBe(ino)
    expect(await run('pack', dir, '--remove')).toMatchObject({
      code: 0,
      out: expect.stringContaining(`Deleted ${packed}`),
    })
    expect(existsSync(packed)).toBe(false)
    expect(await run('pack', dir, '--remove')).toMatchObject({ code: 0, err: `${dir} has no packed weights.\n` })
  })

  test('says what is wrong where it cannot write, and for weights that changed a moment ago', async () => {
    // However long the process takes to start.
    const later = Date.now() / 1000 + 3600
    utimesSync(join(dir, 'model.safetensors'), later, later)
    const fresh = await run('pack', dir)
    expect(fresh).toMatchObject({ code: 1, err: expect.stringContaining('was changed a moment ago') })
    if (process.getuid?.() === 0) return
    const then = Date.now() / 1000 - 60
    utimesSync(join(dir, 'model.safetensors'), then, then)
    chmodSync(dir, 0o555)
    const closed = await run('pack', dir)
    expect(closed).toMatchObject({ code: 1, err: expect.stringContaining(`cannot write ${packed}`) })
    chmodSync(dir, 0o755)
  })
})

describe('a worker', () => {
  test('has the bits of the weights whether they are packed, damaged in the packed file, or not packed', {
    tags: ['slow'],
  }, async () => {
    const log = (name: string): string => `file:${join(temporary(), `${name}.db`)}`
    const plain = await worked(log('plain'))
    expect(await run('pack', dir)).toMatchObject({ code: 0 })
    const mapped = await worked(log('mapped'))
    expect(mapped.rows).toBe(plain.rows)
    const bytes = readFileSync(packed)
    // Within the weights: whatever was computed with it would differ.
    for (let at = bytes.length >> 2; at < bytes.length - 64; at += bytes.length >> 3) bytes.fill(0, at, at + 64)
    writeFileSync(packed, bytes)
    const damaged = await worked(log('damaged'))
    expect(damaged.rows).toBe(plain.rows)
    expect(damaged.err).toContain(`packed weights ${packed} are damaged`)
    expect(damaged.err).toContain('continuo pack writes that file again')
  })
})
