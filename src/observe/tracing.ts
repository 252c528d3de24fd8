/**
 * OpenTelemetry spans of the records of a worker. A record gives a span, from its delivery to the commit of its last
 * step, whose parent is the `traceparent` header of the record. Below it:
 *
 *   process <input topic>     CONSUMER
 *     queue                   until its turn in its session
 *     infer                   one for each step, from the end of the one before
 *     send <prefix>           PRODUCER, one for each transaction that carries outputs of the record
 *
 * Nothing here is loaded without a collector to send to. Spans follow the clock; nothing that a worker writes follows
 * from them: outputs carry the headers of their records, as they do without tracing, because a replay must write the
 * same bytes.
 */
import type { Context, Span, SpanContext, SpanOptions, Tracer } from '@opentelemetry/api'
import { ContinuoError, messageOf } from '../errors.ts'
import { finishedBy } from '../operators/types.ts'
import type { Tracing } from '../operators/worker/tracing.ts'
import type { EventLog, StoredRecord } from '../streams/log.ts'
import { textOf } from '../text.ts'

/** Spans of steps that one record has at most; a long generation has thousands of steps. */
const MOST_STEPS = 64

export interface Traces {
  of(partition: number): Tracing
  /** Sends what is left. */
  close(): Promise<void>
}

export interface TracesOptions {
  readonly log: Pick<EventLog, 'kind' | 'prefix'>
  readonly topic: string
  readonly group: string
  /** Of the collector, without path; undefined: OpenTelemetry's variables say where it is. */
  readonly endpoint?: string | undefined
}

type Api = typeof import('@opentelemetry/api')

/**
 * Loads OpenTelemetry's modules. They are optional peer dependencies, which the user installs: together they take 20
 * MB.
 */
const load = async () => {
  try {
    const [api, sdk, otlp, resources] = await Promise.all([
      import('@opentelemetry/api'),
      import('@opentelemetry/sdk-trace'),
      import('@opentelemetry/exporter-trace-otlp-http'),
      import('@opentelemetry/resources'),
    ])
    return { api, sdk, otlp, resources }
  } catch (error) {
    throw new ContinuoError(
      'INVALID',
      `Spans are to be sent, and the modules that do it are not installed: npm install @opentelemetry/api @opentelemetry/sdk-trace @opentelemetry/resources @opentelemetry/exporter-trace-otlp-http. Or leave --otlp and OTEL_EXPORTER_OTLP_ENDPOINT out. (${messageOf(error)})`,
      { cause: error },
    )
  }
}

/** W3C Trace Context: version, trace id, parent id, flags. Versions after 00 may have more behind that. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/

/** The span that a record's headers name; null: none, or none that is valid. */
export const remoteParent = (
  { headers }: Pick<StoredRecord, 'headers'>,
  { createTraceState, isSpanContextValid }: Pick<Api, 'createTraceState' | 'isSpanContextValid'>,
): SpanContext | null => {
  const header = (wanted: string): string | undefined => {
    const found = headers.find(([name]) => name.toLowerCase() === wanted)
    return found && textOf(found[1]).trim()
  }
  const [, traceId, spanId, flags] = TRACEPARENT.exec(header('traceparent') ?? '') ?? []
  if (traceId === undefined || spanId === undefined || flags === undefined) return null
  const state = header('tracestate')
  const parent = {
    ...{ traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true },
    ...(state !== undefined && { traceState: createTraceState(state) }),
  }
  return isSpanContextValid(parent) ? parent : null
}

/** Milliseconds since the epoch, with fractions, on a clock that only goes forward. */
const now = (): number => performance.timeOrigin + performance.now()

/** Records of a partition that are traced at a time: of a long backlog those that were read first. */
const MOST_OPEN = 16_384

interface Traced {
  readonly span: Span
  readonly context: Context
  queue: Span | null
  /** When the last step ended, or the record's turn came. */
  from: number
  steps: number
}

const tracingOf = (api: Api, tracer: Tracer, options: TracesOptions, partition: number): Tracing => {
  const { log, topic, group } = options
  const open = new Map<number, Traced>()
  const system = log.kind === 'kafka' ? 'kafka' : 'continuo'
  const common = { 'messaging.system': system, 'messaging.destination.partition.id': String(partition) }
  const child = (parent: Traced, name: string, options: SpanOptions): Span =>
    tracer.startSpan(name, options, parent.context)
  return {
    received(record) {
      if (open.size >= MOST_OPEN) return
      const remote = remoteParent(record, api)
      const outer = remote === null ? api.ROOT_CONTEXT : api.trace.setSpanContext(api.ROOT_CONTEXT, remote)
      const from = now()
      const span = tracer.startSpan(
        `process ${topic}`,
        {
          kind: api.SpanKind.CONSUMER,
          startTime: from,
          attributes: {
            ...common,
            'messaging.destination.name': topic,
            'messaging.operation.name': 'process',
            'messaging.operation.type': 'process',
            'messaging.consumer.group.name': group,
            'messaging.kafka.offset': record.offset,
            ...(record.key !== null && { 'messaging.kafka.message.key': textOf(record.key) }),
          },
        },
        outer,
      )
      const traced: Traced = { span, context: api.trace.setSpan(outer, span), queue: null, from, steps: 0 }
      traced.queue = child(traced, 'queue', { startTime: from })
      open.set(record.offset, traced)
    },
    begun({ offset }) {
      const traced = open.get(offset)
      if (traced === undefined) return
      traced.from = now()
      traced.queue?.end(traced.from)
      traced.queue = null
    },
    stepped({ record, outputs, head }) {
      const traced = open.get(record.offset)
      if (traced === undefined) return
      const at = now()
      traced.steps += 1
      if (traced.steps <= MOST_STEPS) {
        const attributes = head === null ? {} : { 'continuo.pulse': head.conductor.globalStep }
        child(traced, 'infer', { startTime: traced.from, attributes }).end(at)
      }
      traced.from = at
      for (const output of outputs)
        if (output.to === 'deadletters')
          traced.span.setStatus({ code: api.SpanStatusCode.ERROR, message: output.reason })
    },
    committed({ steps, ms }) {
      if (open.size === 0) return
      const at = now()
      const counts = new Map<number, number>()
      for (const { record, records } of steps)
        counts.set(record.offset, (counts.get(record.offset) ?? 0) + records.length)
      for (const [offset, sent] of counts) {
        const traced = open.get(offset)
        if (traced === undefined || sent === 0) continue
        const attributes = {
          ...common,
          'messaging.destination.name': log.prefix,
          'messaging.operation.name': 'send',
          'messaging.operation.type': 'send',
          'messaging.batch.message_count': sent,
        }
        const kind = api.SpanKind.PRODUCER
        child(traced, `send ${log.prefix}`, { kind, startTime: at - ms, attributes }).end(at)
      }
      for (const offset of steps.flatMap(finishedBy)) {
        const traced = open.get(offset)
        if (traced === undefined) continue
        open.delete(offset)
        // A cancel that took effect had no turn of its own.
        traced.queue?.end(at)
        traced.span.setAttribute('continuo.steps', traced.steps)
        traced.span.end(at)
      }
    },
    close() {
      for (const { span, queue } of open.values()) {
        queue?.end()
        span.setStatus({ code: api.SpanStatusCode.ERROR, message: 'The task ended before the record was finished.' })
        span.end()
      }
      open.clear()
    },
  }
}

/** Whether OpenTelemetry's variables name a collector. */
export const namesCollector = (env: NodeJS.ProcessEnv): boolean =>
  Boolean(env.OTEL_EXPORTER_OTLP_ENDPOINT || env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)

export interface OpenTracer {
  readonly api: Api
  readonly tracer: Tracer
  /** Sends what is left. */
  close(): Promise<void>
}

/**
 * Loads what makes spans and sends them. `endpoint`: of the collector, without path; undefined: OpenTelemetry's
 * variables say where it is. Throws INVALID where the modules are not installed, or `endpoint` is no URL.
 */
export const openTracer = async (endpoint: string | undefined): Promise<OpenTracer> => {
  if (endpoint !== undefined && !/^https?:\/\//.test(endpoint))
    throw new ContinuoError(
      'INVALID',
      `A collector of spans is named by http://HOST:PORT or https://…, not "${endpoint}".`,
    )
  const { api, sdk, otlp, resources } = await load()
  const url = endpoint === undefined ? {} : { url: `${endpoint.replace(/\/+$/, '')}/v1/traces` }
  const name = process.env.OTEL_SERVICE_NAME || 'continuo'
  const provider = new sdk.TracerProvider({
    resource: resources.defaultResource().merge(resources.resourceFromAttributes({ 'service.name': name })),
    spanProcessors: [new sdk.BatchSpanProcessor({ exporter: new otlp.OTLPTraceExporter(url) })],
  })
  // A collector that is away must not keep a process from ending.
  return { api, tracer: provider.getTracer('continuo'), close: () => provider.shutdown().catch(() => undefined) }
}

/** Spans of a worker's records. Throws what `openTracer` throws. */
export const openTraces = async (options: TracesOptions): Promise<Traces> => {
  const { api, tracer, close } = await openTracer(options.endpoint)
  return { of: (partition) => tracingOf(api, tracer, options, partition), close }
}
