import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { type Flags, list, on, optional, parseFlags, text, whole } from '../../src/cli/flags.ts'
import { readSettings, variableOf } from '../../src/cli/settings.ts'
import { messageOf } from '../../src/errors.ts'
import { continuo, temporary } from './helpers.ts'

const TABLE = {
  log: optional('URL', 'the log'),
  threads: whole('N', 'threads', 2, { min: 1, max: 8 }),
  group: text('ID', 'group', 'continuo'),
  stop: list('TEXT', 'end'),
  'from-beginning': on('all'),
  'seal-key': optional('FILE', 'key'),
} satisfies Flags

const folder = temporary()
let files = 0
/** The environment that names a file with this content. */
const fileOf = (content: unknown): NodeJS.ProcessEnv => {
  files += 1
  const path = join(folder, `${files}.json`)
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content))
  return { CONTINUO_CONFIG: path }
}

const parse = (env: NodeJS.ProcessEnv, ...argv: string[]) => {
  const settings = readSettings(env)
  settings.check('tail', TABLE)
  return parseFlags('tail', TABLE, argv, (name, flag) => settings.of('tail', name, flag))
}
const refusal = (env: NodeJS.ProcessEnv): string => {
  try {
    parse(env)
  } catch (error) {
    return messageOf(error)
  }
  return expect.fail('the settings were accepted')
}

describe('settings', () => {
  it('overrule defaults: the file, in it the part of the command, the environment, the command line, each the ones before', () => {
    const shared = { threads: 3 }
    const own = { ...shared, tail: { threads: 4 }, run: { threads: 8 } }
    expect(parse({}).values.threads).toBe(2)
    expect(parse(fileOf(shared)).values.threads).toBe(3)
    expect(parse(fileOf(own)).values.threads).toBe(4)
    expect(parse({ ...fileOf(own), CONTINUO_THREADS: '5' }).values.threads).toBe(5)
    expect(parse({ ...fileOf(own), CONTINUO_THREADS: '5' }, '--threads', '6').values.threads).toBe(6)
  })

  it('reach every kind of flag', () => {
    const said = { log: 'file:x', stop: ['a', 'b'], 'from-beginning': true, group: 'g' }
    expect(parse(fileOf(said)).values).toMatchObject(said)
    const env = { CONTINUO_LOG: 'file:x', CONTINUO_STOP: 'a,b', CONTINUO_FROM_BEGINNING: '1' }
    expect(parse(env).values).toMatchObject({ log: 'file:x', stop: ['a,b'], 'from-beginning': true })
    expect(variableOf('from-beginning')).toBe('CONTINUO_FROM_BEGINNING')
    const off = { ...fileOf(said), CONTINUO_FROM_BEGINNING: 'false', CONTINUO_LOG: '' }
    expect(parse(off).values).toMatchObject({ 'from-beginning': false, log: 'file:x' })
  })

  it('are not what the user wrote on the command line, but no defaults either', () => {
    const { given, set } = parse({ CONTINUO_THREADS: '5' }, '--group', 'g')
    expect([[...given], [...set].sort()]).toEqual([['group'], ['group', 'threads']])
  })

  it('leave CONTINUO_SEAL_KEY what it is: a key, and not the file of one', () => {
    expect(parse({ CONTINUO_SEAL_KEY: 'k' }).values['seal-key']).toBeUndefined()
    expect(parse(fileOf({ 'seal-key': 'file' })).values['seal-key']).toBe('file')
  })

  it.each([
    [
      { CONTINUO_THREADS: 'x' },
      '--threads takes a whole number from 1 to 8; "x" is none. The value is that of CONTINUO_THREADS.',
    ],
    [{ CONTINUO_FROM_BEGINNING: 'yes' }, 'CONTINUO_FROM_BEGINNING: from-beginning is true or false; "yes" is neither.'],
    [{ CONTINUO_CONFIG: '/nowhere/c.json' }, '/nowhere/c.json cannot be read (ENOENT).'],
    [fileOf({ threads: 99 }), '--threads takes a whole number from 1 to 8; "99" is none. The value is that of '],
    [fileOf({ log: true }), 'log takes URL; this is neither text nor a number.'],
    [fileOf({ tail: { treads: 4 } }), 'in "tail": treads is no flag; did you mean threads?'],
    [fileOf('{ log: 1 }'), 'is no JSON'],
    [fileOf('[]'), 'holds no object'],
    [fileOf(`"${'x'.repeat(2 ** 20)}"`), 'a file of settings has 1048576 at most'],
  ])('refuse %j', (env, sentence) => {
    expect(refusal(env)).toContain(sentence)
  })

  it('serve the commands, hide the passwords in what they say, and are silent where the demo runs', {
    tags: 'slow',
  }, async () => {
    const env = fileOf({ log: 'kafka://user:secret@127.0.0.1:1/x', 'chunk-bytes': 4096 }) as Record<string, string>
    const missing = { ...env, CONTINUO_LOG: `file:${join(folder, 'none.db')}` }
    expect((await continuo(['sessions'], { env: missing })).err).toContain(join(folder, 'none.db'))
    const { code, out, err } = await continuo(['doctor', '--json'], { env })
    expect(code).toBe(1)
    expect(out + err).not.toContain('secret')
    const typo = fileOf({ lag: 'file:x' }) as Record<string, string>
    expect(await continuo(['sessions'], { env: typo })).toMatchObject({
      code: 2,
      err: `${typo.CONTINUO_CONFIG}: lag is no flag; did you mean log?\n`,
    })
    const demo = await continuo(['demo', '--document', 'none.txt', '--json', '--log', `file:${join(folder, 'd.db')}`], {
      env,
    })
    expect(demo.err).toContain('none.txt')
  })
})
