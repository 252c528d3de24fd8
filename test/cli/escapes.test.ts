/**
 * What comes from outside and is printed does not command the terminal of who reads it.
 *
 * @module-tag slow
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { continuo, MODEL, ROOT, temporary } from './helpers.ts'

// Clears the screen, sets the title, rings, colours with one byte, turns the letters round, forges a row.
const EVIL = 'mole\u001b[2J\u001b]0;owned\u0007\u009b31m\u202enam\u2066\r\nforged  0  open'
const LONG = `long-${'x'.repeat(500)}`
const log = `file:${join(temporary(), 'log.db')}`

/** `script` of util-linux gives a command a terminal. */
const hasTerminals = spawnSync('script', ['-qec', 'true', '/dev/null']).status === 0
const quoted = (word: string): string => `'${word.replaceAll("'", `'\\''`)}'`
const onTerminal = (args: readonly string[]): string => {
  const line = [process.execPath, join(ROOT, 'src', 'cli', 'main.ts'), ...args].map(quoted).join(' ')
  return execFileSync('script', ['-qec', `${line} || true`, '/dev/null'], {
    cwd: ROOT,
    encoding: 'utf8',
    input: '',
    maxBuffer: 1 << 26,
  }).replaceAll('\r\n', '\n')
}

/** Our own styles, and how a line of progress is cleared. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it is about.
const OWN = /\u001b\[\d{1,2}m|\r\u001b\[2K/g
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it is about.
const COMMAND = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g
const commandsIn = (text: string): readonly string[] => text.replace(OWN, '').match(COMMAND) ?? []

const ends = ['--from-beginning', '--until-idle', '0']
const COMMANDS: readonly (readonly [name: string, args: readonly string[]])[] = [
  ['sessions', ['sessions', '--log', log]],
  ['sessions --health', ['sessions', '--log', log, '--health']],
  ['sessions --json', ['sessions', '--log', log, '--json']],
  ['deadletters', ['deadletters', '--log', log]],
  ['deadletters --json', ['deadletters', '--log', log, '--json']],
  ...['tokens', 'observations', 'deadletters', 'chunks'].map(
    (topic) => [`tail ${topic}`, ['tail', '--log', log, '--topic', topic, ...ends]] as const,
  ),
  ['tail of nothing', ['tail', '--log', log, '--session', `${EVIL}?`, ...ends]],
  ['verify', ['verify', '--log', log, '--model', MODEL]],
  ['doctor', ['doctor', '--log', log]],
  ['cancel', ['cancel', EVIL, '--log', log, '--session', EVIL]],
  ['export', ['export', '--log', log, '--session', `${EVIL}?`, join(temporary(), 'x')]],
  ['delete', ['delete', `${EVIL}?`, '--log', log]],
  ['a file that is not there', ['watch', join(temporary(), EVIL)]],
]

describe('on a terminal', () => {
  beforeAll(async () => {
    const feed = async (...args: readonly string[]) =>
      expect(await continuo(['feed', '-', '--log', log, ...args], { input: `So ${EVIL} it was. ` })).toMatchObject({
        code: 0,
      })
    await feed('--session', EVIL, '--generate', '3', '--request-id', EVIL)
    await feed('--session', LONG)
    // A fork of a session that is not there, and the same request again: dead letters that name them.
    await feed('--session', 'fork', '--from', `${EVIL}!`)
    await feed('--session', EVIL, '--generate', '3', '--request-id', EVIL)
    const worker = ['run', '--log', log, '--model', MODEL, '--until-idle', '50', '--log-level', 'info']
    const shown = hasTerminals ? onTerminal(worker) : ''
    if (!hasTerminals) expect(await continuo(worker)).toMatchObject({ code: 0 })
    expect(commandsIn(shown)).toEqual([])
  }, 60_000)

  test.skipIf(!hasTerminals).each(COMMANDS)('%s', (_, args) => {
    const shown = onTerminal(args)
    expect(commandsIn(shown)).toEqual([])
    expect(shown.trim()).not.toBe('')
    // A row begins with what stands there, and no row is as long as an id can be.
    if (args[0] === 'sessions' || args[0] === 'deadletters') expect(shown).not.toMatch(/^forged/m)
    if (!args.includes('--json')) for (const row of shown.split('\n')) expect(row.length).toBeLessThan(500)
  })

  test('a pipe gets every byte in JSON', async () => {
    const { out } = await continuo(['sessions', '--log', log, '--json'])
    const sessions = out
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { session: string }).session)
    expect(sessions).toEqual(expect.arrayContaining([EVIL, LONG]))
  })
})
