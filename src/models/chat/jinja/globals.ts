/** Macros, loops, and the functions that every template has. */
import { bind } from './calls.ts'
import type { Parameter } from './nodes.ts'
import { Fault, type Price } from './price.ts'
import {
  type Arguments,
  Callable,
  Dict,
  each,
  equal,
  intOf,
  Lazy,
  lengthIn,
  listOf,
  Namespace,
  payKey,
  Range,
  Thing,
  Tuple,
  Undefined,
  type Value,
} from './values.ts'
import { str } from './write.ts'

/** Numbers that range() gives. */
const MOST_RANGE = 100_000

type Names = Map<string, Value | undefined>

/** A macro, or the body of a `call` block. */
export class Macro extends Callable {
  override readonly type = 'Macro'
  readonly #shown: string

  constructor(
    name: string | null,
    parameters: readonly Parameter[],
    uses: ReadonlySet<string>,
    body: (given: Names) => string,
  ) {
    const own = parameters.map((parameter) => parameter.name)
    super(name ?? 'caller', ({ list, named }) => {
      const given: Names = new Map()
      const rest = new Map(named)
      own.forEach((parameter, at) => {
        const value = at < list.length ? list[at] : rest.get(parameter)
        if (at >= list.length) rest.delete(parameter)
        if (value !== undefined) given.set(parameter, value)
      })
      if (uses.has('caller') && !own.includes('caller')) {
        given.set('caller', rest.get('caller') ?? new Undefined('no caller is there'))
        rest.delete('caller')
      }
      if (uses.has('kwargs')) {
        const dict = new Dict()
        for (const [key, value] of rest) dict.set(key, value)
        given.set('kwargs', dict)
      } else if (rest.size > 0) throw new Fault(`the macro ${name} takes nothing named ${[...rest.keys()][0]}`)
      if (uses.has('varargs')) given.set('varargs', new Tuple(list.slice(own.length)))
      else if (list.length > own.length) throw new Fault(`the macro ${name} takes ${own.length} values at most`)
      return body(given)
    })
    this.#shown = name === null ? 'anonymous' : `'${name}'`
    this.#about = { name, arguments: new Tuple(own) }
    this.#about.catch_kwargs = uses.has('kwargs')
    this.#about.catch_varargs = uses.has('varargs')
    this.#about.caller = uses.has('caller')
    this.#about.explicit_caller = own.includes('caller')
  }

  readonly #about: Record<string, Value>

  override attribute(name: string): Value | undefined {
    return name === '__repr__'
      ? `<Macro ${this.#shown}>`
      : Object.hasOwn(this.#about, name)
        ? this.#about[name]
        : undefined
  }
}

/** `loop`. It looks ahead only where it is asked to. */
export class LoopContext extends Callable {
  override readonly type = 'LoopContext'
  readonly #price: Price
  readonly #of: Value
  #iterator: Iterator<Value>
  #index0 = -1
  #length: number | null = null
  #after: IteratorResult<Value> | null = null
  #before: Value | undefined
  #current: Value | undefined
  #changed: Value | undefined
  readonly #depth0: number

  constructor(of: Value, price: Price, again: ((value: Value, depth: number) => string) | null, depth0: number) {
    super('loop', (args) => {
      const [value] = bind('loop', '/ iterable', args)
      if (again === null) throw new Fault('loop is called, and its loop is not recursive')
      return again(value!, depth0 + 1)
    })
    this.#of = of
    this.#price = price
    this.#iterator = each(of, price)
    this.#depth0 = depth0
  }

  *[Symbol.iterator](): Generator<Value> {
    for (;;) {
      const next = this.#after ?? this.#iterator.next()
      this.#after = null
      if (next.done === true) return
      this.#index0 += 1
      this.#before = this.#current
      this.#current = next.value
      yield next.value
    }
  }

  #peek(): IteratorResult<Value> {
    this.#after ??= this.#iterator.next()
    return this.#after
  }

  #count(): number {
    if (this.#length !== null) return this.#length
    const known = this.#of instanceof Lazy ? null : lengthIn(this.#of, this.#price)
    if (known !== null) this.#length = known
    else {
      const rest = [...{ [Symbol.iterator]: () => this.#iterator }]
      this.#iterator = rest[Symbol.iterator]()
      const ahead = this.#after !== null && this.#after.done !== true
      this.#length = rest.length + this.#index0 + 1 + (ahead ? 1 : 0)
    }
    return this.#length
  }

  override attribute(name: string): Value | undefined {
    const index0 = this.#index0
    switch (name) {
      case 'index0':
        return BigInt(index0)
      case 'index':
        return BigInt(index0 + 1)
      case 'length':
      case '__len__':
        return BigInt(this.#count())
      case 'revindex':
        return BigInt(this.#count() - index0)
      case 'revindex0':
        return BigInt(this.#count() - index0 - 1)
      case 'first':
        return index0 === 0
      case 'last':
        return this.#peek().done === true
      case 'depth':
        return BigInt(this.#depth0 + 1)
      case 'depth0':
        return BigInt(this.#depth0)
      case 'previtem':
        return index0 === 0 ? new Undefined('there is no item before') : this.#before
      case 'nextitem': {
        const next = this.#peek()
        return next.done === true ? new Undefined('there is no item behind') : next.value
      }
      case 'cycle':
        return new Callable(name, ({ list, named }) => {
          if (named.size > 0 || list.length === 0) throw new Fault('cycle gets no values')
          return list[index0 % list.length]!
        })
      case 'changed':
        return new Callable(name, ({ list }) => {
          const value = new Tuple(list)
          if (this.#changed !== undefined && equal(this.#changed, value, this.#price)) return false
          this.#changed = value
          return true
        })
      case '__repr__':
        return `<LoopContext ${index0 + 1}/${this.#count()}>`
      default:
        return undefined
    }
  }
}

class Cycler extends Thing {
  readonly type = 'Cycler'
  readonly #items: readonly Value[]
  #at = 0
  constructor(items: readonly Value[]) {
    super()
    this.#items = items
  }
  override attribute(name: string): Value | undefined {
    const go = (to: (at: number) => number): Callable =>
      new Callable(name, (args) => {
        bind(name, '', args)
        const found = this.#items[this.#at]!
        this.#at = to(this.#at)
        return name === 'next' ? found : null
      })
    if (name === 'next') return go((at) => (at + 1) % this.#items.length)
    if (name === 'reset') return go(() => 0)
    return { current: this.#items[this.#at]!, items: new Tuple(this.#items), pos: BigInt(this.#at) }[name]
  }
}

/** What dict() and namespace() are made of. */
const dictOf = ({ list, named }: Arguments, price: Price): Dict => {
  const dict = new Dict()
  if (list.length > 1) throw new Fault('dict gets more than one value')
  const [from] = list
  if (from instanceof Dict)
    for (const [key, value] of from.entries()) {
      payKey(key, price)
      dict.set(key, value)
    }
  else if (from !== undefined)
    for (const pair of each(from, price)) {
      const [key, value, ...more] = listOf(pair, price)
      if (value === undefined || more.length > 0) throw new Fault('dict gets what is no pair')
      payKey(key!, price)
      dict.set(key!, value)
    }
  for (const [name, value] of named) dict.set(name, value)
  price.pay(dict.size)
  return dict
}

const rangeOf = (args: Arguments): Range => {
  const [start, stop, step = 1n] = bind('range', '/ start stop? step?', args).map((one) =>
    one === undefined ? undefined : intOf(one, 'range'),
  )
  const range = stop === undefined ? new Range(0n, start!, 1n) : new Range(start!, stop, step)
  if (range.length <= MOST_RANGE) return range
  throw new Fault(`range() is asked for ${range.length} numbers; at most ${MOST_RANGE} are given`)
}

/** The functions of Jinja2. */
export const globals = (price: Price): ReadonlyMap<string, Value> => {
  const known: Record<string, (args: Arguments) => Value> = {
    range: rangeOf,
    dict: (args) => dictOf(args, price),
    namespace: (args) => {
      const space = new Namespace()
      for (const [key, value] of dictOf(args, price).entries()) space.members.set(str(key, price), value)
      return space
    },
    cycler: ({ list, named }) => {
      if (list.length === 0 || named.size > 0) throw new Fault('cycler gets no values')
      return new Cycler(list)
    },
    joiner: (args) => {
      const [separator = ', '] = bind('joiner', 'sep?', args)
      let used = false
      return new Callable('joiner', (own) => {
        bind('joiner', '', own)
        if (used) return separator
        used = true
        return ''
      })
    },
    lipsum: () => {
      throw new Fault('lipsum(), which writes chance, is not supported')
    },
  }
  return new Map(Object.entries(known).map(([name, call]) => [name, new Callable(name, call)]))
}
