/**
 * What is bounded: what is read ahead of a slow engine, the memory of a worker on an endless stream, a record of any
 * size.
 *
 * @module-tag slow
 */
import { randomBytes } from 'node:crypto'
import { rmSync } from 'node:fs'
import { expect, test } from 'vitest'
import type { Commit } from '../../../src/operators/pipeline/commit.ts'
import type { EventLog, Headers } from '../../../src/streams/log.ts'
import { openLog } from '../../../src/streams/open.ts'
import { SOURCE_LIMITS } from '../../../src/streams/source.ts'
import { topicNames } from '../../../topics/index.ts'
import { continuo, recordsOf, temporary } from '../../cli/helpers.ts'
import { refuses } from '../../streams/helpers.ts'
import { benches, event, onBothLogs } from '../harness.ts'

const MB = 1_000_000
const { use } = benches()

/** The log with every byte counted that a reader of `topic` was handed for the first time. */
const counting = (log: EventLog, topic: string, onRead: (bytes: number) => void): EventLog => {
  let next = 0
  return {
    ...log,
    read: async function* (name, partition, from, options) {
      for await (const batch of log.read(name, partition, from, options)) {
        if (name === topic) {
          const fresh = batch.records.filter(({ offset }) => offset >= next)
          next = Math.max(next, batch.next)
          onRead(fresh.reduce((sum, { value }) => sum + (value?.length ?? 0), 0))
        }
        yield batch
      }
    },
  }
}

const headerText = (headers: Headers, name: string): string =>
  Buffer.from(headers.find(([key]) => key === name)![1]).toString()

onBothLogs((fresh, kind) => {
  test('an engine slower than the log holds the reader back: 40 MB wait in the log, not in memory', {
    tags: 'slow',
  }, async () => {
    await use(
      async (bench) => {
        const text = 'All the winter long the harbour slept. '.repeat(5000)
        const count = Math.ceil((40 * MB) / text.length)
        for (let n = 0; n < count; n += 1) await bench.feed(event(`s${n % 64}`, { type: 'text', text }))

        let read = 0
        let finished = 0
        let furthest = 0
        let commits = 0
        let enough: () => void
        const some = new Promise<void>((resolve) => {
          enough = resolve
        })
        const log = counting(bench.log, bench.names.chunks, (bytes) => {
          read += bytes
          furthest = Math.max(furthest, read - finished)
        })
        const onCommit = ({ steps }: Commit): void => {
          for (const { done, record } of steps) if (done) finished += record.value!.length
          commits += 1
          if (commits === 20) enough()
        }
        const limits = { ...SOURCE_LIMITS, readAhead: 8 * MB }
        const running = await bench.start({ log, onCommit, commitInterval: 20, limits })
        await some
        await running.worker.stop()
        // What is unfinished, to within a stride of the source, and one batch of the log that waits.
        expect(furthest).toBeLessThanOrEqual(limits.readAhead + 2 * MB)
        expect(furthest).toBeGreaterThan(limits.readAhead / 2)
        expect(read).toBeLessThan(count * text.length)
      },
      1,
      fresh(),
    )
  })

  test('a record of 20 MB is read slice by slice, commits midway, and goes on where it stood', async () => {
    await use(
      async (bench) => {
        const text = 'Not a ship came in that year. '.repeat(Math.ceil((20 * MB) / 30))
        await bench.feed(event('s', { type: 'text', text }))
        const part = async (): Promise<number> => {
          let commits = 0
          let enough: () => void
          const some = new Promise<void>((resolve) => {
            enough = resolve
          })
          const { worker } = await bench.start({
            onCommit: () => {
              commits += 1
              if (commits === 4) enough()
            },
          })
          await some
          await worker.stop()
          const { cursor, totals } = (await bench.heads()).get('s')!
          expect(cursor).toMatchObject({ offset: 0, complete: false, token: totals.tokens, pulse: totals.tokens })
          return cursor.token
        }
        const first = await part()
        expect(first).toBeGreaterThan(0)
        expect(await part()).toBeGreaterThan(first)
        expect(await bench.log.committed('test', bench.names.chunks, 0)).toBe(0)
      },
      1,
      { ...fresh(), largest: 24 * MB },
    )
  })

  test('a record of 20 MB that is no event becomes a dead letter in parts; put together they are the record', async () => {
    await use(
      async (bench) => {
        const value = randomBytes(20 * MB)
        await bench.log.append(bench.names.chunks, [
          { key: Buffer.from('s'), value, headers: [['trace', value.subarray(0, 8)]] },
        ])
        await bench.feed(event('s', { type: 'text', text: 'after' }))
        await bench.settle()
        const letters = await bench.records('deadletters')
        expect(letters.map(({ headers }) => headerText(headers, 'continuo-part'))).toEqual(
          letters.map((_, n) => `${n + 1}/${letters.length}`),
        )
        expect(Buffer.concat(letters.map((letter) => letter.value!)).equals(value)).toBe(true)
        for (const { headers } of letters) expect(Buffer.from(headers[0]![1]).equals(value.subarray(0, 8))).toBe(true)
        expect((await bench.observations('s')).map(({ type }) => type)).toEqual(['opened', 'observed'])
      },
      1,
      { ...fresh(), largest: 24 * MB },
    )
  })

  test('a record of 20 MB that the topic does not take is refused before anything is written', async () => {
    await use(
      async (bench) => {
        const call = bench.feed(event('s', { type: 'text', text: 'x'.repeat(20 * MB) }))
        await refuses(call, 'INVALID', '20000', '1048')
        expect(await bench.log.bounds(bench.names.chunks, 0)).toEqual({ begin: 0, end: 0 })
      },
      1,
      fresh(),
    )
  })

  test('a worker needs no more memory for 200 MB than for 20 MB', async () => {
    const peak = async (megabytes: number): Promise<number> => {
      const url = fresh().url ?? `file:${temporary()}/log.db`
      const made = await continuo(['topics', 'apply', '--log', url])
      expect(made.code, made.err).toBe(0)
      const log = await openLog(url)
      const names = topicNames(log.prefix)
      const size = 800_000
      const count = Math.ceil((megabytes * MB) / size)
      for (let n = 0; n < count; n += 1) {
        await log.append(names.chunks, [
          event(`s${n % 8}`, { type: 'text', text: `Entry ${n} of the harbour log. ` }),
          { key: Buffer.from(`s${n % 8}`), value: randomBytes(size) },
        ])
      }
      await log.close()
      const report = 'process.on("exit",()=>console.error("peak",process.resourceUsage().maxRSS))'
      const { code, err } = await continuo(
        ['run', '--log', url, '--model', 'models/demo', '--until-idle', '200', '--log-level', 'error'],
        { env: { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(report)}` } },
      )
      expect(code, err).toBe(0)
      const letters = await recordsOf(url, names.deadletters)
      expect(letters.length).toBe(count)
      if (url.startsWith('file:')) rmSync(url.slice('file:'.length), { force: true })
      return Number(/peak (\d+)/.exec(err)![1])
    }
    const few = await peak(20)
    const many = await peak(200)
    console.log(`${kind}: peak of 20 MB ${few} kB, of 200 MB ${many} kB`)
    expect(many).toBeLessThan(few * 1.5)
  })
})
