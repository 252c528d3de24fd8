import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { broughtWithin } from '../../src/cli/demo/memory.ts'
import { continuo, json, temporary } from './helpers.ts'

const folder = temporary()

interface Told {
  readonly pulse: number
  readonly chain: string
  readonly asked: readonly { readonly answer: string; readonly right: boolean; readonly blocks: readonly number[] }[]
}
const LENGTH = ['--characters', '20000']
const demo = async (log: string): Promise<Told> => (await json<Told>('demo', '--memory', '--log', log, ...LENGTH))[0]!

describe('continuo demo --memory', () => {
  it('gives each answer the blocks that came back while it was written, however often its memory was asked', () => {
    const brought = [
      { pulse: 105, blocks: [4] },
      // Between two answers.
      { pulse: 131, blocks: [9] },
      // The second answer asked nothing, the third one twice.
      { pulse: 300, blocks: [7, 2] },
      { pulse: 309, blocks: [3, 2] },
    ]
    const spans = [
      [100, 120],
      [200, 220],
      [300, 310],
      [310, 330],
    ] as const
    const found = spans.map(([from, to]) => broughtWithin(brought, { from, to }))
    expect(found).toEqual([[4], [], [2, 3, 7], []])
  })

  it('finds facts of the first page at the end of a text; a further run reads nothing anew', {
    tags: 'slow',
  }, async () => {
    const log = `file:${join(folder, 'memory.db')}`
    const first = await demo(log)
    expect(first.asked.map(({ right }) => right)).toEqual([true, true, true])
    // They stand in the first 1,600 characters: blocks of 128 that left the window long ago.
    for (const { blocks } of first.asked) expect(Math.min(...blocks)).toBeLessThan(14)
    expect(first.pulse).toBeGreaterThan(20_000)
    const second = await continuo(['demo', '--memory', '--log', log, ...LENGTH])
    expect(second).toMatchObject({ code: 0, err: '' })
    expect(second.out).toContain(
      `The session stands at pulse ${first.pulse.toLocaleString('en-US')}; it is asked again.`,
    )
    expect(second.out).toContain('3 of 3 answers are right')
  })

  it('goes on after a kill anywhere, to the same chain', { tags: 'slow' }, async () => {
    const whole = await demo(`file:${join(folder, 'reference.db')}`)
    const log = `file:${join(folder, 'killed.db')}`
    for (const failpoint of ['claim.done', 'commit.prepared', 'commit.noted', 'restore.replay']) {
      const killed = await continuo(['demo', '--memory', '--log', log, ...LENGTH], {
        env: { CONTINUO_FAILPOINT: failpoint },
      })
      expect(killed.signal, failpoint).toBe('SIGKILL')
    }
    expect(await demo(log)).toEqual({ ...whole, ended: 'idle' })
  })

  it('refuses a model without a memory, and a length without --memory', async () => {
    const plain = await continuo([
      'demo',
      '--memory',
      '--model',
      'models/demo',
      '--log',
      `file:${join(folder, 'x.db')}`,
    ])
    expect(plain).toMatchObject({ code: 1, out: '' })
    expect(plain.err).toContain('models/demo has no external memory')
    const alone = await continuo(['demo', ...LENGTH])
    expect(alone.err).toContain('--characters goes with --memory')
  })
})
