/**
 * Every expression of the board and of the alerts is PromQL, and asks for metrics and labels that a worker or a gateway
 * tells: they are asked for them here, after they did some work. Where promtool is installed (Debian: apt-get install
 * prometheus), it checks the same files, and what was told.
 */
import { spawnSync } from 'node:child_process'
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parser } from '@prometheus-io/lezer-promql'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse, stringify } from 'yaml'
import { ROOT, temporary } from '../cli/helpers.ts'
import { ask, type Serving, servingAll } from '../gateway/helpers.ts'
import { temporaryFile } from './helpers.ts'

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')

interface Panel {
  readonly id: number
  readonly title: string
  readonly type: string
  readonly targets?: readonly { readonly expr: string }[]
}
const board = JSON.parse(read('deploy/grafana/continuo.json')) as {
  readonly uid: string
  readonly panels: readonly Panel[]
}
const alerts = parse(read('deploy/prometheus/alerts.yml')) as {
  readonly groups: readonly {
    readonly rules: readonly {
      readonly alert: string
      readonly expr: string
      readonly annotations: { readonly summary: string }
    }[]
  }[]
}
const expressions = [
  ...board.panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => [title, expr] as const)),
  ...alerts.groups.flatMap(({ rules }) => rules.map(({ alert, expr }) => [alert, expr] as const)),
]

/** Names of metrics and labels in an expression. Grafana puts a duration in place of its variable. */
const namesIn = (expression: string) => {
  const text = expression.replaceAll('$__rate_interval', '1m')
  const [metrics, labels, faults]: string[][] = [[], [], []]
  parser.parse(text).iterate({
    enter({ type, from, to, node }) {
      const name = text.slice(from, to)
      if (type.isError) faults!.push(`${text.slice(0, from)}⟨here⟩${text.slice(from)}`)
      if (type.name === 'Identifier' && node.parent?.type.name === 'VectorSelector') metrics!.push(name)
      if (type.name === 'LabelName') labels!.push(name)
    },
  })
  return { metrics: metrics!, labels: labels!, faults: faults! }
}

let gateway: Serving
/** As they were told: by the gateway, by the worker. */
const told: string[] = []
beforeAll(async () => {
  gateway = await servingAll(afterAll, '--metrics-port', '0')
  const [worker] = await gateway.saw(/http:\/\/127\.0\.0\.1:\d+\/metrics/)
  const asked = { model: 'demo', prompt: 'The sea ', max_tokens: 8 }
  expect((await ask(`${gateway.url}/v1/completions`, asked)).status).toBe(200)
  for (const url of [`${gateway.url}/metrics`, worker]) told.push(await (await fetch(url)).text())
})

/** Series and labels that a text of metrics declares: a histogram has three names. */
const seriesIn = (text: string): readonly string[] =>
  [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].flatMap(([, name, type]) =>
    type === 'histogram' ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name!],
  )
const labelsIn = (text: string): readonly string[] => [...text.matchAll(/[{,](\w+)="/g)].map(([, name]) => name!)
/** Labels in the tables of metrics in docs, for what this worker had nothing to tell of. */
const documented = [
  ...(read('docs/operations.md') + read('docs/serve.md')).matchAll(/`continuo_\w+\{([\w,]+)\}`/g),
].flatMap(([, names]) => names!.split(','))

test.each(expressions)('%s: %s', (_, expression) => {
  const { metrics, labels, faults } = namesIn(expression)
  expect(faults).toEqual([])
  expect(metrics.length).toBeGreaterThan(0)
  // Prometheus itself adds these.
  const series = new Set([...told.flatMap(seriesIn), 'up'])
  expect(metrics.filter((name) => !series.has(name))).toEqual([])
  const known = new Set([...told.flatMap(labelsIn), ...documented, 'instance', 'job', 'le'])
  expect(labels.filter((name) => !known.has(name))).toEqual([])
})

test('the board has every panel once, and shows workers and gateways', () => {
  expect(new Set(board.panels.map(({ id }) => id)).size).toBe(board.panels.length)
  expect(expressions.length).toBeGreaterThan(35)
  const all = expressions.map(([, expression]) => expression).join(' ')
  for (const name of ['continuo_lag_records', 'continuo_task_state', 'continuo_gateway_first_token_seconds_bucket'])
    expect(all).toContain(name)
})

test('every metric of the gateway stands in docs/serve.md, every one of the worker in docs/operations.md', () => {
  const own = (text: string) => [...text.matchAll(/^# TYPE (continuo_\w+)/gm)].map(([, name]) => name!)
  const [ofGateway = '', ofWorker = ''] = told
  expect(own(ofGateway).filter((name) => !read('docs/serve.md').includes(name))).toEqual([])
  expect(own(ofWorker).filter((name) => !read('docs/operations.md').includes(name))).toEqual([])
})

test('the reader of expressions finds what is none, and names', () => {
  expect(namesIn('sum by (x) (rate(a_total{b="c"}[$__rate_interval])) > 1')).toEqual({
    metrics: ['a_total'],
    labels: ['x', 'b'],
    faults: [],
  })
  expect(namesIn('sum by (x (a)').faults).not.toEqual([])
})

const hasPromtool = spawnSync('promtool', ['--version']).status === 0
describe.skipIf(!hasPromtool)('promtool', () => {
  const promtool = (args: readonly string[], input?: string) => {
    const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8', input })
    return { status, said: stdout + stderr }
  }

  test('takes the configuration, the alerts and their tests', () => {
    const folder = temporary()
    cpSync(join(ROOT, 'deploy', 'prometheus'), folder, { recursive: true })
    const config = join(folder, 'prometheus.yml')
    // The key is in a volume there.
    const key = join(folder, 'key')
    writeFileSync(key, 'ck_key')
    writeFileSync(config, read('deploy/prometheus/prometheus.yml').replace('/keys/prometheus', key))
    for (const args of [
      ['check', 'config', config],
      ['test', 'rules', join(folder, 'alerts.test.yml')],
    ])
      expect(promtool(args)).toMatchObject({ status: 0, said: expect.stringContaining('SUCCESS') })
  })

  test('takes the expressions of the board, types too', () => {
    const rules = expressions.map(([, expr], at) => ({
      record: `panel:${at}`,
      expr: expr.replaceAll('$__rate_interval', '1m'),
    }))
    const file = temporaryFile('board.yml', stringify({ groups: [{ name: 'board', rules }] }))
    expect(promtool(['check', 'rules', file])).toMatchObject({ status: 0, said: expect.stringContaining('SUCCESS') })
  })

  test('finds nothing wrong with the text of the metrics', () => {
    // Three names of prom-client's own are against the rules of names.
    const own = (text: string): string =>
      text
        .split('\n')
        .filter((line) => !/^(# \w+ )?nodejs_active_\w+_total\b/.test(line))
        .join('\n')
    for (const text of told) expect(promtool(['check', 'metrics'], own(text))).toEqual({ status: 0, said: '' })
  })
})
