/** What is told of adaptations and draws stays within its contract, and within a record, whatever the engine says. */
import { expect, test } from 'vitest'
import type { Adapted, DrawNote, WorkResult } from '../../../src/engine/work.ts'
import { adaptedIn } from '../../../src/operators/advance/adapted.ts'
import { MOST_IDS, perspectivesIn } from '../../../src/operators/advance/perspectives.ts'
import type { Tokenized } from '../../../src/operators/types.ts'
import { MOST_STAGES, observation } from '../../../topics/observations.ts'
import type { Generated } from '../../../topics/tokens.ts'
import { head } from '../../state/heads.ts'

const work: Tokenized = {
  kind: 'tokenized',
  record: { topic: 't', partition: 0, offset: 3, timestamp: 0, key: null, value: null, headers: [] },
  session: 'log-7',
  event: { type: 'adapt', evaluations: 65_536, seed: 0 },
  hash: '',
  ids: new Int32Array(0),
  held: '',
}
const report = (change: Partial<Adapted>): Adapted => ({
  ...{ tokens: 12, evaluations: 9, stages: [], before: 3, after: 2, bound: 0 },
  ...change,
})
const told = (adapted: Adapted) => {
  const output = adaptedIn(head(), work, { adapted })
  if (output.to !== 'observations') throw new Error('It is an observation.')
  const text = JSON.stringify(output.value)
  expect(text.length).toBeLessThan(900_000)
  const value = observation.parse(JSON.parse(text))
  if (value.type !== 'adapted') throw new Error('It is an adapted event.')
  return value
}

test('an adaptation whose losses are not finite says so by null, which no JSON number can', () => {
  const stage = { stage: 'adapters', was: 3, now: Number.NaN, accepted: false, probes: [1] } as const
  const { loss, stages } = told(report({ before: Number.POSITIVE_INFINITY, after: 2, stages: [stage] }))
  expect(loss).toEqual({ before: null, after: 2 })
  expect(stages).toEqual([{ stage: 'adapters', was: 3, now: null, accepted: false }])
})

test('the longest adaptation fits into a record: of its stages the first are listed', () => {
  const stage = { stage: 'adapters', was: -Math.PI * 1e-101, now: Math.E * 1e-101 } as const
  const stages = Array.from({ length: 21_845 }, (_, n) => ({ ...stage, accepted: n % 2 === 0, probes: [] }))
  expect(told(report({ stages })).stages).toHaveLength(MOST_STAGES)
})

const run = (count: number): Generated => ({
  ...{ type: 'generated', version: 1, session: 'log-7', requestId: 'r', index: 32, text: '' },
  ids: Array.from({ length: count }, (_, n) => n),
  logprobs: [],
  ...{ fromPulse: 100, toPulse: 100 + count, finish: null },
  cause: { topic: 't', partition: 0, offset: 3, id: null },
})
const note: DrawNote = { fired: false, entropy: 0.5, jsd: null, agreed: null, hdm: null, weight: null }
const result = (count: number, each: number): WorkResult => ({
  nats: new Float32Array(0),
  generated: new Int32Array(count),
  logprobs: new Float32Array(0),
  ended: null,
  head: { pulse: 0n, origin: 0n, chain: '' },
  ...(count > 0 && {
    draws: Array.from({ length: count }, (_, n) => ({ ...note, entropy: n })),
    experts: Int32Array.from({ length: count * each }, (_, n) => n),
  }),
})
const valuesOf = (count: number, layers: number, ranks: number) =>
  perspectivesIn(run(count), result(count, layers * ranks), { layers, ranks }).map((output) => {
    if (output.to !== 'observations') throw new Error('It is an observation.')
    const text = JSON.stringify(output.value)
    expect(text.length).toBeLessThan(900_000)
    const value = observation.parse(JSON.parse(text))
    if (value.type !== 'perspectives') throw new Error('It is a perspectives event.')
    return value
  })

test('experts are told token by token, layer by layer, in their order', () => {
  const [value] = valuesOf(2, 3, 2)
  expect(value!.experts).toEqual([
    [
      [0, 1],
      [2, 3],
      [4, 5],
    ],
    [
      [6, 7],
      [8, 9],
      [10, 11],
    ],
  ])
  expect(value).toMatchObject({ index: 32, fromPulse: 100, toPulse: 102, requestId: 'r' })
})

test('a run without tokens has nothing to tell', () => expect(valuesOf(0, 3, 2)).toEqual([]))

test('more experts than a record holds come in several observations, each with its place', () => {
  const values = valuesOf(16, 128, 64)
  expect(values.map(({ draws }) => draws.length)).toEqual([8, 8])
  expect(values.map(({ index, fromPulse, toPulse }) => [index, fromPulse, toPulse])).toEqual([
    [32, 100, 108],
    [40, 108, 116],
  ])
  expect(values.flatMap(({ draws }) => draws.map(({ entropy }) => entropy))).toEqual(
    Array.from({ length: 16 }, (_, n) => n),
  )
  expect(valuesOf(3, 1024, MOST_IDS / 1024).map(({ draws }) => draws.length)).toEqual([1, 1, 1])
})

test('an engine that names experts for other tokens than it gave is not believed', () => {
  expect(() => perspectivesIn(run(2), result(2, 5), { layers: 3, ranks: 2 })).toThrow(
    'The engine names 10 experts for 2 tokens, expected 6 for each.',
  )
})
