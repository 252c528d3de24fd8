/**
 * The time between tokens of a stream over HTTP, alone and beside clients whose prompts are read meanwhile, in turns.
 *
 *   node bench/gaps.ts [--model DIR] [--readers 8] [--ids 1024] [--tokens 1200] [--rounds 5] [--threads 2]
 *
 * A gap is the time from one token's event to the next, as the client sees them. A reader sends a prompt of --ids ids,
 * of which no other begins alike, takes one token, and sends the next. Gateway and worker are one process, the log is
 * embedded. A stream begins when its readers have, and the first token is no gap.
 */
import { once } from 'node:events'
import { parseArgs } from './options.ts'
import { drawnIds, embeddedPlace, median, modelDir, quantile, servedAt } from './support.ts'

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: modelDir },
    readers: { type: 'string', default: '8' },
    ids: { type: 'string', default: '1024' },
    tokens: { type: 'string', default: '1200' },
    rounds: { type: 'string', default: '5' },
    threads: { type: 'string', default: '2' },
  },
})
const [readers, ids, tokens, rounds] = [values.readers, values.ids, values.tokens, values.rounds].map(Number) as [
  number,
  number,
  number,
  number,
]

const place = embeddedPlace()
const { serving, url } = await servedAt(
  place.fresh(),
  ...['--model', values.model, '--model-name', 'm', '--threads', values.threads, '--prefix-sessions', '0'],
)

const idsOf = drawnIds()

const ask = async (prompt: readonly number[], more: object, signal?: AbortSignal): Promise<Response> => {
  const response = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', prompt, temperature: 1, seed: 1, ignore_eos: true, ...more }),
    ...(signal && { signal }),
  })
  if (!response.ok) throw new Error(await response.text())
  return response
}

/** Milliseconds between the tokens of one stream. */
const gapsOf = async (): Promise<number[]> => {
  const response = await ask(idsOf(16), { max_tokens: tokens, stream: true })
  const gaps: number[] = []
  let last: number | null = null
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
    const now = performance.now()
    // Tokens that come together came one behind the other without a gap.
    for (let at = piece.split('data: {').length - 1; at > 0; at -= 1) {
      if (last !== null) gaps.push(now - last)
      last = now
    }
  }
  return gaps
}

let read = 0
let readSeconds = 0
/** Reads one prompt, and counts its tokens as they are told. */
const readOne = async (signal: AbortSignal): Promise<void> => {
  const response = await ask(idsOf(ids), { max_tokens: 1, stream: true, return_progress: true }, signal)
  let seen = 0
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream()))
    for (const [, processed] of piece.matchAll(/"processed":(\d+)/g)) {
      read += Number(processed) - seen
      seen = Number(processed)
    }
  read += ids - seen
}
/** The gaps of a stream beside the readers. */
const beside = async (): Promise<number[]> => {
  const over = new AbortController()
  const began = performance.now()
  const reading = Array.from({ length: readers }, async () => {
    while (!over.signal.aborted)
      await readOne(over.signal).catch((error: unknown) => {
        if (!over.signal.aborted) throw error
      })
  })
  const gaps = await gapsOf()
  readSeconds += (performance.now() - began) / 1000
  over.abort()
  await Promise.all(reading)
  return gaps
}

const all: { readonly alone: number[]; readonly beside: number[] } = { alone: [], beside: [] }
try {
  // What is read and generated first warms the engine and the code.
  await gapsOf()
  for (let round = 0; round < rounds; round += 1) {
    const ways = [async () => all.alone.push(...(await gapsOf())), async () => all.beside.push(...(await beside()))]
    for (const way of round % 2 === 0 ? ways : ways.reverse()) await way()
  }
  const line = (name: string, gaps: readonly number[]): string => {
    const [p50, p99] = [median(gaps), quantile(gaps, 0.99)]
    const ratio = (value: number, of: number): string => `${(value / of).toFixed(2)} x`
    return `${name.padEnd(18)} ${String(gaps.length).padStart(6)} gaps, median ${p50.toFixed(2)} ms (${ratio(p50, median(all.alone))}), p99 ${p99.toFixed(2)} ms (${ratio(p99, quantile(all.alone, 0.99))}), most ${Math.max(...gaps).toFixed(1)} ms`
  }
  console.log(line('alone', all.alone))
  console.log(line(`beside ${readers} readers`, all.beside))
  console.log(`the readers read ${(read / readSeconds).toFixed(0)} tokens/s meanwhile, in prompts of ${ids}`)
} finally {
  serving.kill('SIGTERM')
  if (serving.exitCode === null) await once(serving, 'exit')
  await place.stop()
}
