/** Messages that are all given are fed as a conversation that is held turn by turn feeds them. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { codeOf } from '../../../src/errors.ts'
import { rwkvChat, templateChat } from '../../../src/models/chat/conversation.ts'
import { type ChatForm, rwkvForm, templateForm } from '../../../src/models/chat/form.ts'
import { chatTemplate } from '../../../src/models/chat/template.ts'
import type { Chat, Message } from '../../../src/models/chat/types.ts'
import { byteTokenizer } from '../../../src/models/tokenizer/index.ts'
import type { Turns } from '../../../src/models/tokenizer/types.ts'
import { text } from '../tokenizer/fixtures.ts'

/** Bytes, and a few special tokens beyond them. */
const SPECIAL = ['<|im_start|>', '<|im_end|>', '<bos>']
const turns: Turns = { ...byteTokenizer().turns!, special: new Map(SPECIAL.map((content, at) => [content, 256 + at])) }

const CHATML = `{% for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' -}}
{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}`
/** One that puts something before the first message, trims, and says the day. */
const DATED = `{{- bos_token }}{{- strftime_now("%d %b %Y") }}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n\\n' + message['content'] | trim + '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n\\n' }}
{%- endif %}`

const DATE = '2026-11-25'
const FORMS: readonly (readonly [string, () => ChatForm, (system: string | undefined) => Chat])[] = [
  ...([CHATML, DATED] as const).map((source, at) => {
    const options = { bosToken: '<bos>', date: DATE }
    const template = chatTemplate(source, 'x')
    return [
      ['ChatML', 'a dated template'][at]!,
      () => templateForm(template, turns, options),
      (system: string | undefined) => templateChat(template, turns, { ...options, system }),
    ] as const
  }),
  ['RWKV', () => rwkvForm(turns), (system) => rwkvChat(turns, { system })],
]

const part = fc.oneof(fc.constantFrom(...SPECIAL, '<|im_', '\n\n', ' ', '\ufdd0', 'User:'), text)
const content = fc.array(part, { maxLength: 6 }).map((parts) => parts.join('').toWellFormed())

describe.each(FORMS)('%s', (_, open, converse) => {
  test('begins and goes on as a conversation does', () => {
    fc.assert(
      fc.property(
        fc.option(content, { nil: undefined }),
        content,
        content,
        content,
        fc.boolean(),
        (system, one, answer, two, ended) => {
          const form = open()
          const chat = converse(system)
          const messages: readonly Message[] = [
            ...(system === undefined ? [] : [{ role: 'system', content: system } as const]),
            { role: 'user', content: one },
          ]
          expect([...form.begin(messages)]).toEqual([...chat.ask(one).ids])
          const stop = ended ? (form.stops[0] ?? null) : null
          chat.answered(answer, stop)
          expect([...form.goOn([{ role: 'user', content: two }], stop !== null)]).toEqual([...chat.ask(two).ids])
        },
      ),
      { numRuns: 200 },
    )
  })

  test('has of messages alone what stands before the opening of an answer', () => {
    fc.assert(
      fc.property(content, content, content, (one, answer, two) => {
        const form = open()
        const messages: readonly Message[] = [
          { role: 'user', content: one },
          { role: 'assistant', content: answer },
          { role: 'user', content: two },
        ]
        const [alone, begun] = [[...form.alone(messages)], [...form.begin(messages)]]
        expect(begun.slice(0, alone.length)).toEqual(alone)
        expect(begun.length).toBeGreaterThan(alone.length)
      }),
      { numRuns: 100 },
    )
  })

  test('has no special token out of a message', () => {
    const form = open()
    const plain = form.begin([
      { role: 'user', content: 'x' },
      { role: 'assistant', content: 'x' },
      { role: 'user', content: 'x' },
    ])
    const sly = SPECIAL.join('')
    const tried = form.begin([
      { role: 'user', content: sly },
      { role: 'assistant', content: sly },
      { role: 'user', content: sly },
    ])
    const specials = (ids: Int32Array): number[] => [...ids].filter((id) => id >= 256)
    expect(specials(tried)).toEqual(specials(plain))
  })
})

test('a template that loses answers begins, and is refused where it should go on', () => {
  const template = chatTemplate(`{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}`, 'x')
  const form = templateForm(template, turns, {})
  expect(form.begin([{ role: 'user', content: 'a' }])).toEqual(Int32Array.of(97))
  let code: unknown
  try {
    form.goOn([{ role: 'user', content: 'a' }], false)
  } catch (error) {
    code = codeOf(error)
  }
  expect(code).toBe('INVALID')
})

test.each([true, false, undefined])("RWKV's form opens and closes thoughts as a conversation does: %s", (thinking) => {
  const asked = { tools: [], mustCall: false, thinking }
  const chat = rwkvChat(turns, { thinking })
  const one = { role: 'user', content: 'Why?' } as const
  expect([...rwkvForm(turns).begin([one], asked)]).toEqual([...chat.ask('Why?').ids])
  chat.answered('So.', null)
  expect([...rwkvForm(turns).goOn([one], false, asked)]).toEqual([...chat.ask('Why?').ids])
})
