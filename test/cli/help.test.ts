import { describe, expect, it } from 'vitest'
import { COMMANDS } from '../../src/cli/commands/index.ts'
import { continuo, DOCUMENT, MODEL, temporary } from './helpers.ts'

/** What `continuo NAME --help` prints, and without a name `continuo --help`. */
const helpOf = (name: string) => continuo(name === '' ? ['--help'] : [name, '--help'])

describe('continuo', () => {
  it.each(COMMANDS.map(({ name }) => name))('%s --help explains itself with an example', async (name) => {
    const { code, out, err } = await helpOf(name)
    expect({ code, err }).toEqual({ code: 0, err: '' })
    expect(out).toMatch(new RegExp(`^continuo ${name}\\b`))
    expect(out).toMatch(new RegExp(`Examples?:\n  continuo ${name}\\b`))
    expect(out).toContain('--json')
    for (const line of out.split('\n')) expect(line).not.toMatch(/undefined|\[object|NaN/)
  })

  it.each([
    '',
    ...COMMANDS.map(({ name }) => name),
  ])('%s --help says what a pulse is where it names one', async (name) => {
    const { out } = await helpOf(name)
    const named = /\bpulse/i.test(out)
    if (['', 'run', 'sessions', 'verify', 'demo'].includes(name)) expect(named).toBe(true)
    expect(out.match(/pulse is one token read or written/g) ?? []).toHaveLength(named ? 1 : 0)
  })

  it('says of --input-topic what the command does with it', async () => {
    expect((await helpOf('feed')).out).toMatch(/--input-topic TOPIC +write to this topic/)
    expect((await helpOf('topics')).out).toMatch(/--input-topic TOPIC +create this topic/)
  })

  it.each([
    'run',
    'eval',
    'generate',
    'verify',
    'bench',
    'export',
    'import',
  ])('%s takes --device, which is auto where nothing is said', async (name) => {
    const { out } = await helpOf(name)
    expect(out).toMatch(/--device auto\|cpu\|cuda +where the model runs, with the same bits: .* \(default auto\)/)
  })

  it('says why CUDA cannot be used, and what to do, where --device cuda asks for it', async () => {
    const asked = await continuo(['eval', DOCUMENT, '--model', MODEL, '--device', 'cuda'])
    expect(asked).toMatchObject({ code: 1, out: '' })
    expect(asked.err).toMatch(/^CUDA cannot be used: .+ "auto" takes the CPU .+\n$/)
  })

  it('lists every command with --help, and without a command says so on stderr', async () => {
    const asked = await helpOf('')
    expect(asked.code).toBe(0)
    for (const { name, summary } of COMMANDS) expect(asked.out).toContain(` ${name.padEnd(11)} ${summary}`)
    // All of them on a terminal of the least size that people have, with a row for the prompt.
    const rows = asked.out.trimEnd().split('\n')
    expect(rows.length).toBeLessThanOrEqual(23)
    for (const row of rows) expect(row.length, row).toBeLessThanOrEqual(80)
    const bare = await continuo([])
    expect(bare).toMatchObject({ code: 2, out: '' })
    expect(bare.err).toBe(asked.out)
  })

  it('names the command that was meant', async () => {
    expect(await continuo(['sesions'])).toMatchObject({
      code: 2,
      err: 'Unknown command sesions; did you mean sessions?\n',
    })
  })

  it('names the flag that was meant', async () => {
    expect(await continuo(['feed', 'x', '--sesion', 'a'])).toMatchObject({
      code: 2,
      out: '',
      err: 'Unknown flag --sesion; did you mean --session?\n',
    })
  })

  const WRONG: readonly [string[], string][] = [
    [['run', '--model', MODEL], 'continuo run needs --log URL'],
    [['run', '--log', 'sqlite:x', '--model', MODEL], 'A log URL begins with file: or kafka://'],
    [
      ['run', '--log', 'file:x.db', '--model', MODEL, '--device', 'gpu'],
      '--device is one of auto, cpu, cuda; "gpu" is none of them.',
    ],
    [['eval', '--model', MODEL], 'continuo eval needs FILE'],
    [['eval', 'a', 'b', '--model', MODEL], '"b" is too much'],
    [['sessions', 'a', '--log', 'file:x.db'], 'takes flags only'],
    [['topics', 'aply'], 'Did you mean apply?'],
    [['topics', 'list'], 'needs --log URL'],
    [['topics', 'schema', 'chunk'], 'The topics are chunks,'],
    [['feed', '--log', 'file:x.db', '--session', 's'], 'needs a FILE'],
    [['feed', '.', '--log', 'file:x.db', '--session', 's'], 'is a folder'],
    [['feed', '--log', 'file:x.db', '--session', 's', '--generate', '5', '--top-p', '0'], 'topP'],
    ...['request-id', 'temperature', 'top-p', 'top-k', 'seed', 'stop'].map((flag): [string[], string] => [
      ['feed', 'x', '--log', 'file:x.db', '--session', 's', `--${flag}`, '1'],
      `--${flag} goes with --generate N;`,
    ]),
    [
      ['feed', '--log', 'file:x.db', '--session', 's', '--close', '--chunk-bytes', '65536'],
      '--chunk-bytes goes with a FILE',
    ],
    [['topics', 'list', '--log', 'file:x.db', '--partitions', '2'], '--partitions goes with continuo topics apply;'],
    [['topics', 'schema', '--partitions', '2'], '--partitions goes with continuo topics apply;'],
    [['topics', 'schema', '--log', 'file:x.db'], '--log goes with continuo topics apply and list;'],
    [['topics', 'schema', '--input-topic', 't'], '--input-topic goes with continuo topics apply and list;'],
    [
      ['run', '--log', 'file:x.db', '--model', MODEL, '--metrics-host', '127.0.0.1'],
      '--metrics-host goes with --metrics-port P;',
    ],
    [['doctor', '--input-topic', 't'], '--input-topic goes with --log URL;'],
    ...[
      ['threads', '1'],
      ['device', 'cpu'],
    ].map(([flag, value]): [string[], string] => [
      ['export', 'x', '--log', 'file:x.db', '--session', 's', `--${flag}`, value!],
      `--${flag} goes with --model DIR;`,
    ]),
  ]
  it.each(WRONG)('ends with 2 and a sentence for %j', async (line, part) => {
    const { code, out, err } = await continuo(line)
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(err).toContain(part)
    expect(err.trim().split('\n')).toHaveLength(1)
  })

  it('shows a stack only when asked', async () => {
    const missing = ['eval', `${temporary()}/nothing.txt`, '--model', MODEL]
    const quiet = await continuo(missing)
    expect(quiet.code).toBe(1)
    expect(quiet.err).not.toContain('    at ')
    const loud = await continuo(missing, { env: { CONTINUO_DEBUG: '1' } })
    expect(loud.code).toBe(1)
    expect(loud.err).toContain('    at ')
  })
})
