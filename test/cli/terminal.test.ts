/**
 * Small things of a first hour: pages as wide as the terminal, how much of the input is left, names that are wrong, a
 * prompt from a pipe.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { openSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import fc from 'fast-check'
import { beforeAll, describe, expect, test } from 'vitest'
import { wrapped } from '../../src/cli/command.ts'
import { COMMANDS } from '../../src/cli/commands/index.ts'
import { remainingText } from '../../src/cli/remaining.ts'
import { continuo, MODEL, ROOT, temporary } from './helpers.ts'

describe('a page for a terminal', () => {
  const words = (page: string): readonly string[] => page.split(/\s+/)

  test.each([60, 80, 120])('of %i columns has no longer line, and every word', { tags: 'slow' }, async (width) => {
    for (const { name, load } of COMMANDS) {
      const { help } = await load()
      const page = wrapped(help, width)
      expect(words(page)).toEqual(words(help))
      const long = page.split('\n').filter((row) => row.length > width && !row.startsWith('  continuo '))
      expect({ name, long }).toEqual({ name, long: [] })
    }
  })

  test('goes on below the text, not below the name of the flag', () => {
    const page = `  --model DIR                ${'word '.repeat(20)}end`
    const [first, ...rest] = wrapped(page, 60).split('\n')
    expect(first).toMatch(/^ {2}--model DIR +word/)
    expect(rest.length).toBeGreaterThan(1)
    for (const row of rest) expect(row).toMatch(/^ {29}\S/)
  })

  test('keeps what is no long line as it is', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ maxLength: 60 }), { maxLength: 5 }), (rows) => {
        const page = rows.map((row) => row.replaceAll('\n', ' ')).join('\n')
        expect(wrapped(page, 60)).toBe(page)
      }),
    )
  })
})

test.each([
  [0, 0, 5, null],
  [10, 0, 5, null],
  [0, 78, 1, '0% of 78 records'],
  [39, 39, 10, '50% of 78 records, 10 s left'],
  [1, 999, 2, '0% of 1,000 records, 33 min left'],
  [1000, 9_000_000, 3, '0% of 9,001,000 records, 8 h left'],
])('%i records done and %i left in %i s are: %s', (done, left, seconds, said) => {
  expect(remainingText(done, left, seconds)).toBe(said)
})

describe('the command line', () => {
  const log = `file:${temporary()}/log.db`
  beforeAll(async () => {
    expect((await continuo(['topics', 'apply', '--log', log])).code).toBe(0)
  })

  test('says that nothing came of a session that is not there', async () => {
    const args = ['tail', '--log', log, '--session', 'typo', '--from-beginning', '--until-idle', '0']
    expect(await continuo(args)).toMatchObject({
      code: 0,
      out: '',
      err: 'Nothing of session "typo" is in continuo.tokens yet. continuo sessions lists the sessions that there are.\n',
    })
    expect(await continuo([...args, '--json'])).toMatchObject({ code: 0, out: '' })
  })

  test('names a short flag as it was written', async () => {
    const { code, err } = await continuo(['tail', '--log', log, '-n', '5'])
    expect({ code, err }).toEqual({ code: 2, err: 'Unknown flag -n; "continuo tail --help" lists the flags.\n' })
  })

  test('reads a prompt from standard input, the same as from its flag, characters cut nowhere', {
    tags: 'slow',
  }, async () => {
    const prompt = `The harbour master wrote: ${'ä'.repeat(700)}`
    const generate = (given: string, input?: string) =>
      continuo(
        ['generate', '--model', MODEL, '--prompt', given, '--max-tokens', '20', '--temperature', '0', '--json'],
        input === undefined ? {} : { input },
      )
    const [piped, written] = await Promise.all([generate('-', prompt), generate(prompt)])
    expect(piped.code, piped.err).toBe(0)
    expect(JSON.parse(piped.out)).toEqual(JSON.parse(written.out))
    expect(await generate('-', '')).toMatchObject({
      code: 2,
      err: '--prompt - reads standard input, and nothing came from there.\n',
    })
  })
})

test('a slow reader of stderr gets all of it before the command ends', { tags: 'slow' }, async () => {
  // Node writes megabytes about the modules that it loads, far more than a pipe holds.
  const command = (stderr: 'pipe' | number) =>
    spawn(process.execPath, [join('src', 'cli', 'main.ts'), 'run', '--help'], {
      cwd: ROOT,
      env: { ...process.env, NODE_DEBUG: 'esm' },
      stdio: ['ignore', 'pipe', stderr],
    })
  const file = join(temporary(), 'stderr')
  const toFile = command(openSync(file, 'w'))
  await once(toFile.stdout!.resume(), 'close')
  const toPipe = command('pipe')
  // The command has written everything once its page is there.
  await once(toPipe.stdout!, 'data')
  let said = ''
  for await (const text of toPipe.stderr!.setEncoding('utf8')) said += text
  const anyProcess = (text: string) => text.replaceAll(/^ESM \d+:/gm, 'ESM:').length
  expect(said.length).toBeGreaterThan(2 ** 20)
  expect(anyProcess(said)).toBe(anyProcess(readFileSync(file, 'utf8')))
})

describe('a build that takes minutes', () => {
  // JavaScript, because it runs before a compiler of TypeScript is there.
  const tool = pathToFileURL(join(ROOT, 'tools', 'build-progress.mjs')).href

  test.each([
    ['[ 12%] Building\n[ 42%] Building CXX object a.o\n', 42],
    ['[1/60] a\n[15/60] b', 25],
    ['-- Configuring done', null],
  ])('%j is at %s per cent', async (text, percent) => {
    const { percentIn } = (await import(tool)) as { readonly percentIn: (text: string) => number | null }
    expect(percentIn(text)).toBe(percent)
  })

  test('says how far it is while its thread waits', async () => {
    const file = `${temporary()}/build.log`
    writeFileSync(file, '[ 42%] Building')
    const script = `
      const { tellProgress } = await import(${JSON.stringify(tool)})
      const told = tellProgress('compiling', ${JSON.stringify(file)}, 5)
      require('node:child_process').spawnSync('head', ['-n', '1'], { stdio: ['inherit', 'ignore', 'inherit'] })
      told()`
    const child = spawn(process.execPath, ['--input-type=commonjs', '--eval', `(async () => {${script}})()`], {
      stdio: ['pipe', 'ignore', 'pipe'],
    })
    let said = ''
    child.stderr.on('data', (bytes) => {
      said += bytes
    })
    await expect.poll(() => said, { timeout: 60_000 }).toBe('compiling: 42%\n')
    child.stdin.end('\n')
    expect(await once(child, 'close')).toEqual([0, null])
  })
})
