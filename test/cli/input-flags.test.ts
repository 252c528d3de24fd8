import { describe, expect, it } from 'vitest'
import { formatFlag } from '../../src/cli/common.ts'
import { isUsage, parseFlags } from '../../src/cli/flags.ts'
import { inputFlags, rulesOf } from '../../src/cli/input-flags.ts'

const read = (...argv: readonly string[]) => {
  const { values, given } = parseFlags('run', { 'input-format': formatFlag, ...inputFlags }, argv)
  return rulesOf(values, given)
}
const wrong = (...argv: readonly string[]): string => {
  try {
    return `accepted: ${JSON.stringify(read(...argv))}`
  } catch (error) {
    if (isUsage(error)) return (error as Error).message
    throw error
  }
}
const TEXT = ['--input-format', 'text'] as const

describe('the flags of an input', () => {
  it('are rules without a member, as long as nothing is chosen', () => {
    expect(read()).toEqual({})
    expect(read('--key-partitioner', 'murmur2', '--session-from', 'key', '--unknown-fields', 'refuse')).toEqual({})
  })

  it('say each its rule', () => {
    expect(read('--key-partitioner', 'crc32', '--unknown-fields', 'ignore', '--cloudevents')).toEqual({
      partitioner: 'crc32',
      unknownFields: 'ignore',
      cloudEvents: true,
    })
    expect(read('--session-from', 'header:x:y')).toEqual({ session: { is: 'header', name: 'x:y' } })
    expect(read('--session-from', 'partition')).toEqual({ session: { is: 'partition' } })
    expect(
      read(...TEXT, '--generate-every', '5', '--generate-after', '\n\n', '--generate-request', '{"maxTokens":9}'),
    ).toEqual({
      generate: {
        every: 5,
        after: '\n\n',
        // With every default, so that a later version's defaults change nothing.
        request: expect.objectContaining({
          maxTokens: 9,
          temperature: 1,
          topK: 0,
          topP: 1,
          stop: [],
          seed: 0,
          run: 16,
        }),
      },
    })
    expect(read(...TEXT, '--generate-header', 'ask')).toEqual({ generate: { header: 'ask' } })
  })

  it.each([
    [['--session-from', 'topic'], /takes one of key\|partition\|header:NAME\|constant:NAME; "topic" is none/],
    [['--session-from', 'header:'], /"header:" is none/],
    [['--session-from', `constant:${'x'.repeat(513)}`], /is none/],
    [['--session-from', 'partition', '--key-partitioner', 'crc32'], /--key-partitioner goes with --session-from key/],
    [['--generate-every', '2'], /--generate-every goes with --input-format text/],
    [[...TEXT, '--unknown-fields', 'ignore'], /--unknown-fields goes with --input-format json/],
    [[...TEXT, '--generate-every', '2'], /needs --generate-request JSON/],
    [[...TEXT, '--generate-after', '.'], /--generate-after needs --generate-request JSON/],
    [[...TEXT, '--generate-request', '{"maxTokens":1}'], /goes with --generate-every or --generate-after/],
    [[...TEXT, '--generate-every', '2', '--generate-request', '{'], /takes JSON, as .*"\{" is none/],
    [
      [...TEXT, '--generate-every', '2', '--generate-request', '{"maxTokens":0}'],
      /--generate-request cannot be used: maxTokens/,
    ],
    [[...TEXT, '--generate-every', '2', '--generate-request', '{"max":1}'], /--generate-request cannot be used/],
    [
      [...TEXT, '--generate-every', '0', '--generate-request', '{"maxTokens":1}'],
      /--generate-every takes a whole number/,
    ],
    [
      [...TEXT, '--generate-after', 'x'.repeat(300), '--generate-request', '{"maxTokens":1}'],
      /--generate-after cannot be used/,
    ],
  ] as const)('do not go together, or say nothing: %j', (argv, sentence) => {
    expect(wrong(...argv)).toMatch(sentence)
  })
})
