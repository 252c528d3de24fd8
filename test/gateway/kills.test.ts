/**
 * Client, gateway and worker are killed while tokens come, over and over, and every token reaches the client's file
 * once, equal to a run that nobody disturbed.
 *
 * @module-tag slow
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import OpenAI from 'openai'
import { expect, onTestFinished, test } from 'vitest'
import type { Generated } from '../../topics/tokens.ts'
import { DOCUMENT, MODEL, type Running, recordsOf, runUntilIdle, start, temporary, valuesOf } from '../cli/helpers.ts'
import { ask, freePort, logIn, serving } from './helpers.ts'

const SESSION = 'book, Ω'
/** Of each request: seconds of work, so that a kill falls into it. */
const TOKENS = 1500
/** One kill each of client, gateway and worker in a round. */
const ROUNDS = [
  { rounds: 1, tags: [] },
  { rounds: 3, tags: ['long'] },
]

/** What is asked before the kill of this number. */
const eventsOf = (turn: number) => [
  { type: 'text', text: readFileSync(DOCUMENT, 'utf8').slice(300 * turn, 300 * (turn + 1)) },
  { type: 'generate', requestId: `r${turn}`, maxTokens: TOKENS, seed: turn, temperature: 0.8 },
]

const kill = async (child: ChildProcess): Promise<void> => {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill('SIGKILL')
  await once(child, 'exit')
}

const tokensOf = (runs: readonly Generated[]): string[] =>
  runs.flatMap(({ requestId, index, ids, logprobs }) =>
    ids.map((id, at) => `${requestId} ${index + at}: ${id} ${logprobs[at]}`),
  )

for (const { rounds, tags } of ROUNDS)
  test(`every token comes once, whoever is killed, ${3 * rounds} kills`, { timeout: 240_000, tags }, async () => {
    const folder = temporary()
    const log = logIn(folder)
    const file = join(folder, 'received.jsonl')
    const port = String(await freePort())
    const path = `/v1/sessions/${encodeURIComponent(SESSION)}`

    let worker: Running | undefined
    let gateway: Running | undefined
    let reader: ChildProcess | undefined
    onTestFinished(async () => {
      for (const child of [worker?.child, gateway?.child, reader]) if (child !== undefined) await kill(child)
    })
    const run = [
      'run',
      '--log',
      log,
      '--model',
      MODEL,
      '--threads',
      '1',
      '--commit-interval',
      '5',
      '--snapshot-every',
      '512',
    ]
    const startWorker = async (): Promise<void> => {
      worker = start(run)
      await worker.saw(/"state":"running"/)
    }
    const startGateway = async (): Promise<string> => {
      const started = await serving(log, '--port', port)
      gateway = started
      return started.url
    }
    const startReader = (url: string): void => {
      reader = spawn(process.execPath, [join(import.meta.dirname, 'reader.ts'), `${url}${path}/tokens`, file], {
        stdio: 'ignore',
      })
    }
    const received = (): Generated[] =>
      !existsSync(file)
        ? []
        : readFileSync(file, 'utf8')
            .split('\n')
            .slice(0, -1)
            .map((line) => (JSON.parse(line) as { run: Generated }).run)
    /** The runs of a request that the client has. */
    const of = (turn: number): Generated[] => received().filter(({ requestId }) => requestId === `r${turn}`)

    await startWorker()
    const url = await startGateway()
    startReader(url)
    const victims = [
      async () => {
        await kill(worker!.child)
        await startWorker()
      },
      async () => {
        await kill(gateway!.child)
        await startGateway()
      },
      async () => {
        await kill(reader!)
        startReader(url)
      },
    ]
    const turns = rounds * victims.length
    for (let turn = 0; turn < turns; turn += 1) {
      const sent = await ask(`${url}${path}/chunks`, eventsOf(turn))
      expect(sent.status).toBe(202)
      await expect.poll(() => of(turn).length, { timeout: 60_000, interval: 5 }).toBeGreaterThan(10 + 5 * turn)
      expect(of(turn).at(-1)!.finish, 'the request was over before the kill').toBeNull()
      await victims[turn % victims.length]!()
    }
    for (let turn = 0; turn < turns; turn += 1)
      await expect.poll(() => of(turn).at(-1)?.finish, { timeout: 60_000 }).toBe('length')

    const calm = logIn(folder, 'calm.db')
    const other = await serving(calm, '--with-worker')
    for (let turn = 0; turn < turns; turn += 1) await ask(`${other.url}${path}/chunks`, eventsOf(turn))
    other.child.kill('SIGTERM')
    await other.done
    await runUntilIdle(calm)
    const undisturbed = valuesOf<Generated>(await recordsOf(calm, 'continuo.tokens'))
    expect(tokensOf(undisturbed)).toHaveLength(turns * TOKENS)
    expect(tokensOf(received())).toEqual(tokensOf(undisturbed))
  })

test('a response is gone on with by its number, whoever is killed', { timeout: 120_000 }, async () => {
  const log = logIn(temporary())
  const port = String(await freePort())
  const flags = ['--threads', '1', '--commit-interval', '5', '--snapshot-every', '512']
  const startWorker = async (): Promise<Running> => {
    const started = start(['run', '--log', log, '--model', MODEL, ...flags])
    await started.saw(/"state":"running"/)
    return started
  }
  let worker = await startWorker()
  let gateway: Running = await serving(log, '--port', port)
  onTestFinished(async () => {
    await kill(worker.child)
    await kill(gateway.child)
  })
  const client = new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey: 'none', maxRetries: 10 })
  const seen: OpenAI.Responses.ResponseStreamEvent[] = []
  const killed = new Set<string>()
  let id = ''
  const over = (): boolean => seen.at(-1)?.type === 'response.incomplete'
  const take = async (stream: AsyncIterable<OpenAI.Responses.ResponseStreamEvent>): Promise<void> => {
    for await (const event of stream) {
      seen.push(event)
      if (event.type === 'response.created') id = event.response.id
      if (seen.length > 20 && !killed.has('worker')) {
        killed.add('worker')
        await kill(worker.child)
        worker = await startWorker()
      }
      if (seen.length > 60 && !killed.has('gateway')) {
        killed.add('gateway')
        await kill(gateway.child)
        gateway = await serving(log, '--port', port)
      }
      if (seen.length > 100 && !killed.has('client')) {
        killed.add('client')
        return
      }
    }
  }
  const request = { model: 'demo', input: 'What is new?', max_output_tokens: TOKENS, temperature: 0.8 }
  await take(await client.responses.create({ ...request, stream: true })).catch(() => undefined)
  for (let tries = 0; !over() && tries < 10; tries += 1) {
    const after = seen.at(-1)!.sequence_number
    await take(await client.responses.retrieve(id, { stream: true, starting_after: after })).catch(() => undefined)
  }
  expect([...killed]).toEqual(['worker', 'gateway', 'client'])
  expect(seen.map(({ sequence_number }) => sequence_number)).toEqual(seen.map((_, at) => at))
  const text = seen.map((event) => (event.type === 'response.output_text.delta' ? event.delta : '')).join('')
  const whole = await client.responses.retrieve(id)
  expect(whole.usage!.output_tokens).toBe(TOKENS)
  expect(text).toBe(whole.output_text)
})
