/**
 * Holds what gateways take and give to the OpenAPI document: every answer, and every event of a stream, by its route
 * and status.
 */
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import { openApi } from '../../src/gateway/openapi/document.ts'

type Json = Readonly<Record<string, unknown>>
interface Operation {
  readonly operationId: string
  readonly requestBody?: { readonly content: Json }
  readonly responses: Readonly<Record<string, Json>>
}
/** As a client has it. */
export const document = JSON.parse(JSON.stringify(openApi('0.0.0'))) as ReturnType<typeof openApi>
const paths = document.paths as unknown as Readonly<Record<string, Readonly<Record<string, Operation>>>>

/** Operations as `GET /v1/sessions/{id}`. */
export const operations: readonly string[] = Object.entries(paths).flatMap(([path, methods]) =>
  Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
)

// Compiled schemas check a few answers each: they need not be fast.
const ajv = new Ajv2020({ strict: false, formats: { base64: true }, code: { optimize: false } })
formats.default(ajv)
ajv.addSchema({ $id: 'api', components: document.components })
const known = new Map<string, ValidateFunction>()
/** Of a schema that stands in the document, by its JSON. Throws where it is no JSON Schema. */
export const validator = (schema: unknown): ValidateFunction => {
  const json = JSON.stringify(schema).replaceAll('"$ref":"#/', '"$ref":"api#/')
  const made = known.get(json) ?? ajv.compile(JSON.parse(json) as object)
  known.set(json, made)
  return made
}

const escaped = (text: string): string => text.replace(/[.*+?^$()|[\]\\]/g, '\\$&')
/**
 * Whole names before parameters: /v1/responses/compact is not the response "compact". The name of a model may have
 * slashes.
 */
const patterns = Object.keys(paths)
  .sort((a, b) => a.split('{').length - b.split('{').length)
  .map((path) => ({
    path,
    pattern: new RegExp(`^${escaped(path).replace(/\{(\w+)\}/g, (_, name) => (name === 'model' ? '.+' : '[^/]+'))}$`),
  }))

/** The operation of a request; undefined: the gateway has none there. */
export const operationOf = (method: string, url: string): { name: string; operation: Operation } | undefined => {
  const { pathname } = new URL(url)
  const path = patterns.find(
    ({ pattern, path: of }) => pattern.test(pathname) && paths[of]![method.toLowerCase()],
  )?.path
  return path === undefined ? undefined : { name: `${method} ${path}`, operation: paths[path]![method.toLowerCase()]! }
}

const contentOf = (operation: Operation, status: number): Json | undefined => {
  const response = operation.responses[status]
  const name = /[^/]+$/.exec(String(response?.$ref))?.[0]
  const found = response?.$ref === undefined ? response : (document.components.responses[name!] as unknown as Json)
  return found && ((found.content ?? {}) as Json)
}
const schemaIn = (content: Json | undefined, type: string): unknown => (content?.[type] as Json | undefined)?.schema

const check = (schema: unknown, value: unknown, what: string): void => {
  const validate = validator(schema)
  if (!validate(value))
    throw new Error(
      `${what} is not as the document has it: ${ajv.errorsText(validate.errors)}; ${JSON.stringify(value).slice(0, 2000)}`,
    )
}

/**
 * Throws where a JSON answer, or the request that it was given to, is not as the document has it. Returns the name of
 * the operation.
 */
export const checkAnswer = (
  { method, url, body }: { readonly method: string; readonly url: string; readonly body?: unknown },
  status: number,
  answer: unknown,
): string | undefined => {
  const found = operationOf(method, url)
  if (found === undefined) return undefined
  const { name, operation } = found
  const schema = schemaIn(contentOf(operation, status), 'application/json')
  if (schema === undefined) throw new Error(`${name} has no JSON of the status ${status} in the document.`)
  check(schema, answer, `An answer of ${name}, status ${status}`)
  if (status < 300) checkBody(operation, body, name)
  return name
}

/** A schema that stands in the document in place of a reference. */
const resolved = (schema: Json): Json => {
  const name = /[^/]+$/.exec(String(schema.$ref))?.[0]
  return schema.$ref === undefined ? schema : (document.components.schemas[name!] as Json)
}
const membersOf = (schema: Json): readonly string[] => {
  const { properties, anyOf = [] } = resolved(schema) as { properties?: Json; anyOf?: readonly Json[] }
  return [...Object.keys(properties ?? {}), ...anyOf.flatMap(membersOf)]
}

/**
 * What was taken can be asked. Members that the document does not have may be there where they ask for nothing, such as
 * `"best_of": 1`.
 */
const checkBody = ({ requestBody }: Operation, given: unknown, name: string): void => {
  const schema = schemaIn(requestBody?.content, 'application/json') as Json | undefined
  if (schema === undefined || given === undefined) return
  const body: unknown = typeof given === 'string' ? JSON.parse(given) : JSON.parse(JSON.stringify(given))
  const members = membersOf(schema)
  const isObject = typeof body === 'object' && body !== null && !Array.isArray(body)
  // Of two forms of a body each has its own members, of which the other's may be null.
  const isForms = 'anyOf' in resolved(schema)
  const isTold = ([key, value]: readonly [string, unknown]) => members.includes(key) && !(isForms && value === null)
  const kept = isObject ? Object.fromEntries(Object.entries(body).filter(isTold)) : body
  check(schema, kept, `A request that ${name} took`)
}
/** Throws where the body of a request is not as the document has it. */
export const checkRequest = (method: string, url: string, body: unknown): void => {
  const found = operationOf(method, url)
  if (found === undefined) throw new Error(`There is no ${method} ${url} in the document.`)
  checkBody(found.operation, body, found.name)
}

/** Throws where the data of an event is not as the document has it, for streams whose events it has. */
export const checkEvent = (url: string, data: string): void => {
  if (data === '[DONE]' || !URL.canParse(url)) return
  for (const method of ['GET', 'POST']) {
    const found = operationOf(method, url)
    const schema = found && schemaIn(contentOf(found.operation, 200), 'text/event-stream')
    if (found === undefined || schema === undefined) continue
    if ((schema as Json).type !== 'string') check(schema, JSON.parse(data), `An event of ${found.name}`)
  }
}
