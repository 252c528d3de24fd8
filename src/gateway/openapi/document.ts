/**
 * The HTTP API as an OpenAPI 3.1 document. Bodies of requests are the schemas by which they are read;
 * test/gateway/openapi.test.ts holds the routes and the answers of gateways to it.
 */
import { readFileSync } from 'node:fs'
import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import { inPackage } from '../../places.ts'
import { anthropic, messagesError } from './anthropic.ts'
import { page } from './console.ts'
import { openai } from './openai.ts'
import {
  type Answer,
  type AnswerHeader,
  errorBody,
  errorsOf,
  type Operation,
  type RequestHeader,
  type Section,
} from './operation.ts'
import { responses } from './responses.ts'
import { inlineSchema, type JsonSchema, jsonSchemas, type Ref, schemaRef, withNulls } from './schemas.ts'
import { sessions } from './sessions.ts'

const SECTIONS: readonly Section[] = [openai, responses, anthropic, sessions, page]

const TAGS: Readonly<Record<string, string>> = {
  OpenAI: "Routes by which OpenAI's clients ask.",
  Responses: 'Responses, by the Open Responses specification.',
  Anthropic: "Messages, as Anthropic's clients ask for them.",
  Tokens: 'Counts and ids of tokens; nothing is written into the log.',
  Sessions: 'Sessions, their events and their streams.',
  Gateway: 'What probes and Prometheus ask.',
  Console: 'What the page of the gateway asks.',
}

const STATUSES: Readonly<Record<number, string>> = {
  400: 'The request cannot be taken; the message says what was expected.',
  401: 'The gateway has keys, and the request shows none of them.',
  403: 'A page of another site, or a name of the gateway that it does not answer to, asks.',
  404: 'There is no such model, session, response or item.',
  409: 'It cannot be done where the session or the response stands.',
  410: 'The log does not have it any more.',
  413: 'The request has more bytes than are taken.',
  415: 'The body has a content type that is not read.',
  422: 'The Idempotency-Key is that of another request.',
  426: 'The route is for WebSockets.',
  429: 'Too many requests, or too many that wait; try again later.',
  500: 'The gateway met a fault of its own.',
  503: 'The log does not answer, or too many answers are under way; try again later.',
  504: 'There was no answer in time. What was asked may be in the log.',
}

const text = (description: string, more: JsonSchema = {}) => ({ description, schema: { type: 'string', ...more } })
const REQUEST_HEADERS = {
  Session: {
    ...{ name: 'x-session', in: 'header' },
    ...text('A session that lasts, in percent-encoding. Default: the request has one of its own.', { minLength: 1 }),
  },
  IdempotencyKey: {
    ...{ name: 'Idempotency-Key', in: 'header' },
    ...text('A request that is sent again with this key and the same body is done once, and gets the first answer.', {
      ...{ minLength: 1, maxLength: 255 },
    }),
  },
  LastEventId: {
    ...{ name: 'Last-Event-ID', in: 'header' },
    ...text('The position, PARTITION:OFFSET, behind which the stream goes on; it counts before "starting_after".'),
  },
  OpenResponsesVersion: {
    ...{ name: 'openresponses-version', in: 'header' },
    ...text('With any value thoughts come in events "response.reasoning.…", else "response.reasoning_text.…".'),
  },
} satisfies Record<RequestHeader, object>
const ANSWER_HEADERS = {
  Session: { name: 'x-session', ...text('The session that answered, in percent-encoding.') },
  Seed: { name: 'x-seed', ...text('The seed of the answer.') },
  Replayed: { name: 'idempotency-replayed', ...text('"true": this answer was given before.', { const: 'true' }) },
} satisfies Record<AnswerHeader, object>
const ERROR_HEADERS: Readonly<Record<number, Readonly<Record<string, object>>>> = {
  401: { 'www-authenticate': text('Bearer.') },
  429: { 'retry-after': text('Seconds.') },
  503: { 'retry-after': text('Seconds.') },
}
const PATH_PARAMETERS: Readonly<Record<string, string>> = {
  id: 'The id of the session or response.',
  model: 'The name that /v1/models lists.',
}

const names = new Map<z.core.$ZodType, string>(
  SECTIONS.flatMap(({ schemas }) => Object.entries(schemas).map(([name, of]) => [of, name])),
)
const schemaOf = (schema: Parameters<typeof inlineSchema>[0]): Ref | JsonSchema => {
  const name = names.get(schema)
  return name === undefined ? inlineSchema(schema) : schemaRef(name)
}

const responseName = (status: number, form: Operation['errorForm']): string =>
  form === undefined ? `Error${status}` : `MessagesError${status}`
const errorResponses = (form: Operation['errorForm']) =>
  Object.keys(STATUSES)
    .map(Number)
    .map((status) => {
      const headers = ERROR_HEADERS[status]
      const schema = schemaOf(form === undefined ? errorBody : messagesError)
      const content = { 'application/json': { schema } }
      const described = { description: STATUSES[status]!, ...(headers !== undefined && { headers }), content }
      return [responseName(status, form), described] as const
    })

const STREAM = 'text/event-stream'
const responseOf = ({ description, json, events, media, headers = [] }: Answer) => {
  const told =
    events === undefined
      ? description
      : `${description} In a stream (${STREAM}) the schema is that of the data of each event${json === undefined ? '' : ', but for a last "[DONE]" where the protocol has one'}.`
  const content = {
    ...(json !== undefined && { 'application/json': { schema: schemaOf(json) } }),
    ...(events !== undefined && { [STREAM]: { schema: schemaOf(events) } }),
    ...(media !== undefined && { [media]: { schema: { type: 'string' } } }),
  }
  return {
    description: told,
    ...(headers.length > 0 && {
      headers: Object.fromEntries(
        headers.map((name) => [ANSWER_HEADERS[name].name, { $ref: `#/components/headers/${name}` }]),
      ),
    }),
    ...(Object.keys(content).length > 0 && { content }),
  }
}

/** Of a query, by the schema that reads it. */
const queryParameters = (query: Operation['query']) =>
  Object.entries(query?.shape ?? {}).map(([name, field]) => {
    // What the query's text is read as: a number, where one is asked for.
    const { description, ...schema } = inlineSchema(field, 'output')
    return { name, in: 'query', description, required: !z.safeParse(field, undefined).success, schema }
  })

const operationOf = (operation: Operation) => {
  const { id, path, tag, summary, description, query, headers = [], body, answers, errorForm, access } = operation
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    ...{ name: name!, in: 'path', required: true, ...text(PATH_PARAMETERS[name!]!) },
  }))
  const inHeaders = headers.map((name) => ({ $ref: `#/components/parameters/${name}` }))
  const parameters = [...inPath, ...queryParameters(query), ...inHeaders]
  const told = Object.entries(answers).map(([status, answer]) => [status, responseOf(answer)])
  const errors = errorsOf(operation)
    .filter((status) => answers[status] === undefined)
    .map((status) => [status, { $ref: `#/components/responses/${responseName(status, errorForm)}` }])
  return {
    ...{ operationId: id, tags: [tag], summary },
    ...(description !== undefined && { description }),
    ...(parameters.length > 0 && { parameters }),
    ...(body !== undefined && {
      requestBody: {
        required: operation.bodyIsOptional !== true,
        content: { 'application/json': { schema: schemaOf(body) } },
      },
    }),
    responses: Object.fromEntries([...told, ...errors]),
    ...(access === 'open' && { security: [] }),
  }
}

/** Every route of the gateway, but for the files of the console's page. */
export const openApi = (version: string) => {
  const operations = SECTIONS.flatMap((section) => section.operations)
  const paths: Record<string, Record<string, ReturnType<typeof operationOf>>> = {}
  for (const operation of operations) {
    paths[operation.path] ??= {}
    paths[operation.path]![operation.method] = operationOf(operation)
  }
  const schemas = jsonSchemas(Object.assign({}, ...SECTIONS.map((section) => section.schemas)))
  for (const { body, nullIsAbsent } of operations) {
    const name = body === undefined || nullIsAbsent !== true ? undefined : names.get(body)
    if (name !== undefined) schemas[name] = withNulls(schemas[name]!)
  }
  return {
    openapi: '3.1.0',
    info: {
      ...{ title: 'Continuo', version },
      description:
        'The HTTP gateway before a log: docs/serve.md says what its routes do. Parameters of the protocols that it refuses by name, and their values that ask for nothing, are not here. What is no request of HTTP/1.1, or does not come to its end in time, is answered with 400, 408 or 431 at any path.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    // A gateway without keys answers on its own machine alone.
    security: [{ bearer: [] }, { key: [] }, {}],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths,
    components: {
      schemas,
      responses: Object.fromEntries([...errorResponses(undefined), ...errorResponses('anthropic')]),
      parameters: REQUEST_HEADERS,
      headers: Object.fromEntries(
        Object.entries(ANSWER_HEADERS).map(([name, { name: _, ...header }]) => [name, header]),
      ),
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer', description: 'A key of the gateway (continuo keys add).' },
        key: {
          type: 'apiKey',
          in: 'header',
          name: 'x-api-key',
          description: "The same, as Anthropic's clients show it.",
        },
      },
    },
  }
}

/** GET /openapi.json. It needs no key, as it says nothing of the log; it is made when it is asked for first. */
export const openApiRoute = (app: FastifyInstance): void => {
  let json: string | null = null
  const made = (): string => {
    const { version } = JSON.parse(readFileSync(inPackage('package.json'), 'utf8')) as { readonly version: string }
    return JSON.stringify(openApi(version))
  }
  app.get('/openapi.json', { config: { open: true, rateLimit: false } }, (_request, reply) => {
    json ??= made()
    return reply.header('content-type', 'application/json; charset=utf-8').send(json)
  })
}
