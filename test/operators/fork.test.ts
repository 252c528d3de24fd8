/** Forks on the stream: what a child is, when it is made, and what is refused. */
import { describe, expect, test } from 'vitest'
import { benches, event, verified } from './harness.ts'

const { use } = benches()

const ask = (requestId: string, maxTokens = 40) =>
  ({ type: 'generate', requestId, maxTokens, temperature: 0.9, topP: 0.95, seed: 5 }) as const
const from = (session: string) => ({ type: 'open', from: { session } }) as const

describe('a fork on the stream', () => {
  test('goes on as a session does that read all of it by itself, and its parent does not notice', async () => {
    await use(async (bench) => {
      await bench.feed(
        event('prompt', { type: 'text', text: 'The harbour froze in the first week of ' }),
        event('prompt', ask('p')),
        event('child', from('prompt')),
        event('prompt', { type: 'text', text: 'January.' }),
        event('child', { type: 'text', text: 'December, and ' }),
        event('child', ask('c')),
        event('alone', { type: 'text', text: 'The harbour froze in the first week of ' }),
        event('alone', ask('p')),
        event('alone', { type: 'text', text: 'December, and ' }),
        event('alone', ask('c')),
      )
      await bench.settle()
      const heads = await bench.heads()
      const [child, alone, prompt] = ['child', 'alone', 'prompt'].map((id) => heads.get(id)!)
      expect(child!.chain).toBe(alone!.chain)
      expect(child!.totals).toEqual(alone!.totals)
      expect(child!.conductor).toEqual(alone!.conductor)
      const told = async (id: string) => (await bench.generated(id)).map(({ ids, text }) => ({ ids, text }))
      expect(await told('child')).toEqual((await told('alone')).slice(3))
      expect(child!.born).toBe(2)
      expect(child!.from).toMatchObject({ session: 'prompt', pulse: 79 })
      expect(prompt!.conductor.globalStep).toBe(87)
      await verified(bench)
    })
  })
})
