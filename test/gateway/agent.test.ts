/**
 * The agent of examples/agent.js, and the gateway, worker and broker behind it, are killed at random moments, over and
 * over: its transcript is that of an agent that nobody disturbed, each turn has one answer in the log, and each effect
 * is there once. `CONTINUO_AGENT_KILLS=200` kills as often as it says, and prints whom; `CONTINUO_AGENT_SEED` draws
 * other moments.
 *
 * @module-tag slow
 */
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { afterAll, expect, onTestFinished, test } from 'vitest'
import type { Generated } from '../../topics/tokens.ts'
import {
  continuo,
  type Done,
  MODEL,
  ROOT,
  type Running,
  recordsOf,
  start,
  temporary,
  valuesOf,
} from '../cli/helpers.ts'
import { random } from '../crash/scenario.ts'
import { freshPrefix, ownBroker } from '../kafka/broker.ts'
import { freePort, logIn, serving } from './helpers.ts'

/** Of a conversation; as many conversations follow each other as the kills leave time for. */
const TURNS = 8
const asked = Number(process.env.CONTINUO_AGENT_KILLS ?? 0)
const seed = Number(process.env.CONTINUO_AGENT_SEED ?? 1)

const { kafka: broker, missing } = await ownBroker()
afterAll(() => broker?.stop())

interface Message {
  readonly role: string
  readonly content: string | null
  readonly tool_call_id?: string
  readonly tool_calls?: readonly { readonly id: string; readonly function: { name: string; arguments: string } }[]
}
interface Effect {
  readonly id: string
}

const linesOf = <T>(folder: string, file: string): T[] =>
  readFileSync(join(folder, file), 'utf8')
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as T)

/** A transcript with the numbers of its calls for their ids, which are drawn anew for each answer. */
const told = (folder: string): unknown => {
  const messages = linesOf<Message>(folder, 'transcript.jsonl')
  const ids = messages.flatMap(({ tool_calls }) => (tool_calls ?? []).map(({ id }) => id))
  expect(new Set(ids).size).toBe(ids.length)
  return JSON.parse(JSON.stringify(messages).replaceAll(/call_[\w-]+/g, (id) => `call ${ids.indexOf(id)}`))
}

/** Of each request of the log in their order, what was generated for it: once, from its first token to its last. */
const answersIn = async (log: string, prefix = 'continuo'): Promise<readonly string[]> => {
  const answers = new Map<string, number[]>()
  const over = new Set<string>()
  for (const { requestId, index, ids, finish } of valuesOf<Generated>(await recordsOf(log, `${prefix}.tokens`))) {
    const answer = answers.get(requestId) ?? []
    expect([index, over.has(requestId)], requestId).toEqual([answer.length, false])
    answers.set(requestId, [...answer, ...ids])
    if (finish !== null) over.add(requestId)
  }
  expect(over.size).toBe(answers.size)
  return [...answers.values()].map((ids) => ids.join(' '))
}

const agent = (url: string, folder: string, name: string): Running =>
  start(['--turns', String(TURNS), '--name', name, url, folder], { program: join(ROOT, 'examples', 'agent.js') })

/** The run that all others are compared with. */
const calm = (async () => {
  const [log, folder] = [logIn(temporary()), join(temporary(), 'agent')]
  const gateway = await serving(log, '--with-worker', '--threads', '1', '--commit-interval', '5')
  const { code, out, err } = await agent(gateway.url, folder, 'calm').done
  gateway.child.kill('SIGTERM')
  await gateway.done
  expect({ code, err }).toEqual({ code: 0, err: '' })
  expect(out).toMatch(/^8 turns, [2-8] bookings\n$/)
  const answers = await answersIn(log)
  expect(answers).toHaveLength(TURNS)
  return { transcript: told(folder), answers }
})()

/** Starts a program whenever it has ended. `over` gets what ended by itself, and says whether that was all. */
const keep = (run: () => Running, over: (done: Done) => boolean) => {
  let current: Running
  let ended = false
  const up = (): void => {
    current = run()
    void current.done.then((done) => {
      if (!ended && !(done.signal !== 'SIGKILL' && over(done))) up()
    })
  }
  up()
  return {
    /** False: it is ending anyway. */
    kill: (): boolean => current.child.kill('SIGKILL'),
    end: async (signal: NodeJS.Signals): Promise<void> => {
      ended = true
      current.child.kill(signal)
      await current.done
    },
  }
}

interface Campaign {
  readonly log: string
  /** Of its topics. */
  readonly prefix?: string
  readonly kills: number
  /** Milliseconds between two kills at most. */
  readonly pause: number
  /** Kills the broker; resolves as soon as another one has its place. */
  readonly killBroker?: () => Promise<void>
}

const campaign = async ({ log, prefix, kills, pause, killBroker }: Campaign): Promise<void> => {
  const expected = await calm
  const home = temporary()
  const port = String(await freePort())
  const flags = ['--log', log, '--model', MODEL, '--log-level', 'warn']
  /** What ended though nobody killed it. */
  const left: string[] = []
  const note = (who: string) => (done: Done) => {
    left.push(`${who} ended with ${done.signal ?? done.code}: ${done.err.slice(-500)}`)
    return false
  }
  // A gateway waits for no log that nobody has made.
  await continuo(['topics', 'apply', '--log', log])
  const worker = keep(
    () => start(['run', ...flags, '--threads', '1', '--commit-interval', '5', '--snapshot-every', '512']),
    note('worker'),
  )
  const gateway = keep(() => start(['serve', ...flags, '--port', port]), note('gateway'))
  onTestFinished(async () => {
    await Promise.all([worker.end('SIGKILL'), gateway.end('SIGKILL')])
  })

  let made = 0
  let runs = 0
  const folderOf = (run: number): string => join(home, `run-${run}`)
  const finished = Promise.withResolvers<void>()
  const client = keep(
    () => agent(`http://127.0.0.1:${port}`, folderOf(runs), `run ${runs}`),
    ({ code, err }) => {
      if (code !== 0) finished.reject(new Error(`The agent ended with ${code}:\n${err}`))
      else runs += 1
      const all = code !== 0 || made >= kills
      if (all) finished.resolve()
      return all
    },
  )
  onTestFinished(() => client.end('SIGKILL'))

  /** How far the agent is: it grows with each line of a transcript. */
  const place = (): number => {
    const file = statSync(join(folderOf(runs), 'transcript.jsonl'), { throwIfNoEntry: false })
    return runs * 1e9 + (file?.size ?? 0)
  }

  const next = random(seed)
  let back: Promise<void> | undefined
  const victims: Readonly<Record<string, () => boolean | Promise<boolean>>> = {
    client: client.kill,
    gateway: gateway.kill,
    worker: worker.kill,
    ...(killBroker && {
      // It takes seconds to come back; the others are killed meanwhile too.
      broker: async () => {
        await back
        back = killBroker()
        back.catch(finished.reject)
        return true
      },
    }),
  }
  const counts = Object.fromEntries(Object.keys(victims).map((name) => [name, 0]))
  finished.promise.catch(() => (made = kills))
  while (made < kills) {
    // Every other kill comes after a step, at least: else most of them would meet programs that start.
    for (const from = place(); made % 2 === 1 && place() === from && made < kills; ) await wait(10)
    await wait(next() * pause)
    const name = Object.keys(victims)[Math.floor(next() * Object.keys(victims).length)]!
    if (!(await victims[name]!())) continue
    counts[name]! += 1
    made += 1
  }
  await back
  await finished.promise
  await Promise.all([worker.end('SIGTERM'), gateway.end('SIGTERM')])

  const { out } = await continuo(['verify', '--log', log, '--model', MODEL])
  if (asked > 0)
    console.log(`${made} kills`, counts, `${runs} runs of ${TURNS} turns`, `${left.length} ended`, left, out)
  for (let run = 0; run < runs; run += 1) {
    expect(told(folderOf(run)), `run ${run}`).toEqual(expected.transcript)
    const booked = linesOf<Message>(folderOf(run), 'transcript.jsonl')
      .flatMap(({ tool_calls }) => tool_calls ?? [])
      .filter(({ function: called }) => called.name === 'book')
    const done = linesOf<Effect>(folderOf(run), 'effects.jsonl')
    expect(done, `run ${run}`).toEqual(
      booked.map(({ id, function: called }) => ({ id, ...(JSON.parse(called.arguments) as object) })),
    )
  }
  expect(await answersIn(log, prefix)).toEqual(Array.from({ length: runs }, () => expected.answers).flat())
  expect(out).toContain('Everything agrees.')
  if (killBroker === undefined) expect(left).toEqual([])
}

/** For a dozen kills two minutes; more take some seconds each, and as long again to be recomputed. */
const timeout = 300_000 + 15_000 * asked

test('whoever is killed, every effect is there once and the transcript is the same', { timeout }, () =>
  campaign({ log: logIn(temporary()), kills: asked || 12, pause: 2000 }),
)

const none = broker === undefined ? ` (none here: ${missing})` : ''
test.skipIf(broker === undefined)(`on Kafka the broker is killed too${none}`, { timeout }, () => {
  const prefix = freshPrefix()
  return campaign({
    ...{ log: `kafka://${broker!.brokers}/${prefix}`, prefix, kills: asked || 6, pause: 6000 },
    killBroker: async () => {
      await broker!.kill()
      await broker!.restart()
    },
  })
})
