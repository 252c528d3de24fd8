import { PassThrough, Readable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { withPauses } from '../../src/cli/input.ts'

const collect = async (source: AsyncIterable<Uint8Array | null>): Promise<(string | null)[]> => {
  const all: (string | null)[] = []
  for await (const bytes of source) all.push(bytes === null ? null : Buffer.from(bytes).toString())
  return all
}

describe('a live input', () => {
  it('after the signal still brings what has arrived, once', async () => {
    const stream = new PassThrough()
    stream.write('abc')
    stream.write('def')
    expect(await collect(withPauses(stream, 1000, AbortSignal.abort()))).toEqual(['abcdef'])
    expect(stream.destroyed).toBe(true)
  })

  it('ends at the signal though its writer never stops', async () => {
    const stopping = new AbortController()
    const endless = new Readable({
      read() {
        this.push('y\n')
      },
    })
    let after = 0
    for await (const _ of withPauses(endless, 1000, stopping.signal)) {
      if (stopping.signal.aborted) after += 1
      stopping.abort()
    }
    expect(after).toBeLessThanOrEqual(1)
  })

  it('pauses though a byte comes now and then, and not before the next one', async () => {
    const trickle = new PassThrough()
    const drop = (): void => {
      trickle.write('.')
      if (!trickle.destroyed) setTimeout(drop, 5)
    }
    drop()
    let seen = 0
    for await (const bytes of withPauses(trickle, 50)) {
      if (bytes === null) break
      seen += bytes.length
    }
    expect(seen).toBeGreaterThan(0)
  })

  it('has no second pause while nothing comes', async () => {
    const stream = new PassThrough()
    stream.write('a')
    const came = withPauses(stream, 1)
    expect(Buffer.from((await came.next()).value!).toString()).toBe('a')
    expect((await came.next()).value).toBeNull()
    const next = came.next()
    stream.end('b')
    expect(Buffer.from((await next).value!).toString()).toBe('b')
    expect(await came.next()).toMatchObject({ done: true })
  })

  it('throws what the stream ends with', async () => {
    const stream = new PassThrough()
    stream.destroy(new Error('EIO'))
    await expect(collect(withPauses(stream, 1000))).rejects.toThrow('EIO')
  })
})
