import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  choice,
  formerly,
  isUsage,
  list,
  needed,
  on,
  optionalWhole,
  parseFlags,
  real,
  refuseIdle,
  whole,
} from '../../src/cli/flags.ts'
import { codeOf, messageOf } from '../../src/errors.ts'

const TABLE = {
  log: needed('URL', 'the log'),
  session: needed('ID', 'the session'),
  'chunk-bytes': whole('N', 'size', 64, { min: 4, max: 1000 }),
  temperature: real('T', 'heat', 1, { min: 0 }),
  generate: optionalWhole('N', 'tokens', { min: 1 }),
  topic: choice(['tokens', 'observations'], 'which', 'tokens'),
  stop: list('TEXT', 'end'),
  close: on('end the session'),
}
const NEEDED = ['--log', 'file:x', '--session', 's']

const refusal = (...argv: string[]): string => {
  try {
    parseFlags('feed', TABLE, argv)
  } catch (error) {
    expect(isUsage(error)).toBe(true)
    expect(codeOf(error)).toBe('INVALID')
    return messageOf(error)
  }
  return expect.fail(`${argv.join(' ')} was accepted`)
}

describe('flags', () => {
  it('fills in defaults and leaves out what was not given', () => {
    expect(parseFlags('feed', TABLE, NEEDED).values).toEqual({
      log: 'file:x',
      session: 's',
      'chunk-bytes': 64,
      temperature: 1,
      generate: undefined,
      topic: 'tokens',
      stop: [],
      close: false,
    })
  })

  it('keeps positionals in order wherever they stand', () => {
    expect(parseFlags('feed', TABLE, ['a', ...NEEDED, 'b', '--', '--c']).args).toEqual(['a', 'b', '--c'])
  })

  it.each([
    [['--sesion', 'x'], 'Unknown flag --sesion; did you mean --session?'],
    [['--chunkBytes', '5'], 'Unknown flag --chunkBytes; did you mean --chunk-bytes?'],
    [['--temprature', '1'], 'Unknown flag --temprature; did you mean --temperature?'],
    [['--xyzzy'], 'Unknown flag --xyzzy; "continuo feed --help" lists the flags.'],
    [['--toString'], 'Unknown flag --toString; "continuo feed --help" lists the flags.'],
    [[...NEEDED, '--chunk-bytes', '3'], '--chunk-bytes takes a whole number from 4 to 1000; "3" is none.'],
    [[...NEEDED, '--chunk-bytes', '1e3x'], '--chunk-bytes takes a whole number from 4 to 1000; "1e3x" is none.'],
    [[...NEEDED, '--generate', '1.5'], '--generate takes a whole number from 1 to 2^53-1; "1.5" is none.'],
    [
      [...NEEDED, '--generate', '9007199254740992'],
      '--generate takes a whole number from 1 to 2^53-1; "9007199254740992" is none.',
    ],
    [[...NEEDED, '--temperature', '-1'], '--temperature takes a number from 0 on; "-1" is none.'],
    [[...NEEDED, '--temperature', 'NaN'], '--temperature takes a number from 0 on; "NaN" is none.'],
    [[...NEEDED, '--topic', 'token'], '--topic is one of tokens, observations; "token" is none of them.'],
    [[...NEEDED, '--generate'], '--generate needs a value: --generate N.'],
    [
      ['--log', '--session', 's'],
      '--log needs a value and is followed by --session. If that is the value, write --log=--session.',
    ],
    [[...NEEDED, '--log', 'y'], '--log was given twice; say it once.'],
    [[...NEEDED, '--close=yes'], '--close takes no value; "yes" was given.'],
    [['--log', 'file:x'], 'continuo feed needs --session ID: the session.'],
    [['--log', '', '--session', 's'], '--log needs a value, this one is empty.'],
  ])('refuses %j with a sentence that says what to write', (argv, sentence) => {
    expect(refusal(...argv)).toBe(sentence)
  })

  it('knows what was given from what is a default, even where both say the same', () => {
    const { given } = parseFlags('feed', TABLE, [...NEEDED, '--chunk-bytes=64', '--close'])
    expect([...given].sort()).toEqual(['chunk-bytes', 'close', 'log', 'session'])
    expect(() => refuseIdle(given, ['temperature', 'stop'], '--generate N')).not.toThrow()
    expect(() => refuseIdle(given, ['temperature', 'chunk-bytes'], 'FILE')).toThrow(
      '--chunk-bytes goes with FILE; here it would do nothing.',
    )
  })

  it('reads back every value it was given, inline or not', () => {
    fc.assert(
      fc.property(
        fc.string({ minLength: 1 }),
        fc.integer({ min: 4, max: 1000 }),
        fc.float({ min: 0, noNaN: true, noDefaultInfinity: true }),
        fc.array(fc.string()),
        (session, size, temperature, stops) => {
          const argv = [
            '--log=file:x',
            `--session=${session}`,
            '--chunk-bytes',
            String(size),
            '--temperature',
            String(temperature),
            ...stops.map((stop) => `--stop=${stop}`),
          ]
          const { values } = parseFlags('feed', TABLE, argv)
          expect(values).toMatchObject({
            session,
            'chunk-bytes': size,
            temperature: Math.abs(temperature),
            stop: stops,
          })
        },
      ),
    )
  })

  it('takes a flag by its former name, too, and says which flag that is now', () => {
    const table = { size: formerly('bulk', whole('N', 'size', 64, { min: 4 })), rest: on('rest') }
    expect(parseFlags('x', table, ['--bulk', '7'])).toMatchObject({ values: { size: 7 }, given: new Set(['size']) })
    expect(parseFlags('x', table, ['--size=8']).values.size).toBe(8)
    expect(() => parseFlags('x', table, ['--bulk', '7', '--size', '8'])).toThrow('--size was given twice; say it once.')
    expect(() => parseFlags('x', table, ['--bulk', '3'])).toThrow('--size takes a whole number from 4')
  })
})
