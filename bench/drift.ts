/**
 * Whether a memory that has read for long reads as well as one that began a while ago (docs/performance.md, Reading
 * logs).
 *
 *   node bench/drift.ts [--model models/watch] [--logs DIR] [--megabytes 100] [--marks 10] [--threads 1]
 *
 * One session reads a stream without an end: stretches of 200 lines of the logs in DIR (bench/streams/logs.ts), one log
 * behind another in an order that is drawn, every digit drawn anew, so that no stretch comes twice. At each mark two
 * sessions read the same further stretch, 200 kB, each only once: a fork of that session, and one that has read the
 * last two megabytes before the mark and nothing else. Where the first needs no more bits than the second, what was
 * read long ago does no harm.
 */
import { join } from 'node:path'
import { table } from '../src/cli/output.ts'
import { openPackage } from '../src/models/open.ts'
import { idsOf, natsOf } from '../src/watch/costs.ts'
import { parseArgs } from './options.ts'
import { logsIn, readLog } from './streams/logs.ts'
import { root } from './support.ts'

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: join(root, 'models', 'watch') },
    logs: { type: 'string', default: join(root, '..', 'shared', 'data', 'logs') },
    megabytes: { type: 'string', default: '100' },
    marks: { type: 'string', default: '10' },
    threads: { type: 'string', default: '1' },
  },
})
const STRETCH = 200
const PROBE = 200_000
const RECENT = 2_000_000

let seed = 1
/** Park and Miller's generator: the same stream each time. */
const below = (most: number): number => {
  seed = (seed * 48_271) % 2_147_483_647
  return seed % most
}

const logs = logsIn(values.logs).map((name) => readLog(values.logs, name).lines.map(({ content }) => content))

/** The next bytes of the stream, at least so many. */
const next = (bytes: number): Buffer => {
  const lines: string[] = []
  for (let size = 0; size < bytes; ) {
    const log = logs[below(logs.length)]!
    const from = below(Math.max(1, log.length - STRETCH))
    for (const line of log.slice(from, from + STRETCH)) {
      const own = line.replace(/\d/g, () => String(below(10)))
      lines.push(own)
      size += Buffer.byteLength(own) + 1
    }
  }
  return Buffer.from(`${lines.join('\n')}\n`)
}

const { model, tokenizer } = await openPackage(values.model, { threads: Number(values.threads) })
type Session = ReturnType<typeof model.createContext>
const bitsOf = async (context: Session, text: Buffer): Promise<number> => {
  if (tokenizer === null) throw new Error(`${values.model} reads no text`)
  const nats = await natsOf(model.submit, context, Int32Array.from(idsOf(tokenizer, text)))
  return nats.reduce((sum, each) => sum + (Number.isNaN(each) ? 0 : each), 0) / Math.LN2
}
const marks = Number(values.marks)
const each = (Number(values.megabytes) * 1e6) / marks
const long = model.createContext()
const rows: (readonly string[])[] = []
let total = 0
for (let mark = 1; mark <= marks; mark += 1) {
  const pieces: Buffer[] = []
  let [size, bits] = [0, 0]
  while (size < each) {
    const piece = next(Math.min(1e6, each - size))
    bits += await bitsOf(long, piece)
    pieces.push(piece)
    size += piece.length
  }
  total += size
  const probe = next(PROBE)
  const fork = model.forkContext(long)
  const fresh = model.createContext()
  await bitsOf(fresh, Buffer.concat(pieces).subarray(-RECENT))
  const [old, young] = [await bitsOf(fork, probe), await bitsOf(fresh, probe)]
  rows.push([
    `${(total / 1e6).toFixed(1)} MB`,
    (bits / size).toFixed(4),
    (old / probe.length).toFixed(4),
    (young / probe.length).toFixed(4),
    (old / young).toFixed(4),
  ])
  fork.close()
  fresh.close()
}
console.log(table(['read', 'bits per byte', 'then a stretch', 'of a young one', 'ratio'], rows))
long.close()
model.close()
