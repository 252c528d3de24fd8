/**
 * Chat templates: what they are given, what they may not do, and how a conversation is written as ids turn by turn.
 *
 * @module-tag slow
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { codeOf, messageOf } from '../../../src/errors.ts'
import { rwkvChat, templateChat } from '../../../src/models/chat/conversation.ts'
import { openChat } from '../../../src/models/chat/index.ts'
import { chatTemplate } from '../../../src/models/chat/template.ts'
import type { Message } from '../../../src/models/chat/types.ts'
import type { Tokenizer } from '../../../src/models/tokenizer/index.ts'
import { trieTokenizer } from '../../../src/models/tokenizer/trie.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { byteLevel, fallback, type Json, open, text } from '../tokenizer/fixtures.ts'

/**
 * The forms of published templates, written here: ChatML (Qwen, SmolLM2), Llama 3, Gemma; and one that drops thoughts
 * (Qwen 3).
 */
const CHATML = `{% for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' -}}
{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}`
const LLAMA = `{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{{- '<|im_start|>date\\n' + date_string + '<|im_end|>' }}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n\\n' + message['content'] | trim + '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n\\n' }}
{%- endif %}`
const GEMMA = `{{ bos_token }}
{%- if messages[0].role == 'system' %}{{ raise_exception('There is no system here') }}{% endif %}
{%- for message in messages %}
{%- set role = 'model' if message.role == 'assistant' else message.role %}
{{- '<|im_start|>' ~ role ~ '\\n' ~ (message.content | trim) ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>model\\n' }}{% endif %}`
const THINKING = `{%- for message in messages %}
{%- set content = message.content %}
{%- if message.role == 'assistant' and '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}
{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}`

const render = (source: string, messages: readonly Message[], more: object = {}): string =>
  chatTemplate(source, 'chat_template.jinja')({ messages, addGenerationPrompt: true, ...more })

const HELLO: readonly Message[] = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: ' Hello ' },
]

describe('a template is rendered with', () => {
  test('messages, add_generation_prompt, bos_token and eos_token, blocks trimmed', () => {
    expect(render(CHATML, HELLO)).toBe(
      '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hello <|im_end|>\n<|im_start|>assistant\n',
    )
    expect(render(GEMMA, HELLO.slice(1), { bosToken: '<bos>' })).toBe(
      '<bos><|im_start|>user\nHello<|im_end|>\n<|im_start|>model\n',
    )
    expect(render('{{ bos_token }}|{{ eos_token }}|{{ add_generation_prompt }}', [], { eosToken: '</s>' })).toBe(
      '|</s>|True',
    )
  })

  test('enable_thinking where it is said', () => {
    expect(render(THINKING, HELLO.slice(1), { thinking: false })).toMatch(/assistant\n<think>\n\n<\/think>\n\n$/)
    expect(render(THINKING, HELLO.slice(1), { thinking: true })).toMatch(/assistant\n$/)
    expect(render(THINKING, HELLO.slice(1))).toMatch(/assistant\n$/)
  })

  test('a day that is the same on any day: the one that was said, or the one that the template has', () => {
    expect(render(LLAMA, HELLO)).toContain('date\n26 Jul 2024<')
    expect(render(LLAMA, HELLO, { date: '2025-03-07' })).toContain('date\n07 Mar 2025<')
    const clock = `{{ strftime_now('%Y-%m-%d %B %b %A %H:%M %-d %%') }}`
    expect(render(clock, HELLO, { date: '2025-03-07' })).toBe('2025-03-07 March Mar Friday 00:00 7 %')
    expect(() => render(clock, HELLO)).toThrow(/asks for the present date .* Name a day: --date YYYY-MM-DD/)
    expect(() => render(`{{ strftime_now('%q') }}`, HELLO, { date: '2025-03-07' })).toThrow(/asked for %q/)
  })
})

describe('a template is refused, in words, when it', () => {
  test.each<[string, string, RegExp]>([
    ['is no Jinja', '{% if %}', /is not Jinja that can be read: line 1: /],
    ['is too long', ' '.repeat((1 << 16) + 1), /has 65537 characters, expected at most 65536/],
    [
      'refuses the conversation',
      `{{ raise_exception('Only users speak') }}`,
      /refuses this conversation: Only users speak/,
    ],
    ['calls what is not there', '{{ nothing() }}', /cannot be rendered/],
    [
      'loops for ever in loops',
      '{% for a in range(60000) %}{% for b in range(60000) %}{% endfor %}{% endfor %}',
      /more than 2000000 steps/,
    ],
    ['asks for a long list', '{% for a in range(1000000000) %}{% endfor %}', /asked for 1000000000 numbers/],
    ['asks for a list without an end', '{% for a in range(0, 5, 0) %}{% endfor %}', /range\(\) is asked for/],
    [
      'doubles a text again and again',
      `{% set ns = namespace(t='aaaaaaaa') %}{% for a in range(60) %}{% set ns.t = ns.t + ns.t %}{% endfor %}{{ ns.t }}`,
      /makes a text of more than|more than 2000000 steps/,
    ],
    [
      'doubles a list again and again',
      `{% set ns = namespace(t=[1, 2, 3, 4]) %}{% for a in range(60) %}{% set ns.t = ns.t + ns.t %}{% endfor %}`,
      /more than 2000000 steps/,
    ],
    ['calls itself', '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}', /cannot be rendered/],
    ['is nested without an end', `{{ ${'('.repeat(60_000)} }}`, /is not Jinja/],
  ])('%s', (_, source, words) => {
    let failed: unknown
    try {
      render(source, HELLO)
    } catch (error) {
      failed = error
    }
    expect(messageOf(failed)).toMatch(words)
    expect(messageOf(failed)).toContain('chat_template.jinja')
    expect(codeOf(failed)).toBe('INVALID')
  })
})

describe('no built-in runs before what it does is paid for:', () => {
  /** Half of all that a text may be: "ab c,d" and a line end, again and again. */
  const TEXT = `{% set ns = namespace(t='ab c,d\\n') %}{% for a in range(19) %}{% set ns.t = ns.t + ns.t %}{% endfor %}`
  /** A list of two lists of two lists …, each of them one list twice. */
  const LIST = `{% set ns = namespace(t=['x']) %}{% for a in range(40) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}`
  const LONG = 'z'.repeat(60_000)
  test.each<readonly [string, string]>([
    ...['|tojson', '|tojson(indent=2)', '|string', '|join', "|join('-')", '|sort', ' ~ 1', ''].map(
      (use) => [`a list that doubles, ${use || 'shown'}`, `${LIST}{{ ns.t${use} }}`] as const,
    ),
    ['such a list inside', `${LIST}{{ [{'a': (1, ns.t)}]|map(attribute='a')|list|string }}`],
    ['such an object', `${LIST}{{ {'a': ns.t}|dictsort|string }}`],
    ['such a namespace', `${LIST}{{ ns }}`],
    ['two such lists that are compared', `${LIST}${LIST.replaceAll('ns', 'other')}{{ ns.t == other.t }}`],
    ['such a list in a block', `${LIST}{% set x %}{{ ns.t }}{% endset %}`],
    ['such a list out of a macro', `${LIST}{% macro f(x) %}{{ x }}{% endmacro %}{{ f(ns.t) }}`],
    ['words', `${TEXT}{{ (ns.t ~ ns.t).split()|length }}`],
    ['characters', `${TEXT}{{ (ns.t|replace('ab c,d\\n', ',')).split(',')|length }}{{ ns.t.split() }}`],
    ['a method of another name', `${TEXT}{{ (ns.t ~ ns.t)['split']()|length }}`],
    ['slices', `${TEXT}{% for a in range(60) %}{{ ns.t[1:]|length }}{% endfor %}`],
    ['what is put in', `${TEXT}{{ ns.t.replace('a', '${LONG}')|length }}`],
    ['what a filter puts in', `${TEXT}{{ ns.t|replace('', '0123456789')|length }}`],
    ['indents', `${TEXT}{{ ns.t|indent(100)|length }}`],
    ['indents of JSON', `{{ [[1]]|tojson(indent=100000000)|length }}`],
    ['separators', `{{ range(1000)|list|tojson(separators=['${LONG}', ':'])|length }}`],
    ['joins', `${TEXT}{{ ns.t|join('abc')|length }}`],
    ['joins of lists', `{{ range(60000)|join('${LONG}')|length }}`],
    ['a search', `${TEXT}{{ '${LONG}' in ns.t }}`],
    [
      'a search in a list',
      `${TEXT}{% set l = [ns.t ~ 1, ns.t ~ 1, ns.t ~ 1] %}{% for a in range(60000) %}{{ (ns.t ~ 2) in l }}{% endfor %}`,
    ],
    ['pairs', `${TEXT}{{ namespace([ns.t]) }}`],
    ['a filter of a block', `${TEXT}{% filter indent(1000) %}{{ ns.t }}{% endfilter %}`],
    [
      'texts that are kept',
      `${TEXT}{% set ns.l = [] %}{% for a in range(60000) %}{% set ns.l = ns.l + [(ns.t ~ a)|upper] %}{% endfor %}`,
    ],
    ['names that are not there', `{% for a in range(60000) %}${'{{ x }}'.repeat(8000)}{% endfor %}`],
    [
      'macros',
      `{% for a in range(60000) %}{% macro f() %}${'{{ x }}'.repeat(7000)}{% endmacro %}{{ f() }}{% endfor %}`,
    ],
  ])('%s', (_, source) => {
    expect(() => render(source, HELLO)).toThrow(/more than (2000000 steps|8388608 characters)/)
  })

  test('a list inside itself is refused, too', () => {
    const source = `{% set ns = namespace(t=1) %}{% set ns.t = ns %}{{ ns }}`
    expect(() => render(source, HELLO)).toThrow(/nested more than 64 deep/)
  })

  test('a thousand messages of 1,900 characters cost a template that looks at each from all sides less than that', () => {
    const messages = Array.from({ length: 1000 }, (__, at) => ({
      role: at % 2 === 0 ? ('user' as const) : ('assistant' as const),
      content: 'One word, and another.\n'.repeat(83).slice(0, 1900),
    }))
    const source = `{%- macro turn(m) -%}<{{ m.role }}>{{ m.content|trim }}{%- endmacro -%}
      {%- for m in messages -%}
        {%- if loop.index0 > 0 and messages[loop.index0 - 1].role == m.role -%}{{ raise_exception('twice') }}{%- endif -%}
        {%- set text = m.content.split('</think>')[-1].lstrip('\\n').replace('<|', '< |') -%}
        {%- if '<think>' in text or text[:7] == '<think>' or text is not defined or tools is defined -%}no{%- endif -%}
        {{ turn(m) if loop.last else '<' ~ m.role ~ '>' + (text|trim) }}
      {%- endfor -%}`
    const text = render(source, messages)
    expect(text.split('<user>')).toHaveLength(501)
    expect(text.length).toBeGreaterThan(1_890_000)
  })
})

const top = Object.keys((byteLevel().model as { vocab: Json }).vocab).length
const SPECIAL = ['<bos>', '<|im_start|>', '<|im_end|>', '<|im_end|>!', '◆']
const added = [
  ...SPECIAL.map((content, at) => ({ id: top + at, content, special: true, normalized: false })),
  { id: top + 9, content: '<think>', special: false, normalized: false },
]
const chatting = (): Promise<Tokenizer> => open(byteLevel({ added_tokens: added }))
const told = (tokenizer: Tokenizer, ids: Iterable<number>): string =>
  Buffer.concat([...ids].map((id) => Buffer.from(SPECIAL[id - top] ?? tokenizer.bytesOf(id)))).toString()

describe('a conversation', () => {
  test('is fed turn by turn as it is rendered as a whole; special tokens are ids', async () => {
    const tokenizer = await chatting()
    const chat = templateChat(chatTemplate(CHATML, 'x'), tokenizer.turns!, { system: 'Be brief.' })
    const ids: number[] = []
    const first = chat.ask('the memory')
    ids.push(...first.ids)
    expect(first.exact).toBe(true)
    expect(told(tokenizer, first.ids)).toBe(
      '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nthe memory<|im_end|>\n<|im_start|>assistant\n',
    )
    expect(first.ids[0]).toBe(top + 1)
    const answer = tokenizer.turns!.encode('of the stream', 'text')
    ids.push(...answer)
    chat.answered('of the stream', null)
    const second = chat.ask("it's over")
    ids.push(...second.ids)
    expect(second.exact).toBe(true)
    expect(told(tokenizer, second.ids)).toBe(
      "<|im_end|>\n<|im_start|>user\nit's over<|im_end|>\n<|im_start|>assistant\n",
    )
    const whole = render(CHATML, [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'the memory' },
      { role: 'assistant', content: 'of the stream' },
      { role: 'user', content: "it's over" },
    ])
    expect(told(tokenizer, ids)).toBe(whole)
    expect(ids).toEqual([...tokenizer.push('', whole).ids, ...tokenizer.flush(tokenizer.push('', whole).held)])
  })

  test('has no special tokens out of a message, however their letters stand there; other added tokens are', async () => {
    const tokenizer = await chatting()
    const specials = new Set(added.filter(({ special }) => special).map(({ id }) => id))
    const part = fc.oneof(fc.constantFrom(...SPECIAL, '<|im_', 'end|>', '<', '<think>', ' ', '\ufdd0', '\ufdd1'), text)
    const message = fc.array(part, { maxLength: 8 }).map((parts) => parts.join('').toWellFormed())
    fc.assert(
      fc.property(message, message, (system, user) => {
        const chat = templateChat(chatTemplate(CHATML, 'x'), tokenizer.turns!, { system })
        const { ids, exact } = chat.ask(user)
        expect(exact).toBe(true)
        const own = [...ids].filter((id) => specials.has(id))
        expect(own.map((id) => SPECIAL[id - top])).toEqual([
          ...['<|im_start|>', '<|im_end|>', '<|im_start|>', '<|im_end|>', '<|im_start|>'],
        ])
        expect(told(tokenizer, ids)).toBe(
          `<|im_start|>system\n${system}<|im_end|>\n<|im_start|>user\n${user}<|im_end|>\n<|im_start|>assistant\n`,
        )
      }),
      { numRuns: 300 },
    )
    const chat = templateChat(chatTemplate(CHATML, 'x'), tokenizer.turns!, {})
    expect([...chat.ask('<think>').ids]).toContain(top + 9)
  })

  test('keeps what was fed where a template renders earlier turns otherwise, and says so', async () => {
    const tokenizer = await chatting()
    const chat = templateChat(chatTemplate(THINKING, 'x'), tokenizer.turns!, {})
    expect(chat.ask('a').exact).toBe(true)
    chat.answered('<think>\nno\n</think>\n\nyes', null)
    const second = chat.ask('b')
    expect(second.exact).toBe(false)
    expect(told(tokenizer, second.ids)).toBe('<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n')
    const trimmed = templateChat(chatTemplate(LLAMA, 'x'), tokenizer.turns!, { bosToken: '<bos>' })
    expect(told(tokenizer, trimmed.ask('a').ids)).toMatch(/^<bos><\|im_start\|>date/)
    trimmed.answered(' yes\n', null)
    const next = trimmed.ask('b')
    expect(next.exact).toBe(false)
    expect(told(tokenizer, next.ids)).toBe('<|im_end|><|im_start|>user\n\nb<|im_end|><|im_start|>assistant\n\n')
  })

  test('stands as before where a message cannot be rendered; a template that loses answers is refused', async () => {
    const tokenizer = await chatting()
    const source = `{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('no') }}{% endif %}{{ m.role + m.content }}{% endfor %}`
    const chat = templateChat(chatTemplate(source, 'x'), tokenizer.turns!, {})
    expect(() => chat.ask('no')).toThrow(/refuses this conversation: no/)
    expect(told(tokenizer, chat.ask('yes').ids)).toBe('useryes')
    const deaf = templateChat(
      chatTemplate(`{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}`, 'x'),
      tokenizer.turns!,
      {},
    )
    deaf.ask('a')
    deaf.answered('b', null)
    expect(() => deaf.ask('c')).toThrow(/renders the last answer 0 times, expected once/)
  })

  test('puts nothing before a text that goes on, and what begins a text once', async () => {
    const json = fallback()
    const tokenizer = await open(json)
    const { encode, special } = tokenizer.turns!
    const text = (ids: Int32Array): string => Buffer.concat([...ids].map((id) => tokenizer.bytesOf(id))).toString()
    expect([...special.keys()]).toEqual(['<unk>', '<s>', '</s>'])
    // The normalizer puts ▁ before each section of a text.
    expect(text(encode('the', 'nothing'))).toBe(' the')
    expect(text(encode('the', 'token'))).toBe(' the')
    expect(text(encode('the', 'text'))).toBe('the')
    expect([...encode('</s>', 'text')]).not.toContain(2)
  })
})

describe("RWKV's form", () => {
  const tokenizer = trieTokenizer(new Map(Array.from({ length: 256 }, (_, byte) => [byte + 1, Uint8Array.of(byte)])), {
    eos: 0,
  })
  const read = (ids: Int32Array): string => Buffer.concat([...ids].map((id) => tokenizer.bytesOf(id))).toString()

  test('is System, User and Assistant with an empty line between them, and none inside', () => {
    const chat = rwkvChat(tokenizer.turns!, { system: ' You\r\n\r\nare brief. ' })
    expect(chat.stops).toEqual(['\n\nUser:'])
    expect(read(chat.ask('Hello\n\n\nthere ').ids)).toBe('System: You\nare brief.\n\nUser: Hello\nthere\n\nAssistant:')
    chat.answered(' Hi.', null)
    expect(read(chat.ask('Again').ids)).toBe('\n\nUser: Again\n\nAssistant:')
    // The stop text was fed.
    chat.answered(' Hi.', '\n\nUser:')
    expect(read(chat.ask('Once more').ids)).toBe(' Once more\n\nAssistant:')
  })

  test('opens or skips thinking as asked', () => {
    expect(read(rwkvChat(tokenizer.turns!, { thinking: true }).ask('a').ids)).toBe('User: a\n\nAssistant: <think')
    expect(read(rwkvChat(tokenizer.turns!, { thinking: false }).ask('a').ids)).toBe(
      'User: a\n\nAssistant: <think>\n</think',
    )
  })
})

describe('the form of a package', () => {
  const asked = async (files: Readonly<Record<string, unknown>>, more: object = {}): Promise<string> => {
    const dir = join(temporaryFolder(), 'package')
    mkdirSync(dir)
    for (const [name, content] of Object.entries(files))
      writeFileSync(join(dir, name), typeof content === 'string' ? content : JSON.stringify(content))
    const tokenizer = await chatting()
    const chat = await openChat({ dir, modelType: 'llama', tokenizer, ...more }, {})
    return told(tokenizer, chat.ask('x').ids)
  }
  const of = (name: string): string => `{{ bos_token }}${name}:{{ messages[0].content }}`

  test('is chat_template.jinja, else tokenizer_config.json, a text or a list with a default, else the GGUF file', async () => {
    const metadata = new Map<string, unknown>([
      ['tokenizer.chat_template', of('gguf')],
      ['tokenizer.ggml.tokens', ['<bos>']],
      ['tokenizer.ggml.bos_token_id', 0],
    ])
    const config = { chat_template: of('config'), bos_token: { content: '<bos>' } }
    expect(await asked({ 'chat_template.jinja': of('file'), 'tokenizer_config.json': config }, { metadata })).toBe(
      '<bos>file:x',
    )
    expect(await asked({ 'tokenizer_config.json': config }, { metadata })).toBe('<bos>config:x')
    expect(await asked({}, { metadata })).toBe('<bos>gguf:x')
    const list = [
      { name: 'tool_use', template: of('tools') },
      { name: 'default', template: of('default') },
    ]
    expect(await asked({ 'tokenizer_config.json': { chat_template: list } })).toBe('default:x')
    expect(
      await asked({
        'tokenizer_config.json': { chat_template: of('c') },
        'special_tokens_map.json': { bos_token: '<bos>' },
      }),
    ).toBe('<bos>c:x')
  })

  test("is RWKV's for RWKV-7 without a template, and refused for others", async () => {
    expect(await asked({}, { modelType: 'rwkv7' })).toBe('User: x\n\nAssistant:')
    await expect(asked({})).rejects.toThrow(/has no chat template \(chat_template.jinja, or chat_template in/)
    await expect(asked({ 'tokenizer_config.json': { chat_template: 7 } })).rejects.toThrow(/malformed chat_template/)
    await expect(
      asked({ 'tokenizer_config.json': { chat_template: [{ name: 'rag', template: '' }] } }),
    ).rejects.toThrow(/has the chat templates rag, expected one named default/)
  })

  test('is opened with a day that is one', async () => {
    const tokenizer = await chatting()
    const open = (date: string) => openChat({ dir: temporaryFolder(), modelType: 'rwkv7', tokenizer }, { date })
    await expect(open('2025-02-28')).resolves.toBeDefined()
    for (const date of ['2025-02-30', '7 March', '2025-13-01'])
      await expect(open(date)).rejects.toThrow(/expected a day as YYYY-MM-DD/)
  })
})
