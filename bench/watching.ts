/**
 * How fast lines are read by models/watch: by the bare engine, and by a worker on the embedded log, without and with
 * `novelty`, for numbers of sessions that share the text.
 *
 *   node bench/watching.ts [--sessions 1,100,1000] [--bytes 4000000] [--threads 2] [--file docs/demo/harbour-day.txt] [--model models/watch]
 *
 * Each session reads the same number of lines, from another place of the file on, in events of 4 kB at most. The time
 * of a worker begins before it joins its group and ends when the commit of the last record is acknowledged; the log is
 * fed before. MB/s are millions of bytes of text.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openPackage } from '../src/models/open.ts'
import { watchModel } from '../src/places.ts'
import { topicNames } from '../topics/index.ts'
import { parseArgs } from './options.ts'
import { embeddedPlace, prepared, root, workedOff } from './support.ts'

const { values } = parseArgs({
  options: {
    sessions: { type: 'string', default: '1,100,1000' },
    bytes: { type: 'string', default: '4000000' },
    threads: { type: 'string', default: '2' },
    file: { type: 'string', default: join(root, 'docs', 'demo', 'harbour-day.txt') },
    model: { type: 'string', default: watchModel },
  },
})
const PIECE = 4096
const all = readFileSync(values.file, 'utf8').trimEnd().split('\n')

/** Texts of so many sessions, as pieces in the order in which they come: a piece of each, then the next ones. */
const piecesOf = (sessions: number): readonly (readonly [session: string, text: string])[] => {
  const each = Number(values.bytes) / sessions
  const texts = Array.from({ length: sessions }, (_, n) => {
    const pieces = ['']
    for (let at = n * 37, size = 0; size < each; at += 1) {
      const line = `${all[at % all.length]}\n`
      size += line.length
      if (pieces.at(-1)!.length + line.length > PIECE) pieces.push('')
      pieces[pieces.length - 1] += line
    }
    return pieces
  })
  const most = Math.max(...texts.map(({ length }) => length))
  return Array.from({ length: most }, (_, i) =>
    texts.flatMap((pieces, n) => (pieces[i] === undefined ? [] : [[`host-${n}`, pieces[i]] as const])),
  ).flat()
}

const { model, tokenizer } = await openPackage(values.model, { threads: Number(values.threads) })

const bare = async (pieces: ReturnType<typeof piecesOf>): Promise<number> => {
  const turns = new Map<string, string[]>()
  for (const [session, text] of pieces) turns.set(session, [...(turns.get(session) ?? []), text])
  const started = performance.now()
  await Promise.all(
    [...turns.values()].map(async (texts) => {
      const context = model.createContext()
      for (const text of texts) await model.submit({ context, tokens: Int32Array.from(Buffer.from(text)), nats: true })
      context.close()
    }),
  )
  return (performance.now() - started) / 1000
}

const place = embeddedPlace()
const worker = async (pieces: ReturnType<typeof piecesOf>, novelty: boolean): Promise<number> => {
  const log = await prepared(place.fresh(), 1)
  const names = topicNames(log.prefix)
  const record = (session: string, event: object) => ({
    key: Buffer.from(session),
    value: Buffer.from(JSON.stringify(event)),
  })
  const opens = novelty ? [...new Set(pieces.map(([session]) => session))] : []
  await log.append(
    names.chunks,
    opens.map((session) => record(session, { type: 'open', novelty })),
  )
  const fed = await log.append(
    names.chunks,
    pieces.map(([session, text]) => record(session, { type: 'text', text })),
  )
  const last = fed.at(-1)!.offset
  const limits = { snapshotEvery: 65_536, maxContexts: 512, compactFloor: 64 << 20 }
  const done = await workedOff({ log, names, model, tokenizer, ...limits }, last)
  await done.worker.stop()
  await log.close()
  return done.seconds
}

try {
  console.log('sessions      engine  worker  with novelty, MB/s')
  for (const sessions of values.sessions.split(',').map(Number)) {
    const pieces = piecesOf(sessions)
    const bytes = pieces.reduce((sum, [, text]) => sum + text.length, 0)
    const speed = (seconds: number): string => (bytes / 1e6 / seconds).toFixed(2).padStart(8)
    const engine = sessions > 512 ? '       –' : speed(await bare(pieces))
    console.log(
      `${String(sessions).padStart(8)}    ${engine}${speed(await worker(pieces, false))}${speed(await worker(pieces, true))}`,
    )
  }
} finally {
  await place.stop()
  model.close()
}
