/**
 * A session moves between a log and a program, by export and import, and goes on as if it had stayed.
 *
 * @module-tag slow
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, expect, it } from 'vitest'
import { byteTokenizer } from '../../src/models/tokenizer/index.ts'
import type { Generated } from '../../topics/tokens.ts'
import { continuo, json, MODEL, recordsOf, runUntilIdle, sessionRow, temporary, valuesOf } from '../cli/helpers.ts'
import { open } from '../engine/helpers.ts'
import { managed } from './helpers.ts'

const folder = temporary()
const log = `file:${join(folder, 'log.db')}`
const first = 'The snow came early. '
const then = 'Nobody went out.'
const request = { maxTokens: 40, temperature: 0.7, seed: 11 }
const asked = ['--generate', '40', '--request-id', 'r', '--temperature', '0.7', '--seed', '11']

/** Feeds text to a session of a log and lets it continue. */
const told = async (url: string, session: string, text: string, ...more: readonly string[]): Promise<void> => {
  const file = join(folder, 'text')
  writeFileSync(file, text)
  await json('feed', file, '--log', url, '--session', session, ...more)
  expect(await runUntilIdle(url)).toMatchObject({ code: 0 })
}
const textOf = async (url: string): Promise<string> =>
  valuesOf<Generated>(await recordsOf(url, 'continuo.tokens'))
    .map(({ text }) => text)
    .join('')

let exported = ''
beforeAll(async () => {
  await told(log, 's', first)
  exported = join(folder, 's.safetensors')
  await json('export', '--log', log, '--session', 's', exported)
  await told(log, 's', then, ...asked)
})

it('from a log to a program', async () => {
  const model = await open(MODEL, { threads: 2 })
  const manager = managed(model, { tokenizer: byteTokenizer() })
  const session = await manager.resumeSession(readFileSync(exported))
  await manager.process(session, then)
  const { text } = await manager.generate(session, request)
  const { pulse, chain, tokens, generated } = await sessionRow(log, 's')
  expect(session.head).toMatchObject({ chain, conductor: { globalStep: pulse }, totals: { tokens, generated } })
  expect(text).toBe(await textOf(log))
})

it('from a program to a log', async () => {
  const model = await open(MODEL, { threads: 2 })
  const manager = managed(model, { tokenizer: byteTokenizer() })
  const session = manager.createSession('begun here')
  await manager.process(session, first)
  const file = join(folder, 'begun.safetensors')
  writeFileSync(file, await manager.checkpointSession(session, { topic: 'pages', offset: 7 }))
  const other = `file:${join(folder, 'other.db')}`
  const done = await continuo(['import', '--log', other, '--session', 's', file, '--model', MODEL])
  expect(done, done.err).toMatchObject({ code: 0 })
  await told(other, 's', then, ...asked)
  expect((await sessionRow(other, 's')).chain).toBe((await sessionRow(log, 's')).chain)
  expect(await textOf(other)).toBe(await textOf(log))
  expect(await continuo(['verify', '--log', other, '--model', MODEL])).toMatchObject({ code: 0 })
})
