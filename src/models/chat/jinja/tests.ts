/** What stands behind `is`. */
import { type Builtins, bind, type Run } from './calls.ts'
import { binary, compared, contains } from './operators.ts'
import { Fault, type Price } from './price.ts'
import { isClass } from './text.ts'
import {
  type Arguments,
  Callable,
  Dict,
  equal,
  itemsOf,
  iterate,
  Lazy,
  Markup,
  numberOf,
  Range,
  Undefined,
  type Value,
} from './values.ts'
import { str } from './write.ts'

const isText = (value: Value): boolean => typeof value === 'string' || value instanceof Markup
const hasRest = (value: Value, divisor: bigint, rest: bigint, run: Run): boolean =>
  equal(binary('%', value, divisor, run.price), rest, run.price)

/** Whether two values are one: Python says so of small numbers and some texts, which is its own affair. */
const isSame = (value: Value, other: Value): boolean => {
  const plain = (one: Value): boolean => ['string', 'bigint', 'number'].includes(typeof one)
  if (plain(value) && typeof value === typeof other && value === other)
    throw new Fault('it asks whether two equal texts or numbers are the same, which is not supported')
  return value === other || (value instanceof Undefined && value === other)
}

const comparison = (op: string): Builtins<Value>[string] => [
  '/ value',
  (value, [other], { price }) => compared(op, value, other!, price),
]
const [EQ, NE, LT, LE, GT, GE] = ['==', '!=', '<', '<=', '>', '>='].map(comparison) as [
  ...[Builtins<Value>[string], Builtins<Value>[string], Builtins<Value>[string]],
  ...[Builtins<Value>[string], Builtins<Value>[string], Builtins<Value>[string]],
]

const isLetters = (name: string, value: Value, price: Price): boolean => {
  const text = str(value, price)
  price.letters(text)
  return isClass(name, text)!
}

const TESTS: Builtins<Value> = {
  odd: ['', (value, _, run) => hasRest(value, 2n, 1n, run)],
  even: ['', (value, _, run) => hasRest(value, 2n, 0n, run)],
  divisibleby: ['num', (value, [by], { price }) => equal(binary('%', value, by!, price), 0n, price)],
  defined: ['', (value) => !(value instanceof Undefined)],
  undefined: ['', (value) => value instanceof Undefined],
  filter: ['', (value, _, run) => typeof value === 'string' && run.isFilter(value)],
  test: ['', (value, _, run) => typeof value === 'string' && run.isTest(value)],
  none: ['', (value) => value === null],
  boolean: ['', (value) => typeof value === 'boolean'],
  false: ['', (value) => value === false],
  true: ['', (value) => value === true],
  integer: ['', (value) => typeof value === 'bigint'],
  float: ['', (value) => typeof value === 'number'],
  lower: ['', (value, _, { price }) => isLetters('islower', value, price)],
  upper: ['', (value, _, { price }) => isLetters('isupper', value, price)],
  string: ['', isText],
  mapping: ['', (value) => value instanceof Dict],
  number: ['', (value) => numberOf(value) !== null],
  sequence: [
    '',
    (value) =>
      isText(value) ||
      itemsOf(value) !== null ||
      value instanceof Dict ||
      value instanceof Range ||
      value instanceof Undefined,
  ],
  sameas: ['other', (value, [other]) => isSame(value, other!)],
  iterable: ['', (value, _, { price }) => isText(value) || value instanceof Lazy || iterate(value, price) !== null],
  callable: ['', (value) => value instanceof Callable || value instanceof Undefined],
  escaped: ['', (value) => value instanceof Markup],
  in: ['seq', (value, [seq], { price }) => contains(seq!, value, price)],
  ...{ '==': EQ, eq: EQ, equalto: EQ, '!=': NE, ne: NE, '<': LT, lt: LT, lessthan: LT, '<=': LE, le: LE },
  ...{ '>': GT, gt: GT, greaterthan: GT, '>=': GE, ge: GE },
}

/** Whether there is a test of this name. */
export const isTest = (name: string): boolean => Object.hasOwn(TESTS, name)

/** `value is name(args)`. */
export const applyTest = (name: Value, value: Value, args: Arguments, run: Run): Value => {
  if (typeof name !== 'string' || !isTest(name)) throw new Fault(`the test ${str(name, run.price)} is not supported`)
  const [signature, test] = TESTS[name]!
  return test(value, bind(name, signature, args), run)
}
