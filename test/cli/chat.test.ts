/**
 * continuo chat in processes of its own: a line is a message, whether it comes at once or after the answer to the one
 * before.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { openPackage } from '../../src/models/open.ts'
import { SessionManager } from '../../src/sessions/manager.ts'
import { randomRwkv7, safetensors, writePackage } from '../engine/packages.ts'
import { continuo, json, start } from './helpers.ts'

const SIZES = { L: 1, H: 1, N: 16, F: 32, V: 260, D: { w: 8, a: 8, v: 6, g: 10 } }
const VOCABULARY = [
  ...Array.from({ length: 256 }, (_, byte) => `${byte + 1} b'\\x${byte.toString(16).padStart(2, '0')}' 1`),
  "257 '\\n\\nUser:' 7",
  "258 ' the' 4",
].join('\n')

/** A random RWKV-7 with a vocabulary in its own form, and other files beside. */
const folder = (files: Readonly<Record<string, string>> = {}): string => {
  const dir = writePackage({ model_type: 'rwkv7' }, safetensors(randomRwkv7(11, SIZES), 'F32'))
  for (const [name, content] of Object.entries({ 'rwkv_vocab_test.txt': VOCABULARY, ...files }))
    writeFileSync(join(dir, name), content)
  return dir
}

interface TurnRow {
  readonly turn: number
  readonly text: string
  readonly finish: string
  readonly fed: number
  readonly generated: number
  readonly pulse: number
  readonly chain: string
  readonly exact: boolean
}

const DRAWN = ['--max-tokens', '24', '--seed', '5', '--threads', '1', '--device', 'cpu']
const rows = (out: string): TurnRow[] =>
  out
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as TurnRow)

test('is one session: what a program feeds and generates turn by turn, with the same chain', async () => {
  const dir = folder()
  const done = await continuo(['chat', '--model', dir, ...DRAWN, '--json'], { input: 'Hello\n\nAgain, at length\n' })
  expect(done).toMatchObject({ code: 0, err: '' })
  const turns = rows(done.out)
  expect(turns.map(({ turn, exact }) => ({ turn, exact }))).toEqual([
    { turn: 1, exact: true },
    { turn: 2, exact: true },
  ])
  const { model, tokenizer } = await openPackage(dir, { threads: 1, keepPacked: false, device: 'cpu' })
  onTestFinished(() => model.close())
  const manager = new SessionManager(model, { tokenizer, verifyWeights: false })
  const session = manager.createSession('same')
  const options = { maxTokens: 24, seed: 5, stop: ['\n\nUser:'] }
  let stopped = false
  for (const [at, message] of ['Hello', 'Again, at length'].entries()) {
    const before = at === 0 || stopped ? '' : '\n\n'
    const text = `${stopped ? '' : `${before}User:`} ${message}\n\nAssistant:`
    const ids = tokenizer!.push('', text)
    await manager.process(session, [...ids.ids, ...tokenizer!.flush(ids.held)])
    const generation = await manager.generate(session, options)
    stopped = generation.finish === 'stop'
    expect(turns[at]).toMatchObject({
      text: stopped ? generation.text.slice(0, -options.stop[0]!.length) : generation.text,
      finish: generation.finish,
      generated: generation.ids.length,
      pulse: session.pulse,
      chain: session.chain,
    })
  }
  await manager.close()
})

test('answers each message before the next one comes, and ends with standard input', async () => {
  const { child, done, saw } = start(['chat', '--model', folder(), ...DRAWN, '--json'], { live: true })
  child.stdin!.write('Hello\n')
  await saw(/"turn":1.*\n/)
  child.stdin!.write('Again\n')
  await saw(/"turn":2.*\n/)
  child.stdin!.end()
  expect((await done).code).toBe(0)
})

test('prints answers as text, says why one was cut, and takes the form of a template', { tags: 'slow' }, async () => {
  const template = "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}{{ 'assistant: ' }}"
  const dir = folder({ 'chat_template.jinja': template })
  const plain = await continuo(['chat', '--model', dir, ...DRAWN, '--system', 'Be brief.'], { input: 'Hello\nAgain' })
  expect(plain.code).toBe(0)
  const told = rows(
    (await continuo(['chat', '--model', dir, ...DRAWN, '--system', 'Be brief.', '--json'], { input: 'Hello\nAgain' }))
      .out,
  )
  expect(plain.out).toBe(told.map(({ text }) => `${text}\n`).join(''))
  expect(told[0]!.fed).toBe('system: Be brief.\nuser: Hello\nassistant: '.length)
  expect(told.map(({ finish }) => finish)).toEqual(['length', 'length'])
  expect(plain.err).toBe('The answer was cut at --max-tokens.\n'.repeat(2))
})

test('draws as the package recommends where that is asked for, but for what a flag says', {
  tags: 'slow',
}, async () => {
  const generation = { do_sample: true, temperature: 0.5, top_k: 3, top_p: 0.9 }
  const dir = folder({ 'generation_config.json': JSON.stringify(generation) })
  const answer = async (...flags: readonly string[]): Promise<string> =>
    rows((await continuo(['chat', '--model', dir, ...DRAWN, '--json', ...flags], { input: 'Hello\n' })).out)[0]!.chain
  const recommended = await answer('--recommended')
  expect(recommended).toBe(await answer('--temperature', '0.5', '--top-k', '3', '--top-p', '0.9'))
  expect(recommended).not.toBe(await answer())
  expect(await answer('--recommended', '--top-k', '1')).toBe(await answer('--temperature', '0.5', '--top-k', '1'))
  const [generated] = await json<{ chain: string }>(
    ...['generate', '--model', dir, '--prompt', 'Hello', '--recommended', '--max-tokens', '16', '--seed', '5'],
  )
  const [same] = await json<{ chain: string }>(
    ...['generate', '--model', dir, '--prompt', 'Hello', '--max-tokens', '16', '--seed', '5'],
    ...['--temperature', '0.5', '--top-k', '3', '--top-p', '0.9'],
  )
  expect(generated!.chain).toBe(same!.chain)
})

test('is refused, in words, where it cannot be', { tags: 'slow' }, async () => {
  const failed = async (files: Readonly<Record<string, string>>, ...flags: readonly string[]): Promise<string> => {
    const { code, out, err } = await continuo(['chat', '--model', folder(files), ...flags], { input: 'Hello\n' })
    expect({ code: code === 0, out }).toEqual({ code: false, out: '' })
    return err
  }
  expect(await failed({}, '--recommended')).toMatch(/has no generation_config.json that recommends how to draw tokens/)
  expect(
    await failed({ 'generation_config.json': '{"do_sample":true,"repetition_penalty":500}' }, '--recommended'),
  ).toMatch(/recommends repetition_penalty 500 in generation_config.json, which cannot be had/)
  expect(await failed({ 'chat_template.jinja': '{% if %}' })).toMatch(/is not Jinja/)
  expect(await failed({}, '--date', 'today')).toMatch(/expected a day as YYYY-MM-DD/)
})
