/** What built-ins get: values by place and by name, and the rendering that they are part of. */
import { Fault, type Price } from './price.ts'
import type { Arguments, Value } from './values.ts'

/** What a built-in may use of the rendering. */
export interface Run {
  readonly price: Price
  /** Applies a filter or a test by its name. Throws where there is none. */
  filter(name: Value, value: Value, args: Arguments): Value
  test(name: Value, value: Value, args: Arguments): Value
  attribute(value: Value, name: string): Value
  item(value: Value, key: Value): Value
  isFilter(name: string): boolean
  isTest(name: string): boolean
}

/** Values in the order of a signature; undefined: not given. */
export type Bound = readonly (Value | undefined)[]

export const NO_ARGUMENTS: Arguments = { list: [], named: new Map() }

/**
 * The values of a call in the order of a signature: names with spaces between, `?` behind one that may be left out, `/
 * ` before those that have no names.
 */
export const bind = (callee: string, signature: string, { list, named }: Arguments): Bound => {
  const names = signature.split(' ').filter((name) => name !== '/' && name !== '')
  if (list.length > names.length)
    throw new Fault(`${callee} gets ${list.length} values, expected ${names.length} at most`)
  const found: (Value | undefined)[] = [...list]
  for (const [name, value] of named) {
    const at = signature.startsWith('/') ? -1 : names.findIndex((own) => own.replace('?', '') === name)
    if (at < 0) throw new Fault(`${callee} takes nothing named ${name}`)
    if (found[at] !== undefined) throw new Fault(`${callee} gets ${name} twice`)
    found[at] = value
  }
  names.forEach((name, at) => {
    if (found[at] === undefined && !name.endsWith('?')) throw new Fault(`${callee} gets no ${name}`)
  })
  return found
}

/** A built-in on a value: its signature, and what it does. */
export type Builtin<Self> = readonly [string, (self: Self, args: Bound, run: Run) => Value]
export type Builtins<Self> = Readonly<Record<string, Builtin<Self>>>
