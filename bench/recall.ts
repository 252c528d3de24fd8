/**
 * What each part of an external memory is worth to the shipped model (docs/infinite-context.md,
 * models/recall/README.md).
 *
 *   node bench/recall.ts [--model models/recall] [--books FILE …] [--needles 10000,100000,1000000] [--rows WORD …] [--threads 2]
 *
 * Rows are settings of the model's memory.json, each with more than the one before; then payloads, and the whole with
 * one part less. Of each:
 *
 *   books     bits per byte of the books (files of text; docs/demo/harbour-log.txt), their first 100,000 bytes
 *   told      bits per byte of a text that states a fact every 800 characters and asks for it 2,000 to 20,000 characters later
 *   digits    of the digits of those answers: nats of each. Guessing is 2.303
 *   near      the same where the answer still is in 1,000 characters: what the plain decoder can see
 *   needles   answers that are right of 50 facts around 10, 50 and 90 % of a text of so many tokens; each is asked for by a fork of the
 *             session that read it
 *
 * `attention to all` is the plain decoder: it reads no more than its 1,024 positions.
 */
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Fact, factsFrom, isRight, longText, question, randomFrom, stated, told } from '../src/cli/demo/facts.ts'
import { count, table } from '../src/cli/output.ts'
import type { Context, EngineContext } from '../src/engine/context.ts'
import type { Model } from '../src/engine/types.ts'
import { type MemoryJson, readMemoryJson } from '../src/models/families/memory-json.ts'
import { openModel } from '../src/models/open.ts'
import { parseArgs } from './options.ts'

const ROOT = join(import.meta.dirname, '..')
const { values } = parseArgs({
  options: {
    model: { type: 'string', default: join(ROOT, 'models', 'recall') },
    books: { type: 'string', multiple: true, default: [join(ROOT, 'docs', 'demo', 'harbour-log.txt')] },
    needles: { type: 'string', default: '10000,100000,1000000' },
    rows: { type: 'string', multiple: true },
    threads: { type: 'string', default: '2' },
  },
})
const lengths = values.needles.split(',').filter(Boolean).map(Number)
const BOOK = 100_000
const TOLD = 60_000
const CALL = 4096
const ANSWER = 56
const DEPTHS = [0.1, 0.5, 0.9]
/** Facts of a depth, over all texts of a length. */
const NEEDLES = 50
/** Facts of one depth in one text stand within so much of it. */
const SPREAD = 0.06
const RETRIEVE = '<RETRIEVE>'
const RETRIEVE_ID = 257
const hay = readFileSync(join(ROOT, 'docs', 'demo', 'harbour-log.txt'), 'utf8')

/** Bytes, and the id of `<RETRIEVE>`. */
const idsOf = (text: string): number[] =>
  text.split(RETRIEVE).flatMap((part, i) => [...(i === 0 ? [] : [RETRIEVE_ID]), ...Buffer.from(part)])
const textOf = (ids: Int32Array): string => Buffer.from(ids.filter((id) => id < 256)).toString()

type Change = (memory: MemoryJson) => object
/** Without what was learned: what phase 1 does. */
const unlearned = { qformer: null, projector: null, graph: null, trimmer: null }
const plainAnchors = (memory: MemoryJson) => ({ ...memory.anchors, policy: 'segment' as const })
const none = { tokens: 0, entries: 0, policy: 'segment' as const }
const noTombstones = (memory: MemoryJson) => ({ ...memory.tombstones, count: 0, threshold: null })
const by = (memory: MemoryJson, policy: string, more: object = {}) => ({ ...memory.retrieval, policy, ...more })
const quiet = { summarize: '<SUMMARIZE>', retrieve: null }

const window: Change = (memory) => ({
  ...{ ...memory, ...unlearned, sinks: 0, anchors: none, tombstones: noTombstones(memory), tokens: quiet },
  retrieval: by(memory, 'recent', { every: 0 }),
})
const sinks: Change = (memory) => ({ ...window(memory), sinks: memory.sinks })
const anchors: Change = (memory) => ({ ...sinks(memory), anchors: plainAnchors(memory) })
const tombstones: Change = (memory) => ({ ...anchors(memory), tombstones: { ...memory.tombstones, threshold: null } })
const recent: Change = (memory) => ({
  ...tombstones(memory),
  ...{ tokens: memory.tokens, retrieval: by(memory, 'recent') },
})
const similar: Change = (memory) => ({ ...recent(memory), retrieval: by(memory, 'similar') })
const learned: Change = (memory) => ({ ...memory, graph: null, retrieval: by(memory, 'similar') })
/** The walker was trained to collect three. */
const graph: Change = (memory) => ({ ...memory, retrieval: by(memory, 'graph', { blocks: 3 }) })

const file = readMemoryJson(JSON.parse(readFileSync(join(values.model, 'memory.json'), 'utf8')))
const hasLearned = file.qformer !== null
/** The best that the folder has: what parts are taken from. */
const whole: Change = hasLearned ? learned : similar
const ROWS: readonly (readonly [string, Change | null])[] = [
  ['attention to all', null],
  ['window', window],
  ['+ sinks', sinks],
  ['+ anchors', anchors],
  ['+ tombstones', tombstones],
  ['+ recent', recent],
  ['+ similar', similar],
  ...(hasLearned ? [['+ learned', learned] as const] : []),
  ...(file.graph === null ? [] : [['+ graph, three blocks', graph] as const]),
  ['payloads f16', (memory) => ({ ...whole(memory), cold_dtype: 'f16' })],
  ['payloads f32', (memory) => ({ ...whole(memory), cold_dtype: 'f32' })],
  ['without sinks', (memory) => ({ ...whole(memory), sinks: 0 })],
  ['without anchors', (memory) => ({ ...whole(memory), trimmer: null, anchors: none })],
  ...(file.trimmer === null
    ? []
    : [
        [
          'anchors by topic',
          (memory: MemoryJson) => ({ ...whole(memory), trimmer: null, anchors: plainAnchors(memory) }),
        ] as const,
      ]),
  ['without tombstones', (memory) => ({ ...whole(memory), tombstones: noTombstones(memory) })],
  ['three blocks at a time', (memory) => ({ ...whole(memory), retrieval: by(memory, 'similar', { blocks: 3 }) })],
  ['every 512 tokens, too', (memory) => ({ ...whole(memory), retrieval: by(memory, 'similar', { every: 512 }) })],
]

/** The model with another memory.json; null: with none. */
const folderWith = (change: Change | null): string => {
  const dir = mkdtempSync(join(tmpdir(), 'recall-'))
  for (const name of readdirSync(values.model)) copyFileSync(join(values.model, name), join(dir, name))
  const path = join(dir, 'memory.json')
  if (change === null) {
    rmSync(path)
    rmSync(join(dir, 'memory.safetensors'), { force: true })
    return dir
  }
  const memory = change(file) as MemoryJson
  writeFileSync(path, JSON.stringify(memory))
  if (memory.qformer === null && memory.trimmer === null && memory.graph === null)
    rmSync(join(dir, 'memory.safetensors'), { force: true })
  return dir
}

const read = async (model: Model, context: Context, ids: readonly number[], nats: boolean): Promise<Float64Array> => {
  const all = new Float64Array(nats ? ids.length : 0)
  for (let at = 0; at < ids.length; at += CALL) {
    const done = await model.submit({ context, tokens: Int32Array.from(ids.slice(at, at + CALL)), nats })
    if (nats) all.set(done.nats, at)
  }
  return all
}
const sum = (numbers: Iterable<number>): number => {
  let all = 0
  for (const each of numbers) if (!Number.isNaN(each)) all += each
  return all
}

const books = async (model: Model): Promise<number> => {
  let [nats, tokens] = [0, 0]
  for (const path of values.books) {
    const context = model.createContext()
    const ids = [...readFileSync(path).subarray(0, BOOK)]
    nats += sum(await read(model, context, ids, true))
    tokens += ids.length - 1
    context.close()
  }
  return nats / tokens / Math.LN2
}

interface Told {
  /** Characters of the prose. */
  readonly length: number
  /** From one fact to the next. */
  readonly every: number
  /** From a fact to its question. */
  readonly near: number
  readonly far: number
  readonly seed: number
}

/** Facts stated one after another, each asked for later; the digits of the answers by their places. */
const toldText = ({ length, every, near, far, seed }: Told) => {
  const random = randomFrom(seed)
  const words = longText(hay, length, seed + 8)
    .slice(0, length)
    .split(/(?<= )/)
  const facts = factsFrom(seed + 20, Math.floor(length / every))
  const due: { readonly at: number; readonly fact: Fact }[] = []
  const ids: number[] = []
  const digits: number[] = []
  let next = 0
  for (const word of words) {
    ids.push(...idsOf(word))
    if (next < facts.length && ids.length >= next * every + 100) {
      const fact = facts[next]!
      ids.push(...idsOf(stated(fact)))
      due.push({ at: ids.length + near + random(far - near), fact })
      next += 1
    }
    const ready = due.findIndex(({ at }) => at <= ids.length)
    if (ready < 0) continue
    const { fact } = due.splice(ready, 1)[0]!
    ids.push(...idsOf(`${question(fact)} The ${fact.what} is${RETRIEVE} `))
    for (let i = 0; i < 4; i += 1) digits.push(ids.length + i)
    ids.push(...idsOf(`${fact.value}.\n`))
  }
  return { ids, digits }
}

/** Bits per byte, and nats of an asked digit, over texts that are read one by one. */
const recallText = async (model: Model, texts: readonly Told[]) => {
  let [all, tokens, digits, asked] = [0, 0, 0, 0]
  for (const told of texts) {
    const { ids, digits: at } = toldText(told)
    const context = model.createContext()
    const nats = await read(model, context, ids, true)
    context.close()
    all += sum(nats)
    tokens += ids.length - 1
    digits += sum(at.map((place) => nats[place]!))
    asked += at.length
  }
  return { bits: all / tokens / Math.LN2, digits: digits / asked }
}
const FAR: readonly Told[] = [{ length: TOLD, every: 800, near: 2000, far: 20_000, seed: 3 }]
/** With its facts and questions such a text has less than 1,024 tokens. */
const NEAR: readonly Told[] = Array.from({ length: 40 }, (_, i) => ({
  ...{ length: 560, every: 180, near: 50, far: 300, seed: 50 + i },
}))

/** A question asked by a fork: whether the answer is right. */
const ask = async (model: Model, context: EngineContext, fact: Fact): Promise<boolean> => {
  const asking = model.forkContext(context)
  try {
    const generate = { temperature: 0, topK: 0, topP: 1, seed: 0n, count: ANSWER }
    const tokens = Int32Array.from(idsOf(question(fact)))
    const { generated } = await model.submit({ context: asking, tokens, nats: false, generate })
    return isRight(textOf(generated).split('\n')[0]!, fact)
  } finally {
    asking.close()
  }
}

/** Right answers by depth, of NEEDLES each. */
const needles = async (model: Model, length: number): Promise<readonly number[]> => {
  // A fact takes some 40 characters; in a short text few fit around a depth.
  const each = Math.min(NEEDLES, Math.max(5, Math.floor((length * SPREAD) / 120)))
  const right = DEPTHS.map(() => 0)
  for (let done = 0; done < NEEDLES; done += each) {
    const here = Math.min(each, NEEDLES - done)
    const facts = factsFrom(100 + done + length, here * DEPTHS.length)
    let text = longText(hay, length, 40 + done).slice(0, length)
    for (let d = DEPTHS.length - 1; d >= 0; d -= 1) {
      const from = length * (DEPTHS[d]! - SPREAD / 2)
      text = told(text, facts.slice(d * here, (d + 1) * here), from, from + length * SPREAD)
    }
    const context = model.createContext()
    await read(model, context, idsOf(text), false)
    for (const [i, fact] of facts.entries())
      if (await ask(model, context, fact)) right[Math.floor(i / here)] = right[Math.floor(i / here)]! + 1
    context.close()
  }
  return right
}

const HEADER = [
  ...['', '>books', '>told', '>digits', '>near'],
  ...lengths.map((length) => `>needles ${count(length)}: 10, 50, 90 %`),
]
const wanted = ([name]: readonly [string, unknown]): boolean =>
  values.rows === undefined || values.rows.some((word) => name.includes(word))
const rows: string[][] = []
for (const [name, change] of ROWS.filter(wanted)) {
  const dir = folderWith(change)
  const model = await openModel(dir, { threads: Number(values.threads), keepPacked: false })
  try {
    const near = (await recallText(model, NEAR)).digits.toFixed(3)
    const row = [name, '', '', '', near, ...lengths.map(() => '')]
    if (change !== null) {
      const far = await recallText(model, FAR)
      row.splice(1, 3, (await books(model)).toFixed(3), far.bits.toFixed(3), far.digits.toFixed(3))
      for (const [i, length] of lengths.entries()) row[5 + i] = (await needles(model, length)).join(', ')
    }
    rows.push(row)
    console.log(row.join('  '))
  } finally {
    model.close()
    rmSync(dir, { recursive: true })
  }
}
console.log(`\n${table(HEADER, rows)}`)
