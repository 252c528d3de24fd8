/** Runs a template. */
import { NO_ARGUMENTS, type Run } from './calls.ts'
import { applyFilter, isFilter } from './filters.ts'
import { globals, LoopContext, Macro } from './globals.ts'
import { elementOf, memberOf } from './methods.ts'
import type { Body, Call, CallBlock, Expression, For, Given, Macro as MacroNode, Statement, Target } from './nodes.ts'
import { binary, compared, signed, sliced } from './operators.ts'
import { parse } from './parser.ts'
import { Fault, MOST_STEPS, Price } from './price.ts'
import { analyze, type Program, type Scope } from './scope.ts'
import { applyTest, isTest } from './tests.ts'
import {
  type Arguments,
  Callable,
  Dict,
  each,
  failed,
  Lazy,
  Namespace,
  payKey,
  Tuple,
  truth,
  typeOf,
  Undefined,
  type Value,
} from './values.ts'
import { putText, Writer } from './write.ts'

/** How deep statements, expressions and macros may be in one another while they run; Python has about as much. */
const MOST_CALLS = 1000

/** Filters and tests of Jinja2 that are refused by name. */
const REFUSED = new Set(['pprint', 'random', 'striptags', 'urlize', 'wordwrap', 'xmlattr'])

type Names = Map<string, Value | undefined>

interface Frame {
  /** undefined: not set. */
  readonly names: Names
  readonly around: Frame | null
}

/** How a body ends. */
type End = 'break' | 'continue' | undefined

class Rendering implements Run {
  readonly price: Price
  readonly #program: Program
  readonly #context: ReadonlyMap<string, Value>
  #depth = 0

  constructor(program: Program, context: ReadonlyMap<string, Value>, price: Price) {
    this.price = price
    this.#program = program
    this.#context = new Map([...globals(this.price), ...context])
  }

  run(): string {
    const out = new Writer(this.price)
    this.#body(this.#program.body, this.#enter(this.#program.scope, null), out)
    return out.text
  }

  filter(name: Value, value: Value, args: Arguments): Value {
    return applyFilter(name, value, args, this)
  }
  test(name: Value, value: Value, args: Arguments): Value {
    return applyTest(name, value, args, this)
  }
  attribute(value: Value, name: string): Value {
    return memberOf(value, name, this)
  }
  item(value: Value, key: Value): Value {
    return elementOf(value, key, this)
  }
  isFilter(name: string): boolean {
    return isFilter(name) || REFUSED.has(name)
  }
  isTest(name: string): boolean {
    return isTest(name)
  }

  #deeper(): void {
    this.#depth += 1
    if (this.#depth > MOST_CALLS) throw new Fault(`it is nested more than ${MOST_CALLS} deep as it runs`)
  }

  /** The names of a part as it begins. `given` are those that it is called with. */
  #enter(scope: Scope, around: Frame | null, names: Names = new Map()): Frame {
    this.price.pay(scope.size)
    for (const [name, origin] of scope)
      if (origin === 'context') names.set(name, this.#context.get(name))
      else if (origin === 'outer') names.set(name, this.#find(name, around))
      else if (origin === 'nothing' || !names.has(name)) names.set(name, undefined)
    return { names, around }
  }

  #find(name: string, frame: Frame | null): Value | undefined {
    for (let at = frame; at !== null; at = at.around) if (at.names.has(name)) return at.names.get(name)
    throw new Fault(`the name ${name} is not known where it stands`)
  }

  #assign(target: Target, value: Value, { names, around }: Frame): void {
    if (target.kind === 'store') names.set(target.name, value)
    else if (target.kind === 'member') {
      const space = this.#find(target.name, { names, around })
      if (!(space instanceof Namespace)) throw new Fault(`${target.name} is no namespace, and nothing in it can be set`)
      space.members.set(target.member, value)
    } else {
      const items: Value[] = []
      for (const item of each(value, this.price)) {
        if (items.length === target.items.length) throw new Fault('it unpacks a value that has too many elements')
        items.push(item)
      }
      if (items.length < target.items.length) throw new Fault('it unpacks a value that has too few elements')
      target.items.forEach((one, at) => {
        this.#assign(one, items[at]!, { names, around })
      })
    }
  }

  #body(body: Body, frame: Frame, out: Writer): End {
    for (const node of body) {
      this.price.line = node.line
      this.price.pay(1)
      const end = this.#statement(node, frame, out)
      if (end !== undefined) return end
    }
    return undefined
  }

  #statement(node: Statement, frame: Frame, out: Writer): End {
    switch (node.kind) {
      case 'data':
        out.put(node.text)
        return undefined
      case 'output':
        for (const inner of node.nodes) putText(out, this.#value(inner, frame))
        return undefined
      case 'set':
        this.#spaces(node.target, frame)
        this.#assign(node.target, this.#value(node.value, frame), frame)
        return undefined
      case 'if': {
        const found = [node, ...node.elifs].find(({ test }) => truth(this.#value(test, frame)))
        return this.#inside(found?.body ?? node.no, frame, out)
      }
      case 'for':
        return this.#for(node, frame, out)
      case 'macro':
        frame.names.set(node.name, this.#macro(node, node.name, frame))
        return undefined
      case 'callBlock':
        this.#callBlock(node, frame, out)
        return undefined
      case 'with': {
        const inner = this.#enter(this.#program.about.get(node)!.scope, frame)
        node.targets.forEach((target, at) => {
          this.#assign(target, this.#value(node.values[at]!, frame), inner)
        })
        return this.#inside(node.body, inner, out)
      }
      case 'setBlock':
      case 'filterBlock': {
        const inner = this.#enter(this.#program.about.get(node)!.scope, frame)
        const own = new Writer(this.price)
        const end = this.#inside(node.body, inner, own)
        if (end !== undefined) return end
        const value = node.filter === null ? own.text : this.#filtered(node.filter, inner, own.text)
        if (node.kind === 'setBlock') this.#assign(node.target, value, frame)
        else putText(out, value)
        return undefined
      }
      default:
        return node.kind
    }
  }

  /** A body in another. */
  #inside(body: Body, frame: Frame, out: Writer): End {
    this.#deeper()
    const end = this.#body(body, frame, out)
    this.#depth -= 1
    return end
  }

  /** Throws where a member of no namespace would be set, before the value is computed. */
  #spaces(target: Target, frame: Frame): void {
    if (target.kind === 'unpack') for (const item of target.items) this.#spaces(item, frame)
    else if (target.kind === 'member' && !(this.#find(target.name, frame) instanceof Namespace))
      throw new Fault(`${target.name} is no namespace, and nothing in it can be set`)
  }

  #for(node: For, frame: Frame, out: Writer): End {
    const of = this.#value(node.of, frame)
    if (!node.recursive) return this.#loop(node, frame, out, of, null, 0)
    const again = (value: Value, depth: number): string => {
      const own = new Writer(this.price)
      this.#loop(node, frame, own, value, again, depth)
      return own.text
    }
    out.put(again(of, 0))
    return undefined
  }

  #loop(
    node: For,
    frame: Frame,
    out: Writer,
    of: Value,
    again: ((value: Value, depth: number) => string) | null,
    depth: number,
  ): End {
    const { scope, test, no, uses } = this.#program.about.get(node)!
    const chosen = test === undefined ? of : new Lazy(this.#chosen(node, test, frame, of))
    const loop = uses.has('loop') ? new LoopContext(chosen, this.price, again, depth) : null
    const names: Names = new Map()
    let ran = false
    for (const item of loop ?? each(chosen, this.price)) {
      this.price.pay(1)
      names.clear()
      if (loop !== null) names.set('loop', loop)
      this.#assign(node.target, item, { names, around: frame })
      const end = this.#inside(node.body, this.#enter(scope, frame, names), out)
      // Jinja2 takes note of a turn at its end, which `break` and `continue` do not come to.
      ran ||= end === undefined
      if (end === 'break') break
    }
    for (const name of names.keys()) names.set(name, undefined)
    if (ran || node.no === null) return undefined
    return this.#inside(node.no, this.#enter(no!, frame), out)
  }

  *#chosen(node: For, scope: Scope, frame: Frame, of: Value): Generator<Value> {
    const inner = this.#enter(scope, frame)
    for (const item of each(of, this.price)) {
      this.#assign(node.target, item, inner)
      if (truth(this.#value(node.test!, inner))) yield item
    }
  }

  #macro(node: MacroNode | CallBlock, name: string | null, frame: Frame): Macro {
    const { scope, uses } = this.#program.about.get(node)!
    return new Macro(name, node.parameters, uses, (given) => {
      const inner = this.#enter(scope, frame, given)
      for (const { name: own, usual } of node.parameters) {
        if (inner.names.get(own) !== undefined) continue
        const value = usual === null ? new Undefined(`the parameter ${own} is not given`) : this.#value(usual, inner)
        inner.names.set(own, value)
      }
      const out = new Writer(this.price)
      this.#inside(node.body, inner, out)
      return out.text
    })
  }

  #callBlock(node: CallBlock, frame: Frame, out: Writer): void {
    const caller = this.#macro(node, null, frame)
    putText(out, node.call === null ? caller.call(NO_ARGUMENTS) : this.#call(node.call, frame, caller))
  }

  #arguments({ list, named, rest, restNamed }: Given, frame: Frame): Arguments {
    const all = list.map((node) => this.#value(node, frame))
    const names = new Map<string, Value>()
    for (const [name, node] of named) names.set(name, this.#value(node, frame))
    if (rest !== null) for (const value of each(this.#value(rest, frame), this.price)) all.push(value)
    if (restNamed !== null) {
      const dict = this.#value(restNamed, frame)
      if (!(dict instanceof Dict)) throw failed(dict, `** takes a dict, not a ${typeOf(dict)}`)
      for (const [name, value] of dict.entries()) {
        if (typeof name !== 'string' || names.has(name)) throw new Fault('** gives a name that cannot be taken')
        names.set(name, value)
      }
    }
    this.price.pay(all.length + names.size)
    return { list: all, named: names }
  }

  #call({ node, given }: Call, frame: Frame, caller?: Macro): Value {
    const callee = this.#value(node, frame)
    const { list, named } = this.#arguments(given, frame)
    if (!(callee instanceof Callable)) throw failed(callee, `it calls a ${typeOf(callee)}`)
    return callee.call({ list, named: caller === undefined ? named : new Map([...named, ['caller', caller]]) })
  }

  #filtered(node: Expression & { readonly kind: 'filter' }, frame: Frame, body: string): Value {
    const value =
      node.node === null
        ? body
        : node.node.kind === 'filter'
          ? this.#filtered(node.node, frame, body)
          : this.#value(node.node, frame)
    return applyFilter(node.name, value, this.#arguments(node.given, frame), this)
  }

  #value(node: Expression, frame: Frame): Value {
    this.#deeper()
    this.price.line = node.line
    this.price.pay(1)
    const found = this.#evaluate(node, frame)
    this.#depth -= 1
    return found
  }

  #all(nodes: readonly Expression[], frame: Frame): readonly Value[] {
    return nodes.map((node) => this.#value(node, frame))
  }

  #evaluate(node: Expression, frame: Frame): Value {
    const { price } = this
    switch (node.kind) {
      case 'constant':
        return node.value
      case 'name':
        return this.#find(node.name, frame) ?? this.#missing(node.name, frame)
      case 'list':
        return this.#all(node.items, frame)
      case 'tuple':
        return new Tuple(this.#all(node.items, frame))
      case 'dict': {
        const dict = new Dict()
        for (const [key, value] of node.pairs) {
          const own = this.#value(key, frame)
          payKey(own, price)
          dict.set(own, this.#value(value, frame))
        }
        return dict
      }
      case 'attribute':
        return memberOf(this.#value(node.node, frame), node.name, this)
      case 'item':
        return elementOf(this.#value(node.node, frame), this.#value(node.key, frame), this)
      case 'slice':
        return sliced(
          this.#value(node.node, frame),
          node.bounds.map((bound) => (bound === null ? null : this.#value(bound, frame))),
          price,
        )
      case 'call':
        return this.#call(node, frame)
      case 'filter':
        return this.#filtered(node, frame, '')
      case 'test':
        return applyTest(node.name, this.#value(node.node, frame), this.#arguments(node.given, frame), this)
      case 'unary': {
        const value = this.#value(node.node, frame)
        return node.op === 'not' ? !truth(value) : signed(node.op, value)
      }
      case 'binary':
        return binary(node.op, this.#value(node.left, frame), this.#value(node.right, frame), price)
      case 'logic': {
        const left = this.#value(node.left, frame)
        return truth(left) === (node.op === 'or') ? left : this.#value(node.right, frame)
      }
      case 'compare': {
        let left = this.#value(node.node, frame)
        for (const [op, other] of node.ops) {
          const right = this.#value(other, frame)
          if (!compared(op, left, right, price)) return false
          left = right
        }
        return true
      }
      case 'concat': {
        const out = new Writer(price)
        for (const value of this.#all(node.nodes, frame)) putText(out, value)
        return out.text
      }
      case 'choice':
        if (truth(this.#value(node.test, frame))) return this.#value(node.yes, frame)
        return node.no === null
          ? new Undefined(`the choice of line ${node.line} has no else`)
          : this.#value(node.no, frame)
    }
  }

  /** None is a value that `??` takes for nothing. */
  #missing(name: string, frame: Frame): Value {
    return this.#find(name, frame) === null ? null : new Undefined(`${name} is undefined`)
  }
}

/** `most`: the steps that it may take. */
export type Template = (context: ReadonlyMap<string, Value>, most?: number) => string

/** Reads a template. Throws a Fault, with the line, for what is no template or not supported; so does the rendering. */
export const compile = (source: string): Template => {
  const known = { filter: isFilter, test: isTest }
  const program = analyze(parse(source), known)
  return (context, most = MOST_STEPS) => {
    const price = new Price(most)
    try {
      return new Rendering(program, context, price).run()
    } catch (cause) {
      const { line } = price
      if (cause instanceof Fault) throw new Fault(`line ${line}: ${cause.message}`, { cause })
      if (cause instanceof RangeError) throw new Fault(`line ${line}: it is nested too deep`, { cause })
      throw cause
    }
  }
}
