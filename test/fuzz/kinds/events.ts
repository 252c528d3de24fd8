/**
 * Events: records of the input topic, damaged as JSON, as bytes, in their keys and headers, read by one of several
 * rules. Each goes through validate and tokenize, and a worker reads all of them from a log of its own: every record
 * must be finished, nothing refused, and verify must find nothing.
 */
import { join } from 'node:path'
import { openPackage } from '../../../src/models/open.ts'
import { validateRecord } from '../../../src/operators/pipeline/validate.ts'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import { startWorker } from '../../../src/operators/worker/worker.ts'
import type { RecordIn } from '../../../src/streams/log.ts'
import { openLog } from '../../../src/streams/open.ts'
import { TOPICS, topicNames } from '../../../topics/index.ts'
import { type InputRules, inputRules } from '../../../topics/input.ts'
import { eventually } from '../../streams/helpers.ts'
import type { OpenKind } from '../kind.ts'
import { damagedBytes, damagedJson, type Random } from '../mutate.ts'
import { goodPackages, writeFiles } from '../packages.ts'

const GOOD: readonly unknown[] = [
  { type: 'open', id: 'o', surprisal: true, perspectives: false, embedding: true },
  { type: 'text', text: "The harbour froze; don't \u{1f30a}" },
  { type: 'text', bytes: 'YWLDqeKC' },
  { type: 'tokens', tokens: [1, 2, 3] },
  {
    type: 'generate',
    requestId: 'r',
    maxTokens: 5,
    temperature: 0.7,
    topK: 3,
    topP: 0.9,
    stop: ['e'],
    seed: 4,
    run: 3,
    ...{ minP: 0.1, repetitionPenalty: 1.2, presencePenalty: -0.5, frequencyPenalty: 0.5, penaltyLast: 9 },
    ...{ logitBias: { 2: -1, 3: 4.5 }, topLogprobs: 2, stopTokens: [1], ignoreEnd: true },
  },
  { type: 'boundary', reset: true },
  { type: 'adapt', evaluations: 4, seed: 1 },
  { type: 'close', id: 'c' },
  { specversion: '1.0', id: 'e', source: '/s', type: 't', data: { type: 'text', text: 'ice', more: 1 } },
  { type: 'delete' },
]
const KEYS = ['a', 'b', 'a', 'b', '', '\u0000', 'é'.repeat(300)]

/** How the records are read; which of these it is follows from their number. */
const READINGS: readonly { readonly format: 'json' | 'text'; readonly input?: InputRules }[] = [
  { format: 'json' },
  { format: 'json', input: { unknownFields: 'ignore', cloudEvents: true, session: { is: 'partition' } } },
  {
    format: 'text',
    input: inputRules.parse({
      cloudEvents: true,
      generate: { every: 2, after: '}', header: 'trace', request: { maxTokens: 3, run: 2 } },
    }),
  },
]

const CLOUD_EVENTS: readonly (readonly (readonly [string, string])[])[] = [
  [['content-type', 'application/cloudevents+json']],
  [
    ['ce_specversion', '1.0'],
    ['ce_id', 'e'],
    ['ce_source', '/s'],
    ['ce_type', 't'],
  ],
  [['trace', '{"maxTokens":2}']],
]

/** A record as the corpus has it; null: no key, no value. */
interface Written {
  readonly key: string | null
  readonly value: string | null
  readonly headers: readonly (readonly [string, string])[]
}

const base64 = (bytes: Uint8Array | string): string => Buffer.from(bytes).toString('base64')

const written = (random: Random): Written => {
  const good = random.pick(GOOD)
  const kind = random.next()
  const text = JSON.stringify(good)
  const value = kind < 0.4 ? text : kind < 0.8 ? damagedJson(good, random) : damagedBytes(Buffer.from(text), random)
  const key = random.next() < 0.1 ? damagedBytes(Buffer.from('abc'), random) : random.pick(KEYS)
  return {
    key: random.next() < 0.03 ? null : base64(key),
    value: random.next() < 0.03 ? null : base64(value),
    headers:
      random.next() < 0.1
        ? [[random.pick(['trace', 'sha256', 'continuo-reason', '']), base64('x'.repeat(random.below(3000)))]]
        : random.next() < 0.3
          ? random.pick(CLOUD_EVENTS).map(([name, text]) => [name, base64(text)] as const)
          : [],
  }
}

const bytesOf = (text: string | null): Uint8Array | null => (text === null ? null : Buffer.from(text, 'base64'))

export const open: OpenKind = async (folder) => {
  const good = goodPackages()
  const bases = ['rwkv7', 'gpt2'] as const
  const opened = new Map<string, Awaited<ReturnType<typeof openPackage>>>()
  for (const base of bases) {
    writeFiles(join(folder, base), good.get(base)!)
    opened.set(base, await openPackage(join(folder, base), { device: 'cpu', threads: 1, warn: () => {} }))
  }
  let logs = 0
  return {
    bases,
    make: (_, random) =>
      Buffer.from(JSON.stringify(Array.from({ length: 1 + random.below(12) }, () => written(random)))),
    run: async (base, input) => {
      const { model, tokenizer } = opened.get(base)!
      const records = (JSON.parse(Buffer.from(input).toString()) as readonly Written[]).map(
        ({ key, value, headers }): RecordIn => ({
          key: bytesOf(key),
          value: bytesOf(value),
          headers: headers.map(([name, content]) => [name, Buffer.from(content, 'base64')]),
        }),
      )
      const reading = READINGS[records.length % READINGS.length]!
      const { format } = reading
      const validate = { ...reading, vocabSize: model.vocabSize, readsText: true }
      let valid = 0
      for (const [offset, { key, value, headers = [] }] of records.entries()) {
        const record = { topic: 'chunks', partition: 0, offset, timestamp: 0, key, value: value ?? null, headers }
        if (validateRecord(record, validate).kind === 'valid') valid += 1
      }
      logs += 1
      const log = await openLog(`file:${join(folder, `log-${logs}.db`)}`)
      try {
        const names = topicNames(log.prefix)
        await log.createTopics(
          TOPICS.map(({ name, settings }) => ({ name: names[name], partitions: 1, config: settings })),
        )
        await log.append(names.chunks, records)
        const group = 'fuzz'
        const worker = await startWorker({
          ...{ log, names, model, tokenizer, group, ...reading, commitInterval: 5, snapshotEvery: 50 },
          ...{ maxContexts: 4, compactFloor: 1 << 20, warn: () => undefined },
        })
        try {
          await eventually(async () => {
            if (worker.refused.size > 0) return
            const task = worker.tasks.get(0)
            if (task === undefined || task.state !== 'running' || task.offset < records.length)
              throw new Error(`a worker that has not finished ${records.length} records`)
          }, 60_000)
          if (worker.refused.size > 0)
            throw new Error(`The partition was refused: ${[...worker.refused.values()].join()}.`)
        } finally {
          await worker.stop()
        }
        const { findings } = await verifyLog({ log, names, model, tokenizer, format })
        if (findings.length > 0) throw new Error(`verify found ${JSON.stringify(findings).slice(0, 2000)}`)
      } finally {
        await log.close()
      }
      return valid === records.length ? 'all valid' : 'dead letters'
    },
    close: async () => {
      for (const { model } of opened.values()) model.close()
    },
  }
}
