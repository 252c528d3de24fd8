/**
 * What the fuzz tests of the gateway send in places: texts, values that are mostly right, tools with their schemas and
 * choices.
 */
import fc from 'fast-check'

export const word = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.constantFrom('\ud800', '', '\0', '\ufdd0', '<|im_end|>'),
)

/** What stands in place of a value: mostly right, else nearly right or anything. */
export const value = (right: readonly unknown[], nearly: readonly unknown[] = [null]): fc.Arbitrary<unknown> =>
  fc.oneof(
    { weight: 20, arbitrary: fc.constantFrom(...right) },
    { weight: 1, arbitrary: fc.constantFrom(...nearly) },
    { weight: 1, arbitrary: fc.jsonValue({ maxDepth: 3 }) },
  )

/** Schemas, right ones and what looks like one. */
export const schema = fc.oneof(
  { weight: 3, arbitrary: fc.constant({ type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] }) },
  fc.dictionary(
    fc.constantFrom(
      'type',
      'properties',
      'items',
      'enum',
      'const',
      'anyOf',
      'allOf',
      '$ref',
      '$defs',
      'pattern',
      'not',
    ),
    fc.oneof(fc.constantFrom('object', 'array', '#', '#/$defs/x', '(', {}), fc.jsonValue({ maxDepth: 4 })),
  ),
  fc.jsonValue({ maxDepth: 3 }),
)
const called = fc.record(
  {
    name: value(['f', 'g', 'long_name-7'], ['', 'a b', 'é']),
    description: word,
    parameters: schema,
    strict: value([true]),
  },
  { requiredKeys: ['name'] },
)
export const chatTool = fc.oneof(
  { weight: 9, arbitrary: called.map((tool) => ({ type: 'function', function: tool })) },
  fc.jsonValue({ maxDepth: 3 }),
)
export const responseTool = fc.oneof(
  { weight: 9, arbitrary: called.map((tool) => ({ type: 'function', ...tool })) },
  fc.jsonValue({ maxDepth: 3 }),
)
export const toolsOf = (tool: fc.Arbitrary<unknown>, right: unknown) => ({
  tools: fc.oneof(
    { weight: 12, arbitrary: fc.constantFrom([right], [], null) },
    { weight: 3, arbitrary: fc.array(tool, { maxLength: 3 }) },
  ),
  tool_choice: fc.oneof(
    { weight: 20, arbitrary: fc.constantFrom('none', 'auto') },
    fc.constantFrom('required', { type: 'function', function: { name: 'f' } }, { type: 'function', name: 'f' }),
    fc.jsonValue({ maxDepth: 3 }),
  ),
  parallel_tool_calls: value([true, false]),
})

/** Of Anthropic's clients. */
const messageTool = fc.oneof(
  {
    weight: 9,
    arbitrary: fc.record(
      {
        name: value(['f', 'g'], ['', 'a b']),
        description: word,
        input_schema: fc.oneof(
          { weight: 3, arbitrary: fc.constant({ type: 'object', properties: { a: { type: 'integer' } } }) },
          schema,
        ),
        type: value(['custom', null], ['bash_20250124']),
        cache_control: value([{ type: 'ephemeral' }, null]),
      },
      { requiredKeys: ['name', 'input_schema'] },
    ),
  },
  fc.jsonValue({ maxDepth: 3 }),
)
export const messageTools = {
  tools: fc.oneof(
    { weight: 12, arbitrary: fc.constantFrom([{ name: 'f', input_schema: { type: 'object' } }], [], null) },
    { weight: 3, arbitrary: fc.array(messageTool, { maxLength: 3 }) },
  ),
  tool_choice: fc.oneof(
    { weight: 12, arbitrary: fc.constantFrom({ type: 'auto' }, { type: 'none' }) },
    fc.constantFrom({ type: 'any', disable_parallel_tool_use: true }, { type: 'tool', name: 'f' }),
    fc.jsonValue({ maxDepth: 3 }),
  ),
}

const id = value(['a', 'b'], ['', 'x'.repeat(300)])
const textBlock = fc.record({ type: fc.constant('text'), text: word })
const call = fc.record({
  type: fc.constant('tool_use'),
  id,
  name: value(['f'], ['a b']),
  input: value([{}, { a: [1] }]),
})
const result = fc.record(
  {
    ...{ type: fc.constant('tool_result'), tool_use_id: id },
    ...{ content: fc.oneof(word, fc.array(textBlock, { maxLength: 2 })), is_error: value([true, false]) },
  },
  { requiredKeys: ['type', 'tool_use_id'] },
)
/** An answer that calls, and what follows it: mostly its result. */
export const calledTurns = fc
  .tuple(fc.array(fc.oneof(textBlock, call), { maxLength: 3 }), fc.array(result))
  .map(([said, results]) => [
    { role: 'assistant', content: [{ type: 'text', text: 'x' }, ...said] },
    {
      role: 'user',
      content: [...['a', 'b'].map((of) => ({ type: 'tool_result', tool_use_id: of, content: 'y' })), ...results],
    },
  ])
