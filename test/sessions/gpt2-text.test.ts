/**
 * The published test package of GPT-2, from text to text: prompts cut anywhere, greedy continuations, the tokenizer's
 * end of text.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { openPackage, SessionManager } from '../../src/index.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'

interface Generation {
  readonly text: string
  readonly ids: readonly number[]
  readonly greedy: {
    readonly max_new_tokens: number
    readonly generated: readonly number[]
    readonly text: string
    readonly finish: 'length' | 'eos'
    readonly pastLen: number
  }
}

describe.skipIf(!hasShared)('gpt2-tiny with its tokenizer', () => {
  test.each([1, 5, 1000])('continues its prompts as published, fed %i UTF-16 units at a time', async (size) => {
    const dir = sharedModel('gpt2-tiny')
    const { generations } = JSON.parse(readFileSync(join(dir, 'expected.json'), 'utf8')) as {
      readonly generations: readonly Generation[]
    }
    const warnings: string[] = []
    const { model, tokenizer } = await openPackage(dir, { threads: 2, warn: (message) => warnings.push(message) })
    const manager = new SessionManager(model, { tokenizer })
    try {
      expect(warnings).toHaveLength(1)
      expect(warnings[0]).toMatch(/eos_token_id 3.*"<\/s>" has the id 2/)
      for (const [at, { text, ids, greedy }] of generations.entries()) {
        const session = manager.createSession(`s${at}`)
        for (let from = 0; from < text.length; from += size)
          await manager.process(session, text.slice(from, from + size))
        const { max_new_tokens: maxTokens, generated, finish, pastLen } = greedy
        const said = await manager.generate(session, { maxTokens, temperature: 0 })
        expect(said.ids).toEqual(generated)
        expect(said.text).toBe(greedy.text)
        expect(said.finish).toBe(finish)
        expect(session.pulse).toBe(pastLen)
        expect(pastLen).toBe(ids.length + generated.length)
      }
      expect(generations.map(({ greedy }) => greedy.finish)).toContain('eos')
    } finally {
      await manager.close()
      model.close()
    }
  })
})
