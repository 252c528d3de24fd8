/**
 * Prompts that begin alike, over HTTP: what is read of them, and how long their first token takes.
 *
 *   node bench/prefixes.ts [--shape demo] [--before 15000] [--turns 5] [--requests 64] [--at-once 4] [--blobs]
 *
 * `--shape`: models/demo, whose answers are bytes and so ids, or one of bench/long-packages.ts with random weights. A
 * second turn comes behind --before ids: sent again as a whole, and in a named session that is sent only what is new,
 * in turns; from the request to its first token. (The answers of random weights are not sent again.) A load is
 * --requests prompts of which so many ids are shared and so many their own, --at-once at a time, of 8 tokens each:
 * cold, behind a restart, and with --prefix-sessions 0. `--blobs`: snapshots lie in blocks in a folder.
 */
import { once } from 'node:events'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SHAPES } from './long-packages.ts'
import { parseArgs } from './options.ts'
import { drawnIds, embeddedPlace, median, modelDir, servedAt } from './support.ts'

const { values } = parseArgs({
  options: {
    shape: { type: 'string', default: 'demo' },
    before: { type: 'string', default: '15000' },
    turns: { type: 'string', default: '5' },
    requests: { type: 'string', default: '64' },
    'at-once': { type: 'string', default: '4' },
    blobs: { type: 'boolean', default: false },
  },
})
const [before, turns, requests, atOnce] = [values.before, values.turns, values.requests, values['at-once']].map(
  Number,
) as [number, number, number, number]

const place = embeddedPlace()
const folder = mkdtempSync(join(tmpdir(), 'continuo-bench-'))
let model = modelDir
if (values.shape !== 'demo') {
  const write = SHAPES[values.shape]
  if (write === undefined) {
    console.error(`--shape is demo or one of ${Object.keys(SHAPES).join(', ')}.`)
    process.exit(2)
  }
  model = join(folder, values.shape)
  await write(model)
}

const idsOf = drawnIds()

interface Asked {
  /** From the request to the first token. */
  readonly seconds: number
  readonly cached: number
  readonly text: string
}

const ask = async (url: string, prompt: readonly number[], most: number, session?: string): Promise<Asked> => {
  const began = performance.now()
  const response = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(session !== undefined && { 'x-session': session }) },
    body: JSON.stringify({
      ...{ model: 'm', prompt, max_tokens: most, temperature: 0, seed: 1 },
      ...{ stream: true, stream_options: { include_usage: true } },
    }),
  })
  if (!response.ok) throw new Error(await response.text())
  let seconds = 0
  let all = ''
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
    if (seconds === 0 && piece.includes('data: {')) seconds = (performance.now() - began) / 1000
    all += piece
  }
  const events = all.split('\n\n').flatMap((event) => (event.startsWith('data: {') ? [JSON.parse(event.slice(6))] : []))
  const { usage, error } = events.at(-1)
  if (error !== undefined) throw new Error(error.message)
  return {
    seconds,
    cached: usage.prompt_tokens_details.cached_tokens,
    text: events.map(({ choices }) => choices[0]?.text ?? '').join(''),
  }
}

const serve = async (log: string, ...more: readonly string[]) => {
  const blobs = values.blobs ? ['--blob-store', join(folder, 'blobs')] : []
  const { serving, url } = await servedAt(log, '--model', model, '--model-name', 'm', ...blobs, ...more)
  const end = async (): Promise<void> => {
    serving.kill('SIGTERM')
    if (serving.exitCode === null) await once(serving, 'exit')
  }
  return { url, end }
}

const ms = (seconds: readonly number[]): string => `${(median(seconds) * 1000).toFixed(0)} ms`

const secondTurns = async (): Promise<void> => {
  const { url, end } = await serve(place.fresh())
  const again: number[] = []
  const named: number[] = []
  const read: number[] = []
  for (let turn = 0; turn < turns; turn += 1) {
    const first = idsOf(before)
    const added = idsOf(100)
    const session = `named-${turn}`
    const { text } = await ask(url, first, 16)
    await ask(url, first, 16, session)
    const conversation = [...first, ...Buffer.from(text), ...added]
    const ways = [
      async () => {
        const { seconds, cached } = await ask(url, conversation, 8)
        again.push(seconds)
        read.push(conversation.length - cached)
      },
      async () => void named.push((await ask(url, added, 8, session)).seconds),
    ]
    for (const way of turn % 2 === 0 ? ways : ways.reverse()) await way()
  }
  await end()
  const ratios = again.map((seconds, at) => seconds / named[at]!)
  console.log(`A second turn of 100 ids behind ${before}: read ${median(read)} ids`)
  console.log(
    `  first token of the whole sent again ${ms(again)}, in a named session ${ms(named)}, ratio ${median(ratios).toFixed(2)}`,
  )
}

const load = async (shared: number, own: number): Promise<void> => {
  const log = place.fresh()
  const common = idsOf(shared)
  const run = async (name: string, ...more: readonly string[]): Promise<void> => {
    const { url, end } = await serve(log, ...more)
    const prompts = Array.from({ length: requests }, () => [...common, ...idsOf(own)])
    const asked: Asked[] = []
    const began = performance.now()
    await Promise.all(
      Array.from({ length: atOnce }, async () => {
        for (let prompt = prompts.pop(); prompt !== undefined; prompt = prompts.pop())
          asked.push(await ask(url, prompt, 8))
      }),
    )
    const seconds = (performance.now() - began) / 1000
    await end()
    const hits = asked.filter(({ cached }) => cached > 0)
    const share = asked.reduce((sum, { cached }) => sum + cached, 0) / (requests * (shared + own))
    console.log(
      `${shared} shared, ${own} own, ${name}: ${hits.length} of ${requests} begin behind a prefix, ${(100 * share).toFixed(0)} % of all ids not read; ${seconds.toFixed(1)} s, first token ${ms(asked.map((each) => each.seconds))}`,
    )
  }
  await run('cold')
  await run('behind a restart')
  await run('without', '--prefix-sessions', '0')
}

await secondTurns()
await load(1600, 600)
await load(1500, 700)
