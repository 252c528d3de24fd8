import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, createWriteStream, existsSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { ChunkInput } from '../../topics/chunks.ts'
import {
  continuo,
  eventually,
  json,
  ROOT,
  recordsOf,
  runUntilIdle,
  sessionRow,
  start,
  temporary,
  valuesOf,
  withLog,
} from './helpers.ts'

const folder = temporary()
let logs = 0
const newLog = (): string => `file:${join(folder, `feed-${++logs}.db`)}`
const write = (name: string, bytes: Uint8Array | string): string => {
  const path = join(folder, name)
  writeFileSync(path, bytes)
  return path
}
const sent = (log: string): Promise<void> =>
  withLog(log, async (open) => expect((await open.bounds('continuo.chunks', 0)).end).toBeGreaterThan(0))
const eventsIn = async (log: string): Promise<ChunkInput[]> =>
  valuesOf<ChunkInput>(await recordsOf(log, 'continuo.chunks'))
const bytesIn = (events: readonly ChunkInput[]): Buffer =>
  Buffer.concat(
    events.map((event) => {
      if (event.type !== 'text') return Buffer.alloc(0)
      return 'text' in event ? Buffer.from(event.text) : Buffer.from(event.bytes, 'base64')
    }),
  )

describe('continuo feed', () => {
  it('loses no byte of a file that is not UTF-8, cut inside characters', async () => {
    const log = newLog()
    const bytes = Buffer.from('a\u00e9\u20ac\u{1f30a}\0"\n\\'.repeat(40))
    bytes[17] = 0xff
    bytes[200] = 0xc3
    const file = write('broken.bin', bytes)
    const [told] = await json('feed', file, '--log', log, '--session', 's', '--chunk-bytes', '7')
    const events = await eventsIn(log)
    expect(bytesIn(events).equals(bytes)).toBe(true)
    expect(told).toMatchObject({
      session: 's',
      bytes: bytes.length,
      events: events.length,
      firstOffset: 0,
      lastOffset: events.length - 1,
    })
    expect(events.filter((event) => 'bytes' in event).length).toBeLessThan(6)
  })

  it('reads standard input, and sends what the flags ask for after it, in order', async () => {
    const log = newLog()
    const done = await continuo(
      [
        ...['feed', '-', '--log', log, '--session', 'z\u00fc', '--surprisal', '--generate', '3', '--request-id', 'r'],
        ...['--temperature', '0', '--top-k', '5', '--seed', '7', '--stop', 'x', '--stop', 'y', '--reset', '--close'],
      ],
      { input: 'hello' },
    )
    expect(done).toMatchObject({ code: 0 })
    expect(await eventsIn(log)).toEqual([
      { type: 'open', surprisal: true },
      { type: 'text', text: 'hello' },
      {
        type: 'generate',
        requestId: 'r',
        maxTokens: 3,
        temperature: 0,
        topK: 5,
        topP: 1,
        stop: ['x', 'y'],
        seed: 7,
        run: 16,
      },
      { type: 'boundary', reset: true },
      { type: 'close' },
    ])
    const [record] = await recordsOf(log, 'continuo.chunks')
    expect(Buffer.from(record!.key!).toString()).toBe('z\u00fc')
  })

  it('takes an empty file for what it is', async () => {
    const log = newLog()
    const [told] = await json('feed', write('empty', ''), '--log', log, '--session', 's')
    expect(told).toMatchObject({ bytes: 0, events: 0, partition: null, firstOffset: null, requestId: null })
    expect(await eventsIn(log)).toEqual([])
  })

  it('says of a file that cannot be opened why and what to do, before it asks for any log', async () => {
    const socket = join(folder, 'socket')
    const server = createServer().listen(socket)
    await once(server, 'listening')
    const missing = join(folder, 'nothing')
    for (const [file, reason, mend] of [
      [missing, 'ENOENT', 'Check the path.'],
      [socket, 'ENXIO', 'pipe its text into standard input'],
    ] as const) {
      const log = newLog()
      const done = await continuo(['feed', file, '--log', log, '--session', 's'])
      expect(done).toMatchObject({ code: 1, out: '' })
      expect(done.err).toContain(`The file ${file} cannot be read: ${reason}`)
      expect(done.err).toContain(mend)
      expect(done.err.trim().split('\n')).toHaveLength(1)
      expect(existsSync(log.slice('file:'.length))).toBe(false)
      const away = await continuo(['feed', file, '--log', 'kafka://127.0.0.1:1', '--session', 's'])
      expect(away.err).toContain(`The file ${file} cannot be read: ${reason}`)
    }
    server.close()
  })

  it.skipIf(process.getuid?.() === 0)('says whose permissions to mend', async () => {
    const file = write('secret', 'x')
    chmodSync(file, 0)
    const done = await continuo(['feed', file, '--log', newLog(), '--session', 's'])
    expect(done).toMatchObject({ code: 1, out: '' })
    expect(done.err).toContain('EACCES')
    expect(done.err).toContain('Change its permissions')
  })

  it.skipIf(process.platform !== 'linux')('says that reading failed, and what was sent before', async () => {
    const log = newLog()
    // Opens well; address 0 of a process is never there to read.
    const done = await continuo(['feed', '/proc/self/mem', '--log', log, '--session', 's'])
    expect(done).toMatchObject({ code: 1, out: '' })
    expect(done.err).toContain('The file /proc/self/mem cannot be read: EIO')
    expect(done.err).not.toContain('fault of Continuo')
  })

  it('does not let the size of the pieces be seen in the result', { tags: 'slow' }, async () => {
    const text = 'The tide \u2014 \u00e9bb and flow \u2014 came in.\n'.repeat(30)
    const file = write('text', text)
    const rows = []
    for (const size of ['5', '64', '65536']) {
      const log = newLog()
      await json('feed', file, '--log', log, '--session', 's', '--chunk-bytes', size)
      expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
      rows.push(await sessionRow(log, 's'))
    }
    expect(new Set(rows.map(({ chain }) => chain)).size).toBe(1)
    expect(rows[0]).toMatchObject({ pulse: Buffer.byteLength(text), status: 'open', complete: true })
  })
})

/** Resolves when the log holds what is expected while its writer still runs. */
const holds = (log: string, expected: readonly unknown[]): Promise<void> =>
  eventually(async () => expect(await eventsIn(log)).toEqual(expected))

describe('continuo feed --from', () => {
  it('begins a session as a fork, which sessions shows with its parent', { tags: 'slow' }, async () => {
    const log = newLog()
    await json('feed', write('prompt', 'The harbour froze'), '--log', log, '--session', 'prompt')
    await json('feed', '--log', log, '--session', 'child', '--from', 'prompt', '--generate', '4')
    expect((await eventsIn(log))[1]).toEqual({ type: 'open', from: { session: 'prompt' } })
    // What a fork takes over was read by its parent, and counts there.
    expect((await runUntilIdle(log)).out).toContain('17 tokens read, 4 generated')
    const rows = await json('sessions', '--log', log)
    const child = rows.find(({ session }) => session === 'child')!
    expect(child).toMatchObject({ from: { session: 'prompt', pulse: 17 }, pulse: 21 })
    const one = await continuo(['sessions', '--log', log, '--session', 'child'])
    expect(one.out).toContain('Session "child" began as a fork of "prompt", at pulse 17.\n')
    expect(await continuo(['feed', '--log', log, '--session', 'x', '--from', ''])).toMatchObject({ code: 2 })
    // Its clock goes back to the parent's.
    await json('feed', '--log', log, '--session', 'child', '--close')
    await json('feed', '--log', log, '--session', 'child', '--from', 'prompt')
    expect(await runUntilIdle(log)).toMatchObject({
      code: 0,
      out: expect.stringContaining('0 tokens read, 0 generated'),
    })
  })
})

describe('continuo feed from a pipe', () => {
  it('sends what has come when nothing more comes, in whole characters; the cuts change nothing', {
    tags: 'slow',
  }, async () => {
    const log = newLog()
    const pieces = [Buffer.from('tide \u2014 '), Buffer.from('\u00e9\u20ac\u{1f30a}bb')]
    const [first, second] = pieces as [Buffer, Buffer]
    const feeding = start(['feed', '-', '--log', log, '--session', 's', '--boundary'], { live: true })
    feeding.child.stdin!.write(first)
    await holds(log, [{ type: 'text', text: 'tide \u2014 ' }])
    // Ends inside the euro sign, then inside the wave.
    feeding.child.stdin!.write(second.subarray(0, 3))
    await holds(log, [
      { type: 'text', text: 'tide \u2014 ' },
      { type: 'text', text: '\u00e9' },
    ])
    feeding.child.stdin!.write(second.subarray(3, 7))
    await eventually(async () => expect((await eventsIn(log)).at(-1)).toEqual({ type: 'text', text: '\u20ac' }))
    feeding.child.stdin!.end(second.subarray(7))
    expect(await feeding.done).toMatchObject({ code: 0, err: `Created 7 topics in ${log}.\n` })
    expect((await eventsIn(log)).slice(3)).toEqual([
      { type: 'text', text: '\u{1f30a}bb' },
      { type: 'boundary', reset: false },
    ])
    const whole = newLog()
    await json('feed', write('whole', Buffer.concat(pieces)), '--log', whole, '--session', 's', '--boundary')
    const chains = []
    for (const url of [log, whole]) {
      expect(await runUntilIdle(url)).toMatchObject({ code: 0 })
      chains.push((await sessionRow(url, 's')).chain)
    }
    expect(chains[0]).toBe(chains[1])
  })

  it.each([
    ['SIGINT', 130],
    ['SIGHUP', 129],
    ['SIGTERM', 143],
  ] as const)('on %s sends what it holds, reports, sends nothing of the flags, and ends with %i', async (signal, code) => {
    const log = newLog()
    const asked = ['--generate', '5', '--close', '--json']
    const feeding = start(['feed', '-', '--log', log, '--session', 's', ...asked], { live: true })
    feeding.child.stdin!.write(Buffer.from('ebb \u20ac').subarray(0, 6))
    await holds(log, [{ type: 'text', text: 'ebb ' }])
    feeding.child.kill(signal)
    const done = await feeding.done
    expect(done).toMatchObject({ code, signal: null })
    expect(done.err).toContain('; what --generate and --close asked for was not sent.\n')
    expect(JSON.parse(done.out)).toMatchObject({ bytes: 6, events: 2, requestId: null, interrupted: true })
    await holds(log, [
      { type: 'text', text: 'ebb ' },
      { type: 'text', bytes: '4oI=' },
    ])
  })

  it('takes the end of a pipeline on Ctrl-C for an interruption, not for the end of the text', async () => {
    const log = newLog()
    const line = `yes | "${process.execPath}" src/cli/main.ts feed - --log "${log}" --session s --close`
    const pipeline = spawn('sh', ['-c', line], { cwd: ROOT, detached: true, stdio: ['ignore', 'ignore', 'pipe'] })
    let told = ''
    pipeline.stderr.setEncoding('utf8').on('data', (text: string) => {
      told += text
    })
    await eventually(() => sent(log))
    process.kill(-pipeline.pid!, 'SIGINT')
    await once(pipeline, 'close')
    expect(told).toContain('Interrupted: ')
    expect((await eventsIn(log)).at(-1)).toMatchObject({ type: 'text' })
  })

  it('reads a named pipe the same way', async () => {
    const log = newLog()
    const pipe = join(folder, 'pipe')
    execFileSync('mkfifo', [pipe])
    const feeding = start(['feed', pipe, '--log', log, '--session', 's', '--close'])
    const writer = createWriteStream(pipe)
    writer.write('low ')
    await holds(log, [{ type: 'text', text: 'low ' }])
    feeding.child.kill('SIGTERM')
    expect(await feeding.done).toMatchObject({ code: 143, signal: null })
    writer.destroy()
    await holds(log, [{ type: 'text', text: 'low ' }])
  })
})
