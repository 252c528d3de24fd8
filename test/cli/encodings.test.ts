/** Texts that are not UTF-8: known by their first bytes, or refused with the flag to say. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text as textOf } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { continuo, MODEL, temporary } from './helpers.ts'

const TEXT = 'Der Hafenmeister zählt die Fässer, naïf.\nÜber dem Kai hängt Nebel.\n'.repeat(20)
const utf16be = (text: string): Buffer => Buffer.from(text, 'utf16le').swap16()
const marked = (text: string): string => `\ufeff${text}`

const fileOf = (bytes: Uint8Array): string => {
  const file = join(temporary(), 'text')
  writeFileSync(file, bytes)
  return file
}
const evaluated = (bytes: Uint8Array, ...flags: readonly string[]) =>
  continuo(['eval', fileOf(bytes), '--model', MODEL, '--json', ...flags])
const chainOf = (out: string): string => (JSON.parse(out) as { chain: string }).chain

describe('a text in another encoding', () => {
  it('is read as the same text in UTF-8 is', async () => {
    const want = await evaluated(Buffer.from(TEXT))
    expect(want).toMatchObject({ code: 0, err: '' })
    for (const [bytes, flags, err] of [
      [Buffer.from(marked(TEXT), 'utf16le'), [], /is text in UTF-16 by its byte order mark; it is read as UTF-8\.\n$/],
      [utf16be(marked(TEXT)), [], /is text in UTF-16 by its byte order mark/],
      [Buffer.from(TEXT, 'utf16le'), ['--encoding', 'utf-16le'], /^$/],
      [utf16be(TEXT), ['--encoding', 'utf-16be'], /^$/],
      [Buffer.from(TEXT, 'latin1'), ['--encoding', 'latin1'], /^$/],
    ] as const) {
      const found = await evaluated(bytes, ...flags)
      expect(found.err).toMatch(err)
      expect(found.code).toBe(0)
      expect(chainOf(found.out)).toBe(chainOf(want.out))
    }
  })

  it.each([
    ['utf-16le', Buffer.from(TEXT, 'utf16le')],
    ['utf-16be', utf16be(TEXT)],
  ])('without a mark is refused with the flag to say: %s', async (encoding, bytes) => {
    const found = await evaluated(bytes)
    expect(found).toMatchObject({ code: 2, out: '' })
    expect(found.err).toMatch(
      new RegExp(
        `looks like text in UTF-16: every second byte is 0\\. Say --encoding ${encoding}, or --encoding bytes to read it as it is\\.\\n$`,
      ),
    )
  })

  it('of one byte a character is read as it is, and one sentence says so', async () => {
    const bytes = Buffer.from(TEXT, 'latin1')
    const found = await evaluated(bytes)
    expect(found.err).toMatch(
      /is not UTF-8; its bytes are read as they are\. If it is Latin-1, say --encoding latin1\.\n$/,
    )
    const plain = await evaluated(bytes, '--encoding', 'bytes')
    expect(plain.err).toBe('')
    expect(chainOf(found.out)).toBe(chainOf(plain.out))
  })

  it('is none where bytes have no order, where a character is cut, or where there is nothing', async () => {
    let seed = 1
    const noise = Buffer.from(
      Array.from({ length: 3000 }, () => {
        seed = (seed * 48271) % 2147483647
        return seed % 7 === 0 ? 0 : seed % 256
      }),
    )
    expect((await evaluated(noise)).code).toBe(0)
    // The bytes that are looked at end within a character.
    const long = `${'a'.repeat(4095)}ä${'b'.repeat(100)}`
    expect(await evaluated(Buffer.from(long))).toMatchObject({ code: 0, err: '' })
  })

  it('is known on standard input too, whatever pieces it comes in', async () => {
    const child = spawn(process.execPath, ['src/cli/main.ts', 'watch', '--json', '--top', '0.5'], {
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    const [out, err, ended] = [textOf(child.stdout), textOf(child.stderr), once(child, 'close')]
    const lines = Array.from({ length: 120 }, (_, at) => `lamp ${at % 5} is lit\n`).join('')
    const bytes = Buffer.from(marked(`${lines}über Ω und nichts davor\n`), 'utf16le')
    for (const [from, to] of [
      [0, 1],
      [1, 1001],
      [1001, bytes.length],
    ] as const) {
      child.stdin.write(bytes.subarray(from, to))
      // Each piece is read by itself.
      await new Promise((resolve) => setImmediate(resolve))
    }
    child.stdin.end()
    expect((await ended)[0]).toBe(0)
    expect(await err).toContain('Standard input is text in UTF-16 by its byte order mark; it is read as UTF-8.')
    expect(await out).toContain('über Ω und nichts davor')
  })
})
