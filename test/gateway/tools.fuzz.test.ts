/**
 * @module-tag slow
 * Tools and schemas by the hundred thousand, through all that the gateway does with them before it asks a model: each
 * is taken or refused with a sentence, and what is taken has an answer.
 */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { chatRequest, parsedBody } from '../../src/gateway/openai/schema.ts'
import { callsOf } from '../../src/gateway/openai/tools.ts'
import { Refusal } from '../../src/gateway/refusal.ts'
import { openMatcher } from '../../src/grammar/index.ts'
import { callFormOf } from '../../src/models/chat/calls.ts'
import { byteTokenizer } from '../../src/models/tokenizer/bytes.ts'
import { chatTool, toolsOf } from './fuzz-tools.ts'

const FORMS = ['tools <tool_call>', 'tools [TOOL_CALLS]', 'tools <|start_header_id|> "parameters"', ''].map(callFormOf)
const body = fc.record({
  ...toolsOf(chatTool, { type: 'function', function: { name: 'f' } }),
  tools: fc.array(chatTool, { maxLength: 4 }),
})

test('tools and schemas are kept, or refused with a sentence', { timeout: 600_000 }, () => {
  const vocabulary = { vocabSize: 256, tokenizer: byteTokenizer() }
  const seen = { kept: 0, refused: 0 }
  fc.assert(
    fc.property(body, fc.constantFrom(...FORMS), (given, form) => {
      try {
        const messages = [{ role: 'user', content: 'x' }]
        const calls = callsOf(parsedBody(chatRequest, { model: 'm', messages, ...given }), form)
        seen.kept += 1
        // A grammar under which nothing can be drawn at all is refused before it comes so far.
        if (calls !== undefined) expect(openMatcher(calls, vocabulary, [255]).over()).not.toBe('blocked')
      } catch (error) {
        if (!(error instanceof Refusal)) throw error
        expect(error.status).toBe(400)
        expect(error.message).toMatch(/^.{10,2000}\.$/s)
        seen.refused += 1
      }
    }),
    { numRuns: 100_000, seed: 20_261_130 },
  )
  expect(Math.min(seen.kept, seen.refused)).toBeGreaterThan(10_000)
})
