/**
 * Spans that a worker sends to a collector: a real one in this process, which takes OTLP over HTTP; and that nothing of
 * it is loaded where no collector is named.
 *
 * @module-tag slow
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { createTraceState, isSpanContextValid } from '@opentelemetry/api'
import { expect, onTestFinished, test } from 'vitest'
import { ensureTopics, namesOf } from '../../src/client/topics.ts'
import { remoteParent } from '../../src/observe/tracing.ts'
import { MODEL, recordsOf, start, temporary, withLog } from './helpers.ts'

interface SentSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes: readonly { readonly key: string; readonly value: Record<string, unknown> }[]
  readonly status: { readonly code?: number; readonly message?: string }
  readonly traceState?: string
}
interface Sent {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: SentSpan['attributes'] }
    readonly scopeSpans: readonly { readonly spans: readonly SentSpan[] }[]
  }[]
}

const collector = async () => {
  const sent: Sent[] = []
  const server = createServer(async (request, response) => {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part as Buffer)
    if (request.url === '/v1/traces') sent.push(JSON.parse(Buffer.concat(parts).toString()) as Sent)
    response.setHeader('content-type', 'application/json').end('{}')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans: () =>
      sent.flatMap(({ resourceSpans }) =>
        resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans)),
      ),
    services: () =>
      sent.flatMap(({ resourceSpans }) => resourceSpans.map(({ resource }) => attribute(resource, 'service.name'))),
  }
}

const attribute = ({ attributes }: Pick<SentSpan, 'attributes'>, name: string): unknown => {
  const [value] = Object.values(attributes.find(({ key }) => key === name)?.value ?? {})
  return value
}

/** In the paths of the modules that make and send spans. */
const MODULES = 'node_modules/@opentelemetry'
const TRACE = '0af7651916cd43dd8448eb211c80319c'
const PARENT = 'b7ad6b7169203331'

const feedTraced = (url: string): Promise<void> =>
  withLog(url, async (log) => {
    const names = namesOf(log)
    await ensureTopics(log, names, 1)
    const record = (event: object, headers: readonly (readonly [string, string])[] = []) => ({
      key: Buffer.from('tale'),
      value: Buffer.from(JSON.stringify(event)),
      timestamp: 1_700_000_000_000,
      headers: headers.map(([name, value]) => [name, Buffer.from(value)] as const),
    })
    await log.append(names.chunks, [
      record({ type: 'text', text: 'The harbour ' }, [
        ['traceparent', `00-${TRACE}-${PARENT}-01`],
        ['tracestate', 'vendor=1'],
      ]),
      record({ type: 'generate', requestId: 'r', maxTokens: 40, seed: 1 }, [
        ['traceparent', `00-${TRACE}-${PARENT}-01`],
      ]),
      record({ type: 'nope' }),
      record({ type: 'text', text: 'unsampled' }, [['traceparent', `00-${TRACE}-${PARENT}-00`]]),
    ])
  })

const run = (url: string, ...more: string[]) => [
  'run',
  '--log',
  url,
  '--model',
  MODEL,
  '--until-idle',
  '50',
  '--log-level',
  'error',
  ...more,
]
const outputs = async (url: string) =>
  Promise.all(
    ['tokens', 'observations', 'deadletters'].map(async (name) =>
      (await recordsOf(url, `continuo.${name}`)).map(({ key, value, headers, timestamp }) => ({
        key,
        value,
        headers,
        timestamp,
      })),
    ),
  )

test('each record has a span below that of its header, with its queue, its steps and its commits; what is written is as without', async () => {
  const folder = temporary()
  const [plain, traced] = ['plain', 'traced'].map((name) => `file:${join(folder, `${name}.db`)}`) as [string, string]
  const { url: endpoint, spans, services } = await collector()
  await feedTraced(plain)
  await feedTraced(traced)
  // Nothing is loaded of what makes spans, and with them all of it.
  const loaded = { NODE_DEBUG: 'esm' }
  const quiet = await start(run(plain), { env: loaded }).done
  expect(quiet.code).toBe(0)
  expect(quiet.err).not.toContain(MODULES)
  const loud = await start(run(traced, '--otlp', endpoint), { env: loaded }).done
  expect(loud.code).toBe(0)
  expect(loud.err).toContain(MODULES)

  const all = spans()
  expect(new Set(services())).toEqual(new Set(['continuo']))
  const roots = all.filter(({ name }) => name === 'process continuo.chunks')
  expect(roots.map((span) => Number(attribute(span, 'messaging.kafka.offset'))).sort()).toEqual([0, 1, 2])
  const at = (offset: number) => roots.find((span) => Number(attribute(span, 'messaging.kafka.offset')) === offset)!
  expect(at(0)).toMatchObject({ traceId: TRACE, parentSpanId: PARENT, kind: 5, traceState: 'vendor=1' })
  expect(at(1)).toMatchObject({ traceId: TRACE, parentSpanId: PARENT })
  expect(at(2).traceId).not.toBe(TRACE)
  expect(at(2).parentSpanId ?? '').toBe('')
  expect(at(2).status).toMatchObject({ code: 2, message: expect.stringContaining('Expected an event type') })
  expect(attribute(at(1), 'messaging.kafka.message.key')).toBe('tale')

  const below = (root: SentSpan) => all.filter(({ parentSpanId }) => parentSpanId === root.spanId)
  const names = (root: SentSpan) => below(root).map(({ name }) => name)
  // 40 tokens in runs of 16, and the held text before them is none: three steps.
  expect(names(at(1)).filter((name) => name === 'infer')).toHaveLength(3)
  expect(Number(attribute(at(1), 'continuo.steps'))).toBe(3)
  for (const root of roots) {
    expect(names(root).filter((name) => name === 'queue')).toHaveLength(1)
    const sends = below(root).filter(({ name }) => name === 'send continuo')
    expect(sends.length).toBeGreaterThan(0)
    for (const { kind } of sends) expect(kind).toBe(4)
    for (const span of below(root)) {
      expect(span.traceId).toBe(root.traceId)
      expect(BigInt(span.startTimeUnixNano)).toBeLessThanOrEqual(BigInt(span.endTimeUnixNano))
      expect(BigInt(span.endTimeUnixNano)).toBeLessThanOrEqual(BigInt(root.endTimeUnixNano))
    }
  }
  expect(await outputs(traced)).toEqual(await outputs(plain))
})

test('a collector that is away, or no URL, is no fault of the events', async () => {
  const url = `file:${join(temporary(), 'log.db')}`
  await feedTraced(url)
  expect((await start(run(url), { env: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' } }).done).code).toBe(0)
  expect(await recordsOf(url, 'continuo.tokens')).toHaveLength(3)
  expect(await start(run(url, '--otlp', 'collector')).done).toMatchObject({
    code: 1,
    err: expect.stringContaining('is named by http://HOST:PORT'),
  })
})

test.each([
  ['00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', true],
  ['01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more', true],
  ['ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', false],
  ['00-00000000000000000000000000000000-b7ad6b7169203331-01', false],
  ['00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01', false],
  ['00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', false],
  ['', false],
])('traceparent %j names a span: %j', (header, expected) => {
  const parent = remoteParent(
    { headers: [['traceparent', Buffer.from(header)]] },
    { isSpanContextValid, createTraceState },
  )
  expect(parent !== null).toBe(expected)
})
