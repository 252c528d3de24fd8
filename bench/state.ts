/**
 * The cost of snapshots: for sessions of different lengths, the bytes that 1,000 new tokens add to log and blob store,
 * and the time from the capture of a state until a committed head names it; then the time of restoring each from its
 * snapshot, beside that of reading the files that hold it, and of forking it. Sessions of that length are made from
 * random numbers and imported.
 *
 *   node bench/state.ts [--positions 1000,10000,100000] [--window 0] [--rounds 3] [--blob-store topic|folder] [--log kafka://…]
 *     [--dir DIR]
 *
 * With a window the model sees so many positions, and keeps no others; the sessions have read as many as `--positions`
 * says.
 *
 * DIR lies on the disk that is measured; default: the folder for temporary files. Where the program may empty the cache
 * of files (root, Linux), it also measures with an empty one.
 */
import {
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { Context } from '../src/engine/context.ts'
import type { Model } from '../src/engine/types.ts'
import { openPackage } from '../src/models/open.ts'
import { restoreSession } from '../src/operators/snapshots/restore.ts'
import { writeSnapshot } from '../src/operators/snapshots/snapshots.ts'
import { readState } from '../src/operators/verify/stored.ts'
import { openState } from '../src/operators/worker/partition-state.ts'
import { startWorker } from '../src/operators/worker/worker.ts'
import { type Head, type SnapshotRef, seal } from '../src/state/head.ts'
import { encodeSnapshot } from '../src/state/snapshot.ts'
import type { EventLog } from '../src/streams/log.ts'
import { openLog } from '../src/streams/open.ts'
import { safetensors, writePackageTo } from '../test/engine/safetensors.ts'
import { gpt2ConfigOf, randomGpt2 } from '../test/models/gpt2/gpt2.ts'
import { TOPICS, topicNames } from '../topics/index.ts'
import { parseArgs } from './options.ts'
import { median } from './support.ts'

const { values } = parseArgs({
  options: {
    positions: { type: 'string', default: '1000,10000,100000' },
    window: { type: 'string', default: '0' },
    rounds: { type: 'string', default: '3' },
    'blob-store': { type: 'string', default: 'topic' },
    log: { type: 'string' },
    dir: { type: 'string', default: tmpdir() },
  },
})
const lengths = values.positions.split(',').map(Number)
const window = Number(values.window)
const rounds = Number(values.rounds)
const TOKENS = 1000
const GROUP = 'bench'
const SESSION = 'long'

const dir = mkdtempSync(join(values.dir, 'continuo-state-'))
const sizes = { L: 4, H: 4, N: 16, F: 64, V: 256, P: window || Math.max(...lengths) + (rounds + 2) * TOKENS }
/** Keys and values of one position. */
const positionBytes = 2 * sizes.L * sizes.H * sizes.N * 4

const filesBelow = (folder: string): readonly string[] =>
  !existsSync(folder)
    ? []
    : readdirSync(folder, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map(({ parentPath, name }) => join(parentPath, name))

const bytesBelow = (folder: string): number => filesBelow(folder).reduce((sum, path) => sum + statSync(path).size, 0)

const partBytes = async (log: EventLog, topic: string): Promise<number> => {
  const { begin, end } = await log.bounds(topic, 0)
  let bytes = 0
  for await (const { records } of log.read(topic, 0, begin, { until: end }))
    for (const { value } of records) bytes += value?.length ?? 0
  return bytes
}

/** Those of which the state has keys and values after so many. */
const kept = (positions: number): number => (window === 0 ? positions : Math.min(window, positions))

/** A state of so many positions, all numbers small. */
const stateOf = (model: Model, positions: number): Uint8Array => {
  const { first } = model.layout
  const state = new Uint8Array(
    (window === 0 ? positions * positionBytes : 0) + first.reduce((sum, { bytes }) => sum + bytes, 0),
  )
  new DataView(state.buffer).setBigInt64(first.find(({ dtype }) => dtype === 'I64')!.offset, BigInt(positions), true)
  for (const { dtype, offset, bytes } of model.layout.tensors(state)) {
    if (dtype !== 'F32') continue
    const numbers = new Float32Array(state.buffer, offset, bytes / 4)
    for (let at = 0; at < numbers.length; at += 1) numbers[at] = ((at * 7919) % 1009) / 1009 - 0.5
  }
  return state
}

/** Begins the session in the log as an import does. */
const begin = async (log: EventLog, model: Model, positions: number): Promise<void> => {
  const names = topicNames(log.prefix)
  const writer = await log.claim(GROUP, names.chunks, 0)
  const { cursor } = await openState(writer, { log, names, group: GROUP, model, warn: console.error }, 0, 0)
  const head: Head = {
    type: 'head',
    version: 1,
    session: SESSION,
    model: model.fingerprint,
    layout: model.layoutFingerprint,
    status: 'open',
    settings: { surprisal: false },
    cursor: {
      topic: names.chunks,
      partition: 0,
      offset: cursor.offset - 1,
      token: 0,
      complete: true,
      held: '',
      chunk: null,
      hash: '0'.repeat(64),
      rng: positions,
      pulse: positions,
    },
    conductor: { globalStep: positions, phase: 'stream', origin: 0 },
    chain: '0'.repeat(32),
    born: -1,
    totals: { tokens: positions, predictions: positions - 1, nats: 0, generated: 0 },
    span: { fromPulse: positions, tokens: 0, predictions: 0, bytes: 0, nats: 0, surprisal: [] },
    generation: null,
    snapshot: null,
  }
  const file = await encodeSnapshot(head, stateOf(model, positions), model.layout)
  const writing = await writeSnapshot(names.snapshots, SESSION, positions, [file])
  let ref: SnapshotRef | null = null
  while (ref === null) ref = await writing.step(writer)
  const place = { topic: names.state, partition: 0 }
  const records = [{ ...head, snapshot: ref }, cursor].map((each) => ({ topic: names.state, ...seal(each, place) }))
  await writer.commit(records, cursor.offset)
  await writer.close()
}

const inTopic = values['blob-store'] === 'topic'

interface Place {
  readonly url: string
  /** What is opened as a log there. */
  readonly open: () => Promise<EventLog>
  /** Of blobs, where they lie in a folder. */
  readonly store: string
  /** Files that hold the blobs; none for a log that is not on this machine. */
  readonly files: () => readonly string[]
}

const placeOf = (at: number): Place => {
  const store = join(dir, `blobs-${at}`)
  const file = join(dir, `${at}.db`)
  const url = values.log === undefined ? `file:${file}` : `${values.log}/state-${Date.now().toString(36)}`
  return {
    url,
    store,
    open: () => openLog(url, inTopic ? {} : { blobStore: store }),
    files: () => (inTopic ? (values.log === undefined ? [file] : []) : filesBelow(store)),
  }
}

/** False where this program may not. */
const emptyCache = (): boolean => {
  try {
    writeFileSync('/proc/sys/vm/drop_caches', '3')
    return true
  } catch {
    return false
  }
}

/** Reads them one after the other, 8 MB at a time; bytes a second. */
const readSpeed = (files: readonly string[]): number => {
  const buffer = Buffer.allocUnsafe(8e6)
  const started = performance.now()
  let bytes = 0
  for (const path of files) {
    const file = openSync(path, 'r')
    for (
      let read = readSync(file, buffer, 0, buffer.length, null);
      read > 0;
      read = readSync(file, buffer, 0, buffer.length, null)
    )
      bytes += read
    closeSync(file)
  }
  return bytes / ((performance.now() - started) / 1000)
}

const restoring = async (model: Model, { open }: Place): Promise<Context> => {
  const log = await open()
  const names = topicNames(log.prefix)
  const { heads } = await readState(log, names, 0, ({ message }) => {
    throw new Error(message)
  })
  const engine = { model, tokenizer: null, submit: model.submit }
  const validate = { format: 'json', vocabSize: model.vocabSize, readsText: false } as const
  const head = heads.get(SESSION)!.at(-1)!.what
  const { context } = await restoreSession({ log, names, model, engine, validate, cancelled: new Map() }, 0, head)
  await log.close()
  return context
}

/**
 * Seconds of a restore, with the log opened for it, and of CPU in it; p99 of the event loop's delay meanwhile, ms; the
 * speed of reading the files beside it; and a fork, ms.
 */
const measureRestore = async (model: Model, place: Place) => {
  const timed = async (isCold: boolean) => {
    const found = { restore: [] as number[], cpu: [] as number[], speed: [] as number[], fork: [] as number[] }
    const loop = monitorEventLoopDelay({ resolution: 1 })
    for (let round = 0; round < rounds; round += 1) {
      if (isCold) emptyCache()
      found.speed.push(readSpeed(place.files()))
      if (isCold) emptyCache()
      const cpu = process.cpuUsage()
      const started = performance.now()
      loop.enable()
      const context = await restoring(model, place)
      loop.disable()
      found.restore.push((performance.now() - started) / 1000)
      const { user, system } = process.cpuUsage(cpu)
      found.cpu.push((user + system) / 1e6)
      for (let fork = 0; fork < 20; fork += 1) {
        const begun = performance.now()
        const child = model.forkContext(context)
        found.fork.push(performance.now() - begun)
        child.close()
      }
      context.close()
    }
    const { restore, cpu, speed, fork } = found
    const delay = loop.percentile(99) / 1e6 - 1
    return { restore: median(restore), cpu: median(cpu), speed: median(speed), fork: median(fork), delay }
  }
  return { warm: await timed(false), cold: emptyCache() ? await timed(true) : null }
}

const measure = async (model: Model, positions: number, place: Place) => {
  const { store } = place
  const log = await place.open()
  const names = topicNames(log.prefix)
  await log.createTopics(TOPICS.map(({ name, settings }) => ({ name: names[name], partitions: 1, config: settings })))
  await begin(log, model, positions)
  let named = Promise.withResolvers<number>()
  const worker = await startWorker({
    log,
    names,
    model,
    tokenizer: null,
    group: GROUP,
    format: 'json',
    commitInterval: 5,
    snapshotEvery: TOKENS,
    maxContexts: 2,
    compactFloor: 2 ** 40,
    onCommit: () => {
      const snapshot = worker.tasks.get(0)?.sessions.get(SESSION)?.snapshot
      if (snapshot !== undefined && snapshot !== null) named.resolve(snapshot.pulse)
    },
    warn: console.error,
  })
  const used = async (): Promise<number> =>
    (inTopic ? await partBytes(log, names.blobs) : bytesBelow(store)) + (await partBytes(log, names.snapshots))
  const found: { bytes: number; seconds: number }[] = []
  for (let round = 0; round <= rounds; round += 1) {
    const before = await used()
    const target = positions + (round + 1) * TOKENS
    const tokens = Array.from({ length: TOKENS }, (_, i) => (i * 31 + round) % sizes.V)
    const value = Buffer.from(JSON.stringify({ type: 'tokens', tokens }))
    let read = 0
    await log.append(names.chunks, [{ key: Buffer.from(SESSION), value }])
    for (;;) {
      named = Promise.withResolvers()
      const pulse = await named.promise
      const head = worker.tasks.get(0)?.sessions.get(SESSION)
      if (read === 0 && head?.conductor.globalStep === target) read = performance.now()
      if (pulse >= target) break
    }
    // The first snapshot writes what the import brought.
    const seconds = (performance.now() - read) / 1000
    if (round > 0) found.push({ bytes: (await used()) - before, seconds })
  }
  await worker.stop()
  await log.close()
  return found
}

try {
  writePackageTo(dir, gpt2ConfigOf(sizes), safetensors(randomGpt2(9, sizes)))
  const { model } = await openPackage(dir, { overflow: window === 0 ? 'refuse' : 'window' })
  const linear = TOKENS * positionBytes
  const whole = window === 0 ? '' : `, ${window * positionBytes} for the window`
  console.log(`${values['blob-store']}: ${positionBytes} bytes a position, ${linear} for ${TOKENS} tokens${whole}`)
  for (const [at, positions] of lengths.entries()) {
    const place = placeOf(at)
    const found = await measure(model, positions, place)
    const bytes = median(found.map((each) => each.bytes))
    const ms = median(found.map((each) => each.seconds)) * 1000
    console.log(
      `${String(positions).padStart(8)} positions: ${Math.round(bytes)} bytes (${(bytes / linear).toFixed(2)} ×), ${ms.toFixed(0)} ms from the last token to the commit that names the snapshot`,
    )
    const gigabytes = (kept(positions) * positionBytes) / 1e9
    const { warm, cold } = await measureRestore(model, place)
    const perGigabyte = ({ restore, cpu, delay }: typeof warm): string =>
      `${(restore / gigabytes).toFixed(2)} s and ${(cpu / gigabytes).toFixed(2)} s of CPU per GB, event loop p99 ${delay.toFixed(1)} ms`
    console.log(
      `         restored in ${warm.restore.toFixed(3)} s from the page cache, ${perGigabyte(warm)}; forked in ${warm.fork.toFixed(3)} ms`,
    )
    if (cold !== null && place.files().length > 0)
      console.log(
        `         restored in ${cold.restore.toFixed(3)} s from the disk, ${perGigabyte(cold)}: ${((gigabytes * 1e9) / cold.restore / cold.speed).toFixed(2)} of the ${(cold.speed / 1e9).toFixed(2)} GB/s that reading its files gives`,
      )
  }
  model.close()
} finally {
  rmSync(dir, { recursive: true, force: true })
}
