/** Which field of a record names its session: a host, a service, a user. */

/** Characters of a name; longer ones are cut. */
const MOST_NAME = 200

/** The session of a record; undefined: the record has no such field. */
export type Field = (record: string) => string | undefined

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** A member of a JSON object, by the names that lead to it. */
const memberIn = (record: string, path: readonly string[]): string | undefined => {
  let value: unknown
  try {
    value = JSON.parse(record)
  } catch {
    return undefined
  }
  for (const name of path) {
    if (!isObject(value) || !Object.hasOwn(value, name)) return undefined
    value = value[name]
  }
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean'
    ? String(value)
    : undefined
}

/** The value of `name=value`, or of `name="a value"`, in a text. */
const pairIn = (record: string, name: string): string | undefined => {
  const start = ` ${record.replaceAll('\t', ' ')}`.indexOf(` ${name}=`)
  if (start < 0) return undefined
  const rest = record.slice(start + name.length + 1)
  const [, quoted, plain] = /^(?:"([^"]*)"|([^\s,;]*))/.exec(rest) ?? []
  return quoted ?? plain
}

/**
 * `given`: the number of a word, from 1; or a name: of a member of records that are JSON objects (a.b: of an object
 * within), in others of a value that stands behind `name=`. Of a record of several lines the first one counts, unless
 * it is JSON.
 */
export const fieldOf = (given: string): Field => {
  const number = /^[1-9][0-9]{0,3}$/.test(given) ? Number(given) : null
  const path = given.split('.')
  const find = (record: string): string | undefined => {
    const line = record.split('\n', 1)[0]!
    if (number !== null) return line.split(/[ \t]+/).filter(Boolean)[number - 1]
    return record.trimStart().startsWith('{') ? memberIn(record, path) : pairIn(line, given)
  }
  return (record) => {
    const found = find(record)?.slice(0, MOST_NAME)
    return found === '' ? undefined : found
  }
}
