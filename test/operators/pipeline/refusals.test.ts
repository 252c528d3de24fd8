/**
 * What must not resume, and what verify must find. Tampering goes behind the log's back, straight into its database.
 */
import { readFileSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect, test } from 'vitest'
import { sha256 } from '../../../src/hash.ts'
import { type Finding, verifyLog } from '../../../src/operators/verify/verify.ts'
import { seal, unseal } from '../../../src/state/head.ts'
import { encodeSnapshot, readSnapshotFile } from '../../../src/state/snapshot.ts'
import { eventually } from '../../streams/helpers.ts'
import { type Bench, benches, event } from '../harness.ts'

const document = readFileSync(new URL('../../../docs/demo/harbour-log.txt', import.meta.url), 'utf8')

const { open } = benches()

/** A finished log of one session: text, a generation, a snapshot. */
const finished = async (): Promise<Bench> => {
  const bench = await open()
  await bench.feed(
    event('s', { type: 'text', text: document.slice(0, 2500) }),
    event('s', { type: 'generate', requestId: 'r', maxTokens: 20, seed: 1 }),
    event('s', { type: 'text', text: document.slice(2500, 2800) }),
  )
  await bench.settle({ commitInterval: 1 })
  return bench
}

interface Row {
  readonly offset: number
  readonly value: Uint8Array
}

/** Runs SQL on the log's own file, as somebody with an editor would. */
const tamper = (
  bench: Bench,
  act: (
    db: DatabaseSync,
    rows: (topic: string) => Row[],
    put: (topic: string, offset: number, value: Uint8Array) => void,
  ) => void,
): void => {
  const db = new DatabaseSync(bench.url.slice('file:'.length))
  const id = (topic: string) =>
    (db.prepare('SELECT id FROM topics WHERE name = ?').get(`${bench.log.prefix}.${topic}`) as { id: number }).id
  try {
    act(
      db,
      (topic) =>
        db
          .prepare('SELECT "offset", value FROM records WHERE topic = ? ORDER BY "offset"')
          .all(id(topic)) as unknown as Row[],
      (topic, offset, value) =>
        db
          .prepare('UPDATE records SET checksum = NULL, value = ? WHERE topic = ? AND "offset" = ?')
          .run(value, id(topic), offset),
    )
  } finally {
    db.close()
  }
}

const flipped = (value: Uint8Array, at: number): Uint8Array => {
  const copy = Uint8Array.from(value)
  copy[at]! ^= 1
  return copy
}

/** Feeds one more event, so that the session must be restored, and returns why the task refused. */
const refusal = async (bench: Bench, options: Parameters<Bench['start']>[0] = {}): Promise<string> => {
  const before = [...(await bench.records('tokens')), ...(await bench.records('observations'))].length
  await bench.feed(event('s', { type: 'text', text: 'more' }))
  const { worker } = await bench.start(options)
  await eventually(() => expect(worker.refused.size).toBe(1))
  await worker.stop()
  expect([...(await bench.records('tokens')), ...(await bench.records('observations'))].length).toBe(before)
  return (worker.refused.get(0) as Error).message
}

const withBench = async (claim: (bench: Bench) => Promise<void>): Promise<void> => {
  const bench = await finished()
  try {
    await claim(bench)
  } finally {
    await bench.close()
  }
}

const newestHead = (rows: readonly Row[]): Row =>
  rows.findLast(({ value }) => Buffer.from(value).toString().includes('"type":"head"'))!

describe('resume refuses, names both sides and writes nothing', () => {
  test('a head with one flipped bit', () =>
    withBench(async (bench) => {
      tamper(bench, (_, rows, put) => {
        const row = newestHead(rows('state'))
        put('state', row.offset, flipped(row.value, 40))
      })
      expect(await refusal(bench)).toMatch(
        /state record at continuo\.state, partition 0, offset \d+ fails its checksum: the header says [0-9a-f]{64}, the bytes give [0-9a-f]{64}/,
      )
    }))

  test('a reset consumer offset', () =>
    withBench(async (bench) => {
      tamper(bench, (db) => db.exec('UPDATE offsets SET "offset" = 1'))
      expect(await refusal(bench)).toMatch(/committed offset 1 of .*, the cursor in the log says 3\. Somebody reset/)
    }))

  test('but a deleted consumer offset is told and resumed from the cursor', { tags: 'slow' }, () =>
    withBench(async (bench) => {
      tamper(bench, (db) => db.exec('DELETE FROM offsets'))
      await bench.feed(event('s', { type: 'text', text: 'more' }))
      const warnings: string[] = []
      await bench.settle({ warn: (message) => warnings.push(message) })
      expect(warnings).toEqual([
        'Group "test" has no committed offset for continuo.chunks, partition 0 (deleted or expired); resuming from the cursor in the log, offset 3.',
      ])
      expect(await bench.log.committed('test', bench.names.chunks, 0)).toBe(4)
      const { findings } = await verifyLog({ ...bench, format: 'json' })
      expect(findings).toEqual([])
    }),
  )

  test('a log of another model', () =>
    withBench(async (bench) => {
      const stranger = { ...bench.model, fingerprint: 'f'.repeat(64) }
      expect(await refusal(bench, { model: stranger })).toMatch(
        /was written by model [0-9a-f]{12}…, the loaded model is f{12}…\. Load the model that wrote this log \(continuo model show/,
      )
    }))

  test('a deleted state topic under a committed offset', () =>
    withBench(async (bench) => {
      tamper(bench, (db) =>
        db.exec(`DELETE FROM records WHERE topic = (SELECT id FROM topics WHERE name = '${bench.names.state}')`),
      )
      tamper(bench, (db) =>
        db.exec(
          `UPDATE partitions SET "begin" = "end" WHERE topic = (SELECT id FROM topics WHERE name = '${bench.names.state}')`,
        ),
      )
      expect(await refusal(bench)).toMatch(/has committed offset 3 .* holds no cursor/)
    }))

  test('another group on the same prefix', () =>
    withBench(async (bench) => {
      expect(await refusal(bench, { group: 'other' })).toMatch(/belongs to group "test".*this worker is group "other"/)
    }))

  test('an input topic whose record was exchanged under a session that stands inside it', async () => {
    const bench = await open()
    await bench.feed(event('s', { type: 'text', text: document.repeat(6) }))
    const running = await bench.start({ commitInterval: 1 })
    await eventually(() => expect(running.commits.length).toBeGreaterThan(3))
    await running.worker.stop()
    tamper(bench, (_, __, put) =>
      put('chunks', 0, Buffer.from(JSON.stringify({ type: 'text', text: 'x'.repeat(100_000) }))),
    )
    const { worker } = await bench.start()
    await eventually(() => expect(worker.refused.size).toBe(1))
    await worker.stop()
    expect((worker.refused.get(0) as Error).message).toMatch(
      /stands inside the record at offset 0 .* but that record is now another one/,
    )
    await bench.close()
  })
})

describe('verify', () => {
  const findings = async ({ log, names, model, tokenizer }: Bench): Promise<readonly Finding[]> =>
    (await verifyLog({ log, names, model, tokenizer, format: 'json' })).findings

  /** Replaces a value and, where the record is sealed, its seal: tampering by somebody who knows the format. */
  const replace = (
    bench: Bench,
    topic: 'state' | 'snapshots',
    pick: (rows: readonly Row[]) => Row,
    change: (value: Uint8Array) => Uint8Array,
  ): void =>
    tamper(bench, (db, rows) => {
      const row = pick(rows(topic))
      const value = change(row.value)
      const packed = Buffer.alloc(8)
      packed.writeUInt32LE(6, 0)
      packed.writeUInt32LE(64, 4)
      db.prepare(
        'UPDATE records SET checksum = NULL, value = ?, headers = ? WHERE "offset" = ? AND topic = (SELECT id FROM topics WHERE name = ?)',
      ).run(
        value,
        Buffer.concat([packed, Buffer.from('sha256'), Buffer.from(sha256(value))]),
        row.offset,
        bench.names[topic],
      )
    })

  test('proves a finished log', () =>
    withBench(async (bench) => {
      const result = await verifyLog({
        log: bench.log,
        names: bench.names,
        model: bench.model,
        tokenizer: bench.tokenizer,
        format: 'json',
      })
      expect(result).toMatchObject({ sessions: 1, events: 3, tokensCompared: 20, findings: [] })
      expect(result.headsCompared).toBeGreaterThan(3)
      expect(result.snapshotsCompared).toBeGreaterThan(1)
    }))

  test('finds one altered token', { tags: 'slow' }, () =>
    withBench(async (bench) => {
      tamper(bench, (_, rows, put) => {
        const [row] = rows('tokens')
        const told = JSON.parse(Buffer.from(row!.value).toString())
        told.ids[3] += 1
        put('tokens', row!.offset, Buffer.from(JSON.stringify(told)))
      })
      expect(await findings(bench)).toMatchObject([
        { kind: 'token', session: 's', where: 'continuo.tokens, partition 0, offset 0' },
      ])
    }),
  )

  test('finds a removed and a repeated event', { tags: 'slow' }, () =>
    withBench(async (bench) => {
      tamper(bench, (_, rows, put) => {
        const [first, second] = rows('tokens')
        put('tokens', second!.offset, first!.value)
      })
      expect((await findings(bench)).map(({ kind }) => kind)).toEqual(['token'])
    }),
  )

  test('finds a head that was altered and sealed again', { tags: 'slow' }, () =>
    withBench(async (bench) => {
      replace(bench, 'state', newestHead, (value) => {
        const head = JSON.parse(Buffer.from(value).toString())
        return Buffer.from(JSON.stringify({ ...head, chain: '0'.repeat(32) }))
      })
      const found = await findings(bench)
      expect(found.map(({ kind }) => kind)).toContain('head')
      expect(found.find(({ kind }) => kind === 'head')!.message).toMatch(/chain: "0{32}" against "[0-9a-f]{32}"/)
    }),
  )

  test(
    'finds a snapshot with a flipped bit, and one that was made anew with every seal in order',
    { tags: 'slow' },
    () =>
      withBench(async (bench) => {
        const { layout } = bench.model
        let newest: Uint8Array = new Uint8Array(0)
        tamper(bench, (_, rows) => {
          newest = rows('snapshots').at(-1)!.value
        })
        const { head: named, state, stats } = await readSnapshotFile(newest)
        // As long as it was: only its bytes give it away.
        const forged = await encodeSnapshot(named, flipped(state, 1001), layout, stats!)
        const last = (rows: readonly Row[]): Row => rows.at(-1)!
        replace(bench, 'snapshots', last, () => forged)
        const found = await findings(bench)
        expect(found.some(({ kind, message }) => kind === 'snapshot' && message.includes('fails its checksum'))).toBe(
          true,
        )
        replace(bench, 'state', newestHead, (value) => {
          const head = JSON.parse(Buffer.from(value).toString())
          return Buffer.from(JSON.stringify({ ...head, snapshot: { ...head.snapshot, sha256: sha256(forged) } }))
        })
        expect(await findings(bench)).toMatchObject([
          { kind: 'snapshot', message: 'The snapshot differs from the recomputed state.' },
        ])
      }),
  )

  test('starts at the oldest snapshot where the first events were trimmed, and says so', () =>
    withBench(async (bench) => {
      await bench.log.trim(bench.names.chunks, 0, 2)
      const { log, names, model, tokenizer } = bench
      const result = await verifyLog({ log, names, model, tokenizer, format: 'json' })
      expect(result.findings).toEqual([])
      expect(result.partial).toMatchObject([{ session: 's' }])
    }))

  test('finds a removed dead letter', async () => {
    const bench = await open()
    await bench.feed(event('s', { type: 'text', text: 'good' }), event('s', '{"type":"bad"}'))
    await bench.settle()
    tamper(bench, (db) =>
      db.exec(`DELETE FROM records WHERE topic = (SELECT id FROM topics WHERE name = '${bench.names.deadletters}')`),
    )
    tamper(bench, (db) =>
      db.exec(
        `UPDATE partitions SET "begin" = "end" WHERE topic = (SELECT id FROM topics WHERE name = '${bench.names.deadletters}')`,
      ),
    )
    expect(await findings(bench)).toMatchObject([{ kind: 'deadletter', where: 'continuo.chunks, offset 1' }])
    await bench.close()
  })

  test('a sealed record opens only under its own key', () => {
    const record = {
      type: 'cursor' as const,
      version: 1 as const,
      group: 'g',
      topic: 't',
      partition: 0,
      offset: 0,
      done: [] as [number, number][],
      model: '0'.repeat(64),
      layout: '0'.repeat(64),
    }
    const { value, headers } = seal(record)
    expect(() => unseal('here', Buffer.from('s'), value, headers)).toThrow(/has the key "s" but speaks of ""/)
  })
})
