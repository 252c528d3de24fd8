/** The worker's own decisions: when a lost, fenced or refused partition is tried again. */
import { describe, expect, test } from 'vitest'
import type { Model } from '../../../src/engine/types.ts'
import { ContinuoError } from '../../../src/errors.ts'
import type { EventLog } from '../../../src/streams/log.ts'
import { openLog } from '../../../src/streams/open.ts'
import { eventually } from '../../streams/helpers.ts'
import { benches, event } from '../harness.ts'

const { open, use } = benches()

/** The log with its first `times` commits failing as a broker's would; the transaction does not happen. */
const failing = (log: EventLog, times: number, error: ContinuoError): EventLog => {
  let left = times
  return {
    ...log,
    claim: async (...args) => {
      const writer = await log.claim(...args)
      return {
        ...writer,
        commit: async (...atom) => {
          if (left === 0) return writer.commit(...atom)
          left -= 1
          throw error
        },
      }
    },
  }
}

describe('a worker', () => {
  test('claims a partition again after its log failed, until it works; the stream is whole', async () => {
    await use(async (bench) => {
      const warnings: string[] = []
      const log = failing(bench.log, 3, new ContinuoError('UNAVAILABLE', 'The broker is away.'))
      await bench.feed(event('s', { type: 'text', text: 'Three times nothing.' }))
      const { states } = await bench.settle({ log, retryPause: 1, warn: (message) => warnings.push(message) })
      expect(warnings).toEqual([1, 2, 4].map((ms) => `Partition 0: The broker is away. Trying again in ${ms} ms.`))
      expect(states.filter(({ state }) => state === 'lost')).toHaveLength(3)
      expect((await bench.observations('s')).map(({ type }) => type)).toEqual(['opened', 'observed'])
    })
  })

  test('fenced with nobody there to own the partition, claims it again after a while', async () => {
    await use(async (bench) => {
      const running = await bench.start({ fencedPause: 1 })
      await running.idle()
      // A claim from outside the group: a stale tool, or a broker that ended a transaction by itself.
      const other = await openLog(bench.url)
      await (await other.claim('test', bench.names.chunks, 0)).close()
      await other.close()
      await bench.feed(event('s', { type: 'text', text: 'Who is there?' }))
      await running.idle()
      await running.worker.stop()
      expect(running.states.map(({ state }) => state)).toContain('migrated')
      expect((await bench.observations('s')).map(({ type }) => type)).toEqual(['opened', 'observed'])
    })
  })

  test('fenced while the engine works for it, is over only when the engine is done: then the model may be closed', async () => {
    await use(async (bench) => {
      const called = Promise.withResolvers<void>()
      const goOn = Promise.withResolvers<void>()
      let inFlight = 0
      let fed = false
      const model: Model = {
        ...bench.model,
        submit: async (item) => {
          inFlight += 1
          if (item.tokens.length === 4) {
            called.resolve()
            await goOn.promise
          }
          const result = await bench.model.submit(item)
          inFlight -= 1
          return result
        },
      }
      const log: EventLog = {
        ...bench.log,
        claim: async (...args) => {
          const writer = await bench.log.claim(...args)
          return {
            ...writer,
            commit: async (...atom) => {
              if (!fed) return writer.commit(...atom)
              await called.promise
              throw new ContinuoError('FENCED', 'Somebody else owns it.')
            },
          }
        },
      }
      const running = await bench.start({
        log,
        model,
        fencedPause: 3_600_000,
        onState: (_, state) => {
          if (state === 'migrated') setImmediate(goOn.resolve)
        },
      })
      await running.idle()
      const [task] = running.worker.tasks.values()
      fed = true
      await bench.feed(event('a', { type: 'text', text: 'To commit.' }), event('b', { type: 'text', text: 'Slow' }))
      expect((await task!.over).state).toBe('migrated')
      expect(inFlight).toBe(0)
      await running.worker.stop()
    })
  })

  test('does not touch a refused partition again, and says why', async () => {
    await use(async (bench) => {
      const log = failing(bench.log, 1, new ContinuoError('REFUSED', 'It does not match.'))
      await bench.feed(event('s', { type: 'text', text: 'No.' }))
      const { worker, states } = await bench.start({ log, retryPause: 1 })
      await eventually(() => expect(worker.refused.size).toBe(1))
      expect(worker.idleFor(0)).toBe(true)
      await worker.stop()
      expect((worker.refused.get(0) as Error).message).toBe('It does not match.')
      expect(states.filter(({ state }) => state === 'claiming')).toHaveLength(1)
    })
  })

  test('a session that diverges is set aside by name; another partition that shared the batch goes on', async () => {
    const bench = await open(2)
    const sessions = ['a', 'b', 'c', 'd', 'e', 'f']
    const at = await Promise.all(
      sessions.map((session) => bench.log.partitionOf(bench.names.chunks, Buffer.from(session))),
    )
    const [bad, good] = [sessions[at.indexOf(0)]!, sessions[at.indexOf(1)]!]
    // Finite numbers that overflow with the next token.
    const doomed: Model = {
      ...bench.model,
      openContext: async (...given) => {
        const context = await bench.model.openContext(...given)
        const restart = context.restart.bind(context)
        context.restart = async () => {
          await restart()
          const state = await context.state()
          const view = new DataView(state.buffer, state.byteOffset, state.length)
          for (let byte = 0; byte < state.length; byte += 4) view.setFloat32(byte, 3e38, true)
          await context.load(state, context)
        }
        return context
      },
    }
    try {
      await bench.feed(event(bad, { type: 'text', text: 'fine. ' }), event(bad, { type: 'boundary', reset: true }))
      await bench.feed(event(bad, { type: 'text', text: 'not fine.' }))
      await bench.feed(event(good, { type: 'text', text: 'fine here.' }))
      const { worker } = await bench.settle({ model: doomed })
      expect([...worker.refused]).toEqual([])
      const heads = await bench.heads()
      expect(heads.get(bad)).toMatchObject({ status: 'stopped', stopped: { cause: 'computation', offset: 2 } })
      expect(heads.get(bad)!.conductor.globalStep).toBe(6)
      expect(heads.get(good)!.totals.tokens).toBe(10)
    } finally {
      await bench.close()
    }
  })
})
