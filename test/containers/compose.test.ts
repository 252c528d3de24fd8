/**
 * docker-compose.yml as people use it: up, an answer in whose middle the worker is killed, more workers, down and up
 * again, Prometheus, the board.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { freePorts } from '../../tools/kafka/properties.ts'
import { eventually, ROOT } from '../cli/helpers.ts'
import { docker, tried } from './docker.ts'

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')
const [kafka, gateway, prometheus, grafana] = await freePorts(4)
/** A project of its own, at ports of its own. */
const env = {
  COMPOSE_PROJECT_NAME: `continuo-test-${process.pid}`,
  KAFKA_PORT: String(kafka),
  GATEWAY_PORT: String(gateway),
  PROMETHEUS_PORT: String(prometheus),
  GRAFANA_PORT: String(grafana),
}
const compose = (...args: readonly string[]): Promise<string> => docker(['compose', ...args], env)
const up = (): Promise<string> => compose('up', '--detach', '--wait', '--wait-timeout', '180')
/** Names of services that run. */
const running = async (): Promise<readonly string[]> =>
  (await compose('ps', '--services', '--status', 'running')).split('\n').sort()
const ALL = ['broker', 'gateway', 'grafana', 'prometheus', 'worker']

const keyOf = (): Promise<string> => compose('exec', '-T', 'gateway', 'cat', '/keys/user')
const ask = async (maxTokens: number): Promise<number> => {
  const response = await fetch(`http://127.0.0.1:${gateway}/v1/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${await keyOf()}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo', prompt: 'The harbour master ', max_tokens: maxTokens }),
  })
  expect(response.status).toBe(200)
  return ((await response.json()) as { readonly usage: { readonly completion_tokens: number } }).usage.completion_tokens
}
const verified = (): Promise<string> => compose('run', '--rm', '--no-deps', '-T', 'worker', 'verify')
const sessions = async (): Promise<number> =>
  (await compose('run', '--rm', '--no-deps', '-T', 'topics', 'sessions', '--json')).split('\n').filter(Boolean).length

interface Series {
  readonly metric: Readonly<Record<string, string>>
  readonly value: readonly [number, string]
}
const query = async (expression: string): Promise<readonly Series[]> => {
  const response = await fetch(`http://127.0.0.1:${prometheus}/api/v1/query?query=${encodeURIComponent(expression)}`)
  const { status, data, error } = (await response.json()) as {
    readonly status: string
    readonly error?: string
    readonly data: { readonly result: readonly Series[] }
  }
  expect({ expression, status, error }).toEqual({ expression, status: 'success', error: undefined })
  return data.result
}
const MINUTE = 60_000

beforeAll(up)
afterAll(() => compose('down', '--volumes'))

describe('docker compose', () => {
  test('starts all, each well, and the gateway answers who shows the key', async () => {
    expect(await running()).toEqual(ALL)
    expect(await ask(48)).toBe(48)
    expect((await fetch(`http://127.0.0.1:${gateway}/v1/models`)).status).toBe(401)
  })

  test('Prometheus has a key of its own and sees no other', async () => {
    const seen = await compose('exec', '-T', 'prometheus', 'ls', '/keys')
    expect(seen.split('\n')).toEqual(['prometheus'])
    expect(
      (await tried(['compose', 'exec', '-T', '--user', 'nobody', 'gateway', 'cat', '/keys/user'], env)).code,
    ).not.toBe(0)
  })

  test('a worker that is killed in the middle of an answer costs no token', async () => {
    const worker = await compose('ps', '--quiet', 'worker')
    const inWorker = (script: string) => docker(['exec', worker, 'node', '--input-type=module', '--eval', script])
    const generated = async () =>
      Number(
        await inWorker(`const text = await (await fetch('http://127.0.0.1:9464/metrics')).text()
          console.log(/^continuo_tokens_generated_total (\\d+)/m.exec(text)?.[1] ?? 0)`),
      )
    const before = await generated()
    const answer = ask(6000)
    await eventually(async () => expect(await generated()).toBeGreaterThan(before + 100), MINUTE)
    // The process below the init: Docker restarts nothing that its own command has killed. The container ends with it,
    // and so does this look into it.
    await inWorker(`import { readFileSync } from 'node:fs'
      process.kill(Number(readFileSync('/proc/1/task/1/children', 'utf8').split(' ')[0]), 'SIGKILL')`).catch(() => {})
    expect(await answer).toBe(6000)
    expect(await verified()).toMatch(/agrees/)
    expect(await docker(['inspect', '--format', '{{.RestartCount}}', worker])).toBe('1')
  })

  test('more workers are found by name', async () => {
    await compose('up', '--detach', '--wait', '--scale', 'worker=3')
    await eventually(async () => expect(await query('up{job="continuo-worker"} == 1')).toHaveLength(3), 2 * MINUTE)
    await compose('up', '--detach', '--wait', '--scale', 'worker=1')
    expect(await ask(8)).toBe(8)
  })
})

describe('Prometheus and the board', () => {
  const alerts = parse(read('deploy/prometheus/alerts.yml')) as {
    readonly groups: readonly { readonly rules: readonly object[] }[]
  }
  const board = JSON.parse(read('deploy/grafana/continuo.json')) as {
    readonly title: string
    readonly panels: readonly { readonly targets?: readonly { readonly expr: string }[] }[]
  }

  test('every rule is evaluated and well', async () => {
    const rules = async () => {
      const response = await fetch(`http://127.0.0.1:${prometheus}/api/v1/rules`)
      const { data } = (await response.json()) as {
        readonly data: { readonly groups: readonly { readonly rules: readonly { readonly health: string }[] }[] }
      }
      return data.groups.flatMap(({ rules: all }) => all.map(({ health }) => health))
    }
    const wanted = alerts.groups.flatMap(({ rules: all }) => all.map(() => 'ok'))
    expect(wanted.length).toBeGreaterThan(5)
    await eventually(async () => expect(await rules()).toEqual(wanted), MINUTE)
  })

  test('every expression of the board has a value, but for those of models with another memory', async () => {
    const expressions = board.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))
    expect(expressions.length).toBeGreaterThan(20)
    const empty = async (): Promise<readonly string[]> => {
      const found: string[] = []
      for (const expression of expressions)
        if ((await query(expression.replaceAll('$__rate_interval', '1m'))).length === 0) found.push(expression)
      return found.filter((expression) => !expression.includes('continuo_memory_norm'))
    }
    await ask(8)
    await eventually(async () => expect(await empty()).toEqual([]), 2 * MINUTE)
  })

  test('Grafana is provisioned with the board', async () => {
    const response = await fetch(`http://127.0.0.1:${grafana}/api/search?type=dash-db`)
    expect(((await response.json()) as readonly { readonly title: string }[]).map(({ title }) => title)).toContain(
      board.title,
    )
  })
})

describe('what is kept', () => {
  test('stop and start, down and up: sessions and keys are those of before', async () => {
    const [key, count] = [await keyOf(), await sessions()]
    expect(count).toBeGreaterThan(0)
    await compose('stop')
    const codes = await docker(
      ['compose', 'ps', '--all', '--format', '{{.Service}} {{.ExitCode}}', 'worker', 'gateway'],
      env,
    )
    expect(codes.split('\n').sort()).toEqual(['gateway 0', 'worker 0'])
    await compose('start')
    await compose('down')
    await up()
    expect([await keyOf(), await sessions()]).toEqual([key, count])
    expect(await ask(8)).toBe(8)
  })
})

describe('npm run kafka', () => {
  const began = (args: readonly string[]): { readonly child: ChildProcess; readonly text: () => string } => {
    const child = spawn(process.execPath, [join(ROOT, 'tools', 'kafka', 'broker.ts'), ...args], {
      cwd: ROOT,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let text = ''
    for (const stream of [child.stdout, child.stderr]) stream!.on('data', (bytes: Buffer) => (text += bytes))
    return { child, text: () => text }
  }
  const interrupted = async ({ child }: { readonly child: ChildProcess }): Promise<number | null> => {
    const ended = new Promise<number | null>((resolve) => child.once('exit', resolve))
    child.kill('SIGINT')
    return ended
  }

  test('beside the stack it takes the broker that runs, and leaves it running with all others', async () => {
    const broker = began(['--port', String(kafka)])
    await eventually(() => expect(broker.text()).toMatch(/Kafka is ready/), MINUTE)
    expect(await interrupted(broker)).toBe(0)
    expect(broker.text()).toMatch(/goes on/)
    expect(await running()).toEqual(ALL)
  })

  test('--ephemeral throws away what is its own and nothing else', async () => {
    const volumes = async () => (await docker(['volume', 'ls', '--quiet'])).split('\n').sort()
    const [before, [port]] = [await volumes(), await freePorts(1)]
    const broker = began(['--ephemeral', '--port', String(port)])
    await eventually(() => expect(broker.text()).toMatch(/Kafka is ready/), MINUTE)
    expect((await volumes()).length).toBeGreaterThan(before.length)
    expect(broker.child.exitCode).toBe(null)
    expect(await interrupted(broker)).toBe(0)
    expect(await volumes()).toEqual(before)
    expect(await running()).toEqual(ALL)
  })
})
