/**
 * Files for `continuo import`: an exported session with its header, head or numbers damaged, often with the checksum
 * made right again. What import takes, a worker must be able to go on with: it generates some tokens, and its partition
 * is not refused.
 */
import { createHash } from 'node:crypto'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { exportSession } from '../../../src/cli/commands/export.ts'
import { importSession } from '../../../src/cli/commands/import.ts'
import { openPackage } from '../../../src/models/open.ts'
import { startWorker } from '../../../src/operators/worker/worker.ts'
import type { EventLog } from '../../../src/streams/log.ts'
import { openLog } from '../../../src/streams/open.ts'
import { TOPICS, type TopicNames, topicNames } from '../../../topics/index.ts'
import type { Generated } from '../../../topics/tokens.ts'
import { filesOf, SETTINGS } from '../../models/outer-memory/outer-memory-settings.ts'
import { forged, isWhole, numbersOf, putNumbers } from '../../sessions/forged.ts'
import { eventually } from '../../streams/helpers.ts'
import type { OpenKind } from '../kind.ts'
import { damagedJson, damagedSafetensors, joined, partsOf, type Random } from '../mutate.ts'
import { type Files, goodPackages, writeFiles } from '../packages.ts'

const TOKENS = 5
const IDS = Array.from({ length: 130 }, (_, at) => (at * 5 + (at >> 3)) % 27)

interface Base {
  readonly files: Files
  /** What the session in the file has read. */
  readonly fed: readonly object[]
  /** What it is to go on with: a request of TOKENS tokens among them. */
  readonly goesOn: readonly object[]
}

const request = { type: 'generate', requestId: 'q', maxTokens: TOKENS, seed: 1 }
/** Every table that an external memory can have: topics of a Q-Former, a trimmer, and blocks that come a beat later. */
const [everything] = SETTINGS.filter(({ name }) => name === 'topics of a Q-Former, and a walker, a beat later')
const BASES: Readonly<Record<string, Base>> = {
  rwkv7: {
    files: goodPackages().get('rwkv7')!,
    fed: [
      { type: 'text', text: 'The harbour froze in the first week.' },
      { type: 'generate', requestId: 'r', maxTokens: 9, seed: 3 },
    ],
    goesOn: [request],
  },
  memory: {
    files: filesOf(everything!).files,
    // It ends before the beat at which the blocks of its last retrieval come.
    fed: [{ type: 'tokens', tokens: IDS }],
    goesOn: [
      { type: 'tokens', tokens: IDS.slice(0, 20) },
      { type: 'archive' },
      { type: 'retrieve' },
      { type: 'retrieve', blocks: [3, 9] },
      request,
      { type: 'tokens', tokens: IDS.slice(0, 40) },
    ],
  },
}

/** Whole numbers of the state changed, some to what their neighbours are, and the checksum with them. */
const otherNumbers = (file: Uint8Array, random: Random): Uint8Array =>
  forged(file, {
    tensors: (tensors) => {
      const names = [...tensors].filter(([, tensor]) => isWhole(tensor)).map(([name]) => name)
      for (let times = 1 + random.below(3); times > 0; times -= 1) {
        const name = random.pick(names)
        const numbers = numbersOf(tensors.get(name)!)
        if (numbers.length === 0) continue
        const at = random.below(numbers.length)
        const own = numbers[at]!
        numbers[at] = random.pick([
          own + 1,
          own - 1,
          0,
          -1,
          random.pick(numbers),
          2 ** 31 - 1,
          -(2 ** 31),
          random.below(64),
        ])
        putNumbers(tensors, name, numbers)
      }
    },
  })

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

interface Opened {
  readonly make: (random: Random) => Uint8Array
  readonly run: (input: Uint8Array) => Promise<string>
  readonly close: () => void
}

/** `folder` is this base's own. */
const openBase = async (folder: string, { files, fed, goesOn }: Base): Promise<Opened> => {
  const dir = join(folder, 'model')
  writeFiles(dir, files)
  const { model, tokenizer } = await openPackage(dir, { device: 'cpu', threads: 1, warn: () => {} })

  const withTopics = async (path: string): Promise<{ readonly log: EventLog; readonly names: TopicNames }> => {
    const log = await openLog(`file:${path}`)
    const names = topicNames(log.prefix)
    await log.createTopics(TOPICS.map(({ name, settings }) => ({ name: names[name], partitions: 1, config: settings })))
    return { log, names }
  }
  const feed = async (log: EventLog, names: TopicNames, session: string, events: readonly object[]): Promise<void> => {
    await log.append(
      names.chunks,
      events.map((event) => ({ key: Buffer.from(session), value: Buffer.from(JSON.stringify(event)) })),
    )
  }
  /** A worker reads all that is in the log. */
  const readAll = async (log: EventLog, names: TopicNames): Promise<void> => {
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

  const exported = join(folder, 'exported')
  {
    const path = join(folder, 'first.db')
    const { log, names } = await withTopics(path)
    await feed(log, names, 's', fed)
    await readAll(log, names)
    await log.close()
    await exportSession.run(['--log', `file:${path}`, '--session', 's', exported, '--model', dir, '--device', 'cpu'])
  }
  const good = readFileSync(exported)
  const remembers = model.outerMemory !== null
  let logs = 0
  return {
    make: (random) => {
      const kind = random.next()
      if (remembers && kind < 0.5) return otherNumbers(good, random)
      return kind < 0.6 ? resealed(good, random) : damagedSafetensors(good, random)
    },
    run: async (input) => {
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
          await feed(log, names, 'mine', goesOn)
          await readAll(log, names)
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
    close: () => model.close(),
  }
}

export const open: OpenKind = async (folder) => {
  const opened = new Map<string, Opened>()
  for (const [name, base] of Object.entries(BASES)) opened.set(name, await openBase(join(folder, name), base))
  return {
    bases: Object.keys(BASES),
    make: (base, random) => opened.get(base)!.make(random),
    run: (base, input) => opened.get(base)!.run(input),
    close: async () => {
      for (const { close } of opened.values()) close()
    },
  }
}
