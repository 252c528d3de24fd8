/** models/perspective: what its recipe says that it computes, by the engine. */
import { cpSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { openModel } from '../../../src/models/open.ts'
import { testDevice } from '../../engine/helpers.ts'
import { temporaryFolder } from '../../engine/packages.ts'

const SHIPPED = join(import.meta.dirname, '..', '..', '..', 'models', 'perspective')

interface Expected {
  readonly ids: readonly number[]
  readonly nll: readonly (number | null)[]
  readonly total_nll: number
  readonly logits: readonly number[]
  readonly argmax: number
}

it('the shipped model has the surprisals of its expected.json, packed when it is opened', async () => {
  const dir = temporaryFolder()
  for (const file of ['config.json', 'model.safetensors', 'experts.safetensors', 'tokenizer.json'])
    cpSync(join(SHIPPED, file), join(dir, file))
  const expected = JSON.parse(readFileSync(join(SHIPPED, 'expected.json'), 'utf8')) as Expected
  const notes: string[] = []
  const warn = (note: string): unknown => notes.push(note)
  const model = await openModel(dir, { threads: 2, keepPacked: false, warn, ...testDevice })
  expect(notes).toEqual([expect.stringContaining('Packed the experts of')])
  const context = model.createContext()
  const [result] = await model.process([{ context, tokens: Int32Array.from(expected.ids), nats: true }])
  // An activation near one half rounds otherwise in f32 here and there: by up to 0.04 nats a token in the recipe's own
  // f32.
  for (const [i, nats] of expected.nll.entries())
    if (nats !== null) expect(Math.abs(result!.nats[i]! - nats)).toBeLessThan(0.08)
  const total = result!.nats.slice(1).reduce((sum, nats) => sum + nats, 0)
  expect(Math.abs(total - expected.total_nll)).toBeLessThan(0.1)
  const logits = await model.logits(context)
  expect(logits.indexOf(Math.max(...logits))).toBe(expected.argmax)
  model.close()
})
