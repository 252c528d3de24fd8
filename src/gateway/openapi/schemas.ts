/** zod's schemas as JSON Schema (draft 2020-12, which is OpenAPI 3.1's), those with a name under that name. */
import { z } from 'zod'
import { kindsOf } from '../anthropic/forms.ts'
import type { NamedSchemas } from './operation.ts'

export type JsonSchema = z.core.JSONSchema.BaseSchema
/** What stands in a document in place of a schema with a name. */
export interface Ref {
  readonly $ref: string
}
export const schemaRef = (name: string): Ref => ({ $ref: `#/components/schemas/${name}` })

interface Overridden {
  readonly zodSchema: z.core.$ZodTypes
  readonly jsonSchema: JsonSchema
}
const override = ({ zodSchema, jsonSchema }: Overridden): void => {
  const kinds = kindsOf.get(zodSchema)
  if (kinds !== undefined) {
    for (const name of Object.keys(jsonSchema)) delete jsonSchema[name]
    jsonSchema.oneOf = kinds.map((kind) => inlineSchema(kind))
  }
  // No items are said by their number alone.
  if (jsonSchema.prefixItems?.length === 0) delete jsonSchema.prefixItems
  // Whole numbers are those that JSON carries exactly, which says nothing of the number that is meant.
  if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum
  // A default that is no input: what stands there once the input was read.
  const { def } = zodSchema._zod
  if (def.type === 'default' && !z.safeParse(def.innerType, def.defaultValue).success) delete jsonSchema.default
}
/** Of what is sent: what the schemas make of it is the gateway's. */
const options = { target: 'draft-2020-12', io: 'input', unrepresentable: 'any', override } as const

/** Of a schema without a name. */
export const inlineSchema = (schema: z.core.$ZodType, io: 'input' | 'output' = 'input'): JsonSchema => {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { ...options, io })
  return rest
}

/** All schemas that have names; they refer to each other. */
export const jsonSchemas = (named: NamedSchemas): Record<string, JsonSchema> => {
  const registry = z.registry<{ id: string }>()
  for (const [id, schema] of Object.entries(named)) registry.add(schema, { id })
  const { schemas } = z.toJSONSchema(registry, { ...options, uri: (id) => schemaRef(id).$ref })
  return Object.fromEntries(
    Object.entries(schemas).map(([name, { $schema: _, $id: __, ...schema }]) => [name, schema as JsonSchema]),
  )
}

const orNull = (schema: JsonSchema): JsonSchema =>
  typeof schema.type === 'string' && schema.enum === undefined && schema.const === undefined
    ? ({ ...schema, type: [schema.type, 'null'] } as unknown as JsonSchema)
    : { anyOf: [schema, { type: 'null' }], ...(schema.default !== undefined && { default: schema.default }) }

/** The schema of a body whose members count as missing where they are null. */
export const withNulls = (schema: JsonSchema): JsonSchema => {
  const { anyOf, properties, required = [] } = schema
  if (anyOf !== undefined) return { ...schema, anyOf: anyOf.map((one) => withNulls(one as JsonSchema)) }
  if (properties === undefined) return schema
  const members = Object.entries(properties).map(([name, member]) => [
    name,
    required.includes(name) ? member : orNull(member as JsonSchema),
  ])
  return { ...schema, properties: Object.fromEntries(members) as JsonSchema['properties'] & object }
}
