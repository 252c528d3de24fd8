/**
 * The renderer of chat templates against Jinja2: against what it gave once (jinja-cases.json), and against Jinja2
 * itself where a Python has it (judge.py).
 */

import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { strftime } from '../../../src/models/chat/date.ts'
import { Fault } from '../../../src/models/chat/jinja/price.ts'
import { compile } from '../../../src/models/chat/jinja/render.ts'
import { Callable, fromJson } from '../../../src/models/chat/jinja/values.ts'
import { chatTemplate } from '../../../src/models/chat/template.ts'
import { inBothTiers } from '../../rounds.ts'
import { randomTemplate } from './random-templates.ts'

interface Known {
  readonly context: Readonly<Record<string, unknown>>
  /** With the text that Jinja2 gives, or refused by it. */
  readonly cases: readonly { readonly source: string; readonly text?: string; readonly refused?: true }[]
  /** What Jinja2 renders and this does not. */
  readonly refusedKnowingly: readonly { readonly source: string; readonly why: string }[]
}

const { context, cases, refusedKnowingly } = JSON.parse(
  readFileSync(join(import.meta.dirname, 'jinja-cases.json'), 'utf8'),
) as Known

/** The text, or the sentence of the refusal. */
const rendered = (source: string): { readonly text: string } | { readonly error: string } => {
  const given = new Map(Object.entries(context).map(([name, value]) => [name, fromJson(value)]))
  given.set(
    'raise_exception',
    new Callable('raise_exception', () => {
      throw new Fault('it is refused')
    }),
  )
  given.set('strftime_now', new Callable('strftime_now', ({ list }) => strftime('2025-03-07', String(list[0]))))
  try {
    return { text: compile(source)(given) }
  } catch (error) {
    // Anything else is a crash.
    if (!(error instanceof Fault)) throw error
    return { error: error.message }
  }
}

const python = process.env.CONTINUO_JINJA ?? 'python3'
const missing =
  spawnSync(python, ['-c', 'import jinja2'], { stdio: 'ignore' }).status === 0
    ? null
    : `${python} has no jinja2; CONTINUO_JINJA names a Python that has`

type Judged = { readonly text: string } | { readonly error: string }

const judge = (sources: readonly string[]): readonly Judged[] => {
  const input = JSON.stringify(sources.map((source) => ({ source, context })))
  const { stdout, stderr, status } = spawnSync(python, [join(import.meta.dirname, 'judge.py')], {
    input,
    encoding: 'utf8',
    maxBuffer: 1 << 28,
  })
  if (status !== 0) throw new Error(stderr)
  return JSON.parse(stdout) as readonly Judged[]
}

describe('a construct is rendered as Jinja2 renders it, or refused as there:', () => {
  test.each(cases)('$source', ({ source, text }) => {
    const found = rendered(source)
    if (text === undefined) {
      expect(found).toHaveProperty('error')
      expect('error' in found && found.error).toMatch(/^line \d+: ./)
    } else expect(found).toEqual({ text })
  })
})

test.each(refusedKnowingly)('$source is refused with its line ($why)', ({ source }) => {
  expect(rendered(source)).toEqual({ error: expect.stringMatching(/^line 1: .{10,}/) })
})

/** What a refusal says where Jinja2 renders. */
const KNOWINGLY = /is not supported|of which no text is known|more than 1000 bits|takes a slice|a slice takes/

if (missing !== null) test.skip(`the same of Jinja2 itself (${missing})`, () => undefined)
else {
  test('Jinja2 itself gives what stands in jinja-cases.json', () => {
    const judged = judge([...cases, ...refusedKnowingly].map(({ source }) => source))
    cases.forEach(({ source, text }, at) => {
      expect({ source, ...judged[at] }).toEqual({
        source,
        ...(text === undefined ? { error: expect.anything() } : { text }),
      })
    })
    for (const found of judged.slice(cases.length)) expect(found).toHaveProperty('text')
  })

  for (const { rounds, says, options } of inBothTiers(2000))
    test(`random templates are rendered as Jinja2 renders them, or refused as there, ${says}`, options, () => {
      const sources = Array.from({ length: rounds }, (_, seed) => randomTemplate(seed + 1))
      const judged = judge(sources)
      let same = 0
      sources.forEach((source, at) => {
        const [own, other] = [rendered(source), judged[at]!]
        if ('text' in own) expect({ source, ...own }).toEqual({ source, ...other })
        else if ('text' in other)
          expect({ source, ...own }).toEqual({ source, error: expect.stringMatching(KNOWINGLY) })
        same += Number('text' in own)
      })
      expect(same).toBeGreaterThan(0.4 * rounds)
    })
}

describe('content is given', () => {
  const hello = [{ role: 'user', content: 'Hello' }] as const
  const shown = (source: string): string => chatTemplate(source, 'x')({ messages: hello, addGenerationPrompt: true })

  test('as parts to a template that knows no other, and as a text to all others', () => {
    expect(shown(`{% for m in messages %}{% for part in m.content %}{{ part['text'] }}{% endfor %}{% endfor %}`)).toBe(
      'Hello',
    )
    expect(shown('{{ messages[0].content[0].text }}')).toBe('Hello')
    expect(shown('{{ messages[0].content }}')).toBe('Hello')
    expect(
      shown(
        `{% set c = messages[0].content %}{% if c is string %}text {{ c }}{% else %}parts {{ c[0].text }}{% endif %}`,
      ),
    ).toBe('text Hello')
    // One that shows neither gets texts.
    expect(shown('{{ messages[0].content is string }}')).toBe('True')
  })
})
