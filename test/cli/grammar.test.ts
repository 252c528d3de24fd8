/**
 * continuo generate under a grammar, in processes of its own.
 *
 * @module-tag slow
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { judge } from '../grammar/schemas.ts'
import { continuo, json, MODEL, temporary } from './helpers.ts'

const PROMPT = ['--model', MODEL, '--prompt', 'The answer: ', '--seed', '4']

test('generate binds its text by a schema, a grammar or a regular expression', async () => {
  const folder = temporary()
  const schema = { type: 'object', properties: { sea: { enum: ['calm', 'rough'] } }, required: ['sea'] }
  const [schemaFile, grammarFile] = [join(folder, 'schema.json'), join(folder, 'answer.gbnf')]
  writeFileSync(schemaFile, JSON.stringify(schema, null, 2))
  writeFileSync(grammarFile, 'root ::= "yes" | "no"\n')
  const given = (...flags: readonly string[]) => json<{ text: string; finish: string }>('generate', ...PROMPT, ...flags)
  const [bySchema] = await given('--json-schema', schemaFile)
  expect([bySchema!.finish, judge(schema)(JSON.parse(bySchema!.text))]).toEqual(['grammar', null])
  const [byGrammar] = await given('--grammar', grammarFile)
  expect([byGrammar!.finish, ['yes', 'no'].includes(byGrammar!.text)]).toEqual(['grammar', true])

  for (const [flags, sentence] of [
    [['--grammar', grammarFile, '--regex', 'a'], /One grammar binds what is generated: --grammar or --regex\./],
    [['--json-schema', join(folder, 'none')], /--json-schema: .*none cannot be read/],
    [['--json-schema', grammarFile], /answer\.gbnf is not JSON that can be read/],
    [['--grammar', schemaFile], /--grammar: The grammar cannot be read: expected the name of a rule/],
    [['--regex', '('], /--regex: The regular expression cannot be used/],
  ] as const) {
    const refused = await continuo(['generate', ...PROMPT, ...flags])
    expect([refused.code, refused.err]).toEqual([2, expect.stringMatching(sentence)])
  }
}, 60_000)
