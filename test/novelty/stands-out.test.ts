import { expect, test } from 'vitest'
import { foundIn } from '../../src/cli/standing-out.ts'
import { lineExample } from '../../topics/novelty.ts'
import type { Observation } from '../../topics/observations.ts'

const told = (line: object): Observation =>
  ({ type: 'observed', session: 's', lines: [line] }) as unknown as Observation

test('a line stands out that is among the share and scores enough, also one that was told before there were rates', () => {
  const { rate: _, ...before } = lineExample
  for (const line of [lineExample, before])
    expect(foundIn(told(line), 0.005)).toMatchObject([{ standsOut: ['structure'], rate: { score: 0 } }])
  const burst = { ...lineExample, structure: { score: 1, rank: 1 }, rate: { score: 9, rank: 0.996 } }
  expect(foundIn(told(burst), 0.005)).toMatchObject([{ standsOut: ['rate'] }])
  expect(foundIn(told({ ...burst, rate: { score: 6, rank: 1 } }), 0.005)).toEqual([])
  expect(foundIn(told({ ...burst, rate: { score: 9, rank: 0.99 } }), 0.005)).toEqual([])
})
