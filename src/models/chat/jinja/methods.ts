/** Attributes of values: the methods of Python's types that change nothing, behind the sandbox of Jinja2. */
import { type Bound, type Builtins, bind, type Run } from './calls.ts'
import { formatMethod } from './format.ts'
import { itemOf } from './operators.ts'
import { Fault, type Price } from './price.ts'
import { found, STR } from './strings.ts'
import { isClass } from './text.ts'
import {
  Callable,
  Dict,
  each,
  equal,
  itemsOf,
  Markup,
  Namespace,
  payKey,
  Range,
  Thing,
  typeOf,
  Undefined,
  type Value,
  View,
} from './values.ts'

/** Names that Python knows and that are not here: such a name is no member of a dict, and not undefined. */
const MISSING: Readonly<Record<string, readonly string[]>> = {
  str: [
    'casefold',
    'encode',
    'expandtabs',
    'format_map',
    'isidentifier',
    'isprintable',
    'istitle',
    'maketrans',
    'translate',
  ],
  dict: ['copy', 'fromkeys'],
  list: ['copy'],
  int: [
    'as_integer_ratio',
    'bit_count',
    'bit_length',
    'conjugate',
    'denominator',
    'from_bytes',
    'imag',
    'numerator',
    'real',
    'to_bytes',
  ],
  float: ['as_integer_ratio', 'conjugate', 'fromhex', 'hex', 'imag', 'real'],
  generator: ['close', 'send', 'throw', 'gi_yieldfrom', 'gi_running', 'gi_suspended'],
  dict_keys: ['mapping', 'isdisjoint'],
  dict_items: ['mapping', 'isdisjoint'],
  dict_values: ['mapping'],
}
/** What changes a value is there, and unsafe. */
const UNSAFE: Readonly<Record<string, readonly string[]>> = {
  list: ['append', 'clear', 'extend', 'insert', 'pop', 'remove', 'reverse', 'sort'],
  dict: ['clear', 'pop', 'popitem', 'setdefault', 'update'],
  generator: ['gi_frame', 'gi_code'],
}

const sought = (values: readonly Value[], value: Value, price: Price): number =>
  values.findIndex((one) => one === value || equal(one, value, price))

const ROW: Builtins<readonly Value[]> = {
  count: ['/ value', (values, [value], { price }) => BigInt(values.filter((one) => equal(one, value!, price)).length)],
  index: [
    '/ value start? stop?',
    (values, [value, start, stop], { price }) => {
      if (start !== undefined || stop !== undefined) throw new Fault('index with a place is not supported')
      return found(sought(values, value!, price))
    },
  ],
}

const valueIn = (dict: Dict, key: Value, usual: Value): Value => {
  const found = dict.get(key)
  return found === undefined ? usual : found
}

const DICT: Builtins<Dict> = {
  get: [
    '/ key default?',
    (dict, [key, usual = null], { price }) => {
      payKey(key!, price)
      return valueIn(dict, key!, usual)
    },
  ],
  items: ['', (dict) => new View(dict, 'items')],
  keys: ['', (dict) => new View(dict, 'keys')],
  values: ['', (dict) => new View(dict, 'values')],
}

const bound = <Self>(table: Builtins<Self>, self: Self, name: string, run: Run): Callable | undefined => {
  const [signature, method] = Object.hasOwn(table, name) ? table[name]! : []
  if (method === undefined) return undefined
  return new Callable(name, (args) => {
    if (typeof self === 'string') run.price.text(self.length)
    return method(self, bind(name, signature!, args), run)
  })
}

const textMethod = (text: string, name: string, run: Run): Callable | undefined => {
  if (name === 'format')
    return new Callable(name, (args) => {
      run.price.text(text.length)
      return formatMethod(text, args, run, run.price)
    })
  const is = isClass(name, '')
  if (is === null) return bound(STR, text, name, run)
  const look = (own: string, _: Bound, { price }: Run): boolean => {
    price.letters(own)
    return isClass(name, own)!
  }
  return bound({ [name]: ['', look] as const }, text, name, run)
}

/** getattr(value, name); undefined: it has no such attribute. */
const own = (value: Value, name: string, run: Run): Value | undefined => {
  const type = typeOf(value)
  const known = type === 'bool' ? 'int' : type
  if (UNSAFE[known]?.includes(name)) return new Undefined(`${name} of a ${type} changes it, which is unsafe`)
  if (MISSING[known]?.includes(name)) throw new Fault(`${name} of a ${type} is not supported`)
  if (typeof value === 'string') return textMethod(value, name, run)
  if (value instanceof Dict) return bound(DICT, value, name, run)
  const items = itemsOf(value)
  const found = value instanceof Thing ? value.attribute(name) : undefined
  if (found !== undefined || value instanceof Namespace) return found
  if (items !== null || value instanceof Range)
    return bound(ROW, items ?? (Object.hasOwn(ROW, name) ? [...each(value, run.price)] : []), name, run)
  if (typeof value === 'number' && name === 'is_integer') return new Callable(name, () => Number.isInteger(value))
  if (value instanceof Markup) throw new Fault(`it uses ${name} of what safe or escape gave, which is not supported`)
  return undefined
}

const SPECIAL = /^__\w+__$/

/** getattr as the sandbox has it; undefined: there is no such attribute. */
export const attribute = (value: Value, name: string, run: Run): Value | undefined => {
  run.price.pay(1)
  if (value instanceof Undefined) throw new Fault(value.why)
  if (SPECIAL.test(name)) {
    if (value instanceof Dict && value.get(name) !== undefined)
      throw new Fault(`it reads ${name} of a dict, which is not supported`)
    return new Undefined(`the attribute ${name} of a ${typeOf(value)} is unsafe`)
  }
  const found = own(value, name, run)
  if (found !== undefined && name.startsWith('_')) return new Undefined(`the attribute ${name} is unsafe`)
  return found
}

const nothing = (value: Value, name: string): Undefined => new Undefined(`a ${typeOf(value)} has no ${name}`)

/** `value.name`: the attribute, else the item. */
export const memberOf = (value: Value, name: string, run: Run): Value => {
  const found = attribute(value, name, run)
  const item = found === undefined ? itemOf(value, name, run.price) : found
  return item === undefined ? nothing(value, name) : item
}

/** `value[key]`: the item, else the attribute. */
export const elementOf = (value: Value, key: Value, run: Run): Value => {
  run.price.pay(1)
  const item = itemOf(value, key, run.price)
  const found = item === undefined && typeof key === 'string' ? attribute(value, key, run) : item
  return found === undefined ? nothing(value, typeof key === 'string' ? key : 'such element') : found
}
