/**
 * Files for `continuo import`: an exported session with its header, head or numbers damaged, often with the checksum made right again.
 * What import takes, a worker must be able to go on with: it generates some tokens, and its partition is not refused.
 */
import { createHash } from 'node:crypto'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { exportSession } from '../../../src/cli/commands/export.ts'
import { importSession } from '../../../src/cli/commands/import.ts'
import { type ModelPackage, openPackage } from '../../../src/models/open.ts'
import { startWorker } from '../../../src/operators/worker.ts'
import type { EventLog } from '../../../src/streams/log.ts'
import { openLog } from '../../../src/streams/open.ts'
import { TOPICS, type TopicNames, topicNames } from '../../../topics/index.ts'
import type { Generated } from '../../../topics/tokens.ts'
import { openFamily } from '../../families.ts'
import { eventually } from '../../streams/helpers.ts'
import type { OpenKind } from '../kind.ts'
import { damagedJson, damagedSafetensors, joined, partsOf, type Random } from '../mutate.ts'
import { goodPackages, writeFiles } from '../packages.ts'

const TOKENS = 5

/** The head changed, and the checksum of the file over head and state with it. */
const resealed = (file: Uint8Array, random: Random): Uint8Array => {
  const { header, data } = partsOf(file)
  const tensors = JSON.parse(header) as { __metadata__: Record<string, string> }
  const { vitals = '', ...metadata } = tensors.__metadata__
  const head = damagedJson(JSON.parse(metadata.head!), random)
  const sha256 = createHash('sha256').update(head).update(data).update(vitals).digest('hex')
  return joined(
    JSON.stringify({ ...tensors, __metadata__: { ...metadata, ...(vitals && { vitals }), head, sha256 } }),
    data,
  )
}

/** A model, and a session of it as `continuo export` wrote it. */
interface Base {
  readonly dir: string
  readonly loaded: ModelPackage
  readonly good: Uint8Array
}

const withTopics = async (path: string): Promise<{ readonly log: EventLog; readonly names: TopicNames }> => {
  const log = await openLog(`file:${path}`)
  const names = topicNames(log.prefix)
  await log.createTopics(TOPICS.map(({ name, settings }) => ({ name: names[name], partitions: 1, config: settings })))
  return { log, names }
}

/** A worker reads all that is in the log. */
const readAll = async (log: EventLog, names: TopicNames, { model, tokenizer }: ModelPackage): Promise<void> => {
  const worker = await startWorker({
    ...{ log, names, model, tokenizer, group: 'continuo', format: 'json', commitInterval: 5, snapshotEvery: 50 },
    ...{ maxContexts: 4, compactFloor: 1 << 20, warn: () => undefined },
  })
  try {
    const { end } = await log.bounds(names.chunks, 0)
    await eventually(async () => {
      if (worker.refused.size > 0) return
      const task = worker.tasks.get(0)
      if (task === undefined || task.state !== 'running' || task.offset < end)
        throw new Error(`a worker that has not finished ${end} records`)
    }, 60_000)
    if (worker.refused.size > 0)
      throw new Error(`What import took stops its partition: ${[...worker.refused.values()].join()}.`)
  } finally {
    await worker.stop()
  }
}

const baseOf = async (dir: string, folder: string, text: string): Promise<Base> => {
  const loaded = await openPackage(dir, { device: 'cpu', threads: 1, warn: () => {} })
  const exported = join(folder, 'exported')
  const path = join(folder, 'first.db')
  const { log, names } = await withTopics(path)
  const fed = [
    { type: 'text', text },
    { type: 'generate', requestId: 'r', maxTokens: 9, seed: 3 },
  ]
  await log.append(
    names.chunks,
    fed.map((event) => ({ key: Buffer.from('s'), value: Buffer.from(JSON.stringify(event)) })),
  )
  await readAll(log, names, loaded)
  await log.close()
  await exportSession.run(['--log', `file:${path}`, '--session', 's', exported, '--model', dir, '--device', 'cpu'])
  const good = readFileSync(exported)
  for (const left of [exported, path, `${path}-wal`, `${path}-shm`]) rmSync(left, { force: true })
  return { dir, loaded, good }
}

const SENTENCE = 'The harbour froze in the first week. '

export const open: OpenKind = async (folder) => {
  const plain = join(folder, 'rwkv7')
  writeFiles(plain, goodPackages().get('rwkv7')!)
  const bases = new Map([
    ['rwkv7', await baseOf(plain, folder, SENTENCE)],
    // Caches, archived blocks and an index that lie in blocks.
    ['memory', await baseOf((await openFamily('memory', folder)).dir, folder, SENTENCE.repeat(30))],
  ])
  let logs = 0
  return {
    bases: [...bases.keys()],
    make: (base, random) => {
      const { good } = bases.get(base)!
      return random.next() < 0.6 ? resealed(good, random) : damagedSafetensors(good, random)
    },
    run: async (base, input) => {
      const { dir, loaded } = bases.get(base)!
      const file = join(folder, 'damaged')
      writeFileSync(file, input)
      logs += 1
      const path = join(folder, `log-${logs}.db`)
      const command = ['--log', `file:${path}`, '--session', 'mine', file, '--model', dir, '--device', 'cpu']
      try {
        const code = await importSession.run(command)
        if (code !== 0) return `exit ${code}`
        const { log, names } = await withTopics(path)
        try {
          const request = { type: 'generate', requestId: 'q', maxTokens: TOKENS, seed: 1 }
          await log.append(names.chunks, [{ key: Buffer.from('mine'), value: Buffer.from(JSON.stringify(request)) }])
          await readAll(log, names, loaded)
          let ids = 0
          const { begin, end } = await log.bounds(names.tokens, 0)
          for await (const { records } of log.read(names.tokens, 0, begin, { until: end }))
            for (const { value } of records) ids += (JSON.parse(Buffer.from(value!).toString()) as Generated).ids.length
          if (ids > TOKENS || end - begin > TOKENS + 1)
            throw new Error(`A request of ${TOKENS} tokens was answered by ${ids} tokens in ${end - begin} records.`)
          return 'imported and went on'
        } finally {
          await log.close()
        }
      } finally {
        for (const end of ['', '-wal', '-shm']) rmSync(`${path}${end}`, { force: true })
      }
    },
    close: async () => {
      for (const { loaded } of bases.values()) loaded.model.close()
    },
  }
}
