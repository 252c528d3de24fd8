/** Schemas that no value fits both of: of them "oneOf" says the same as "anyOf". */

/** An object of a schema. */
export type Json = { readonly [key: string]: unknown }

export const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The values that the schema names, as JSON; null: it names none, or some whose JSON is not the only one. */
const valuesOf = (schema: Json): ReadonlySet<string> | null => {
  const values: readonly unknown[] | null = Object.hasOwn(schema, 'const')
    ? [schema.const]
    : Array.isArray(schema.enum)
      ? schema.enum
      : null
  if (values === null || values.some((value) => typeof value === 'object' && value !== null)) return null
  return new Set(values.map((value) => JSON.stringify(value)))
}

/** Types of the values that fit, as JSON knows them; null: the schema does not say. */
const typesOf = (schema: Json): ReadonlySet<string> | null => {
  const { type } = schema
  if (type === undefined) return null
  const all: readonly unknown[] = Array.isArray(type) ? type : [type]
  return new Set(all.map((each) => (each === 'integer' ? 'number' : String(each))))
}

const requires = (schema: Json, name: string): boolean =>
  Array.isArray(schema.required) && schema.required.includes(name)

/**
 * Whether this can be seen: the types differ, the values that are named differ, or of a member that both require the
 * named values differ (which is how alternatives are usually told apart). `follow` gives what a schema refers to.
 */
export const areDisjoint = (one: unknown, other: unknown, follow: (schema: unknown) => unknown): boolean => {
  const apart = (a: ReadonlySet<string> | null, b: ReadonlySet<string> | null): boolean =>
    a !== null && b !== null && ![...a].some((value) => b.has(value))
  const differ = (a: unknown, b: unknown): boolean =>
    isObject(a) && isObject(b) && (apart(typesOf(a), typesOf(b)) || apart(valuesOf(a), valuesOf(b)))
  const [a, b] = [follow(one), follow(other)]
  if (differ(a, b)) return true
  if (!isObject(a) || !isObject(b) || !isObject(a.properties) || !isObject(b.properties)) return false
  const [types, theirs] = [typesOf(a), typesOf(b)]
  if (types?.size !== 1 || theirs?.size !== 1 || !types.has('object') || !theirs.has('object')) return false
  const [mine, yours] = [a.properties, b.properties]
  return Object.keys(mine).some(
    (name) =>
      Object.hasOwn(yours, name) &&
      requires(a, name) &&
      requires(b, name) &&
      differ(follow(mine[name]), follow(yours[name])),
  )
}
