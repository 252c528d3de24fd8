/** The judge must find what the crash suites look for. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openLog } from '../../src/streams/open.ts'
import { openFamily } from '../families.ts'
import { collect, differenceOf, OUTPUTS, type Output, type Result } from './judge.ts'
import { appendAll, createCrashTopics, finish } from './life.ts'
import { scenario } from './scenario.ts'

const dir = mkdtempSync(join(tmpdir(), 'continuo-judge-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

describe('the judge of the crash suites', () => {
  let result: Result
  beforeAll(async () => {
    const url = `file:${join(dir, 'log.db')}`
    const log = await openLog(url)
    await createCrashTopics(log)
    await log.close()
    await appendAll(url, scenario(4).flat())
    await finish(url, await openFamily('rwkv7', dir))
    result = await collect(url)
  })

  const changed = (
    topic: Output,
    session: string,
    change: (values: readonly string[]) => readonly string[],
  ): Result => ({
    ...result,
    outputs: {
      ...result.outputs,
      [topic]: { ...result.outputs[topic], [session]: change(result.outputs[topic][session]!) },
    },
  })

  test('finds nothing where there is nothing, and there was something to compare', () => {
    for (const topic of OUTPUTS) expect(Object.keys(result.outputs[topic]).length, topic).toBeGreaterThan(0)
    expect(result.heads.size).toBeGreaterThan(0)
    expect(differenceOf(result, structuredClone(result))).toBeNull()
  })

  test.each(OUTPUTS)('finds an event of %s that is missing, doubled, altered or in another session', (topic) => {
    const [session, values] = Object.entries(result.outputs[topic]).sort((a, b) => b[1].length - a[1].length)[0]!
    const found = (change: (values: readonly string[]) => readonly string[]): string | null =>
      differenceOf(changed(topic, session, change), result)
    const about = `${topic} of ${session}`
    expect(found((all) => all.slice(0, -1))).toContain(`${about}, event ${values.length - 1}`)
    expect(found((all) => all.slice(1))).toContain(`${about}, event 0`)
    expect(found((all) => [...all, all.at(-1)!])).toContain(
      `${about}: the disturbed run has ${values.length + 1} events`,
    )
    expect(found((all) => [...all.slice(0, -1), `${all.at(-1)} `])).toContain(`${about}, event ${values.length - 1}`)
    const elsewhere = { ...result.outputs[topic], stranger: values }
    const strange = { ...result, outputs: { ...result.outputs, [topic]: elsewhere } }
    expect(differenceOf(strange, result)).toContain('stranger')
    expect(differenceOf(result, strange)).toContain('stranger')
  })

  test('finds another chain, and a session without a head', () => {
    const [id, head] = [...result.heads][0]!
    const other = { ...head, chain: head.chain.replace(/^./, (digit) => (digit === '0' ? '1' : '0')) }
    expect(differenceOf({ ...result, heads: new Map([...result.heads, [id, other]]) }, result)).toContain(
      `The head of ${id}, disturbed against undisturbed: chain: `,
    )
    const fewer = new Map(result.heads)
    fewer.delete(id)
    expect(differenceOf({ ...result, heads: fewer }, result)).toContain('has heads of')
    expect(differenceOf(result, { ...result, heads: fewer })).toContain('has heads of')
  })
})
