/**
 * Which names a part of a template has of its own, and what each is when the part begins. Jinja2 decides that before
 * anything runs: a name that is set anywhere in a loop's body is the body's own everywhere in it.
 */
import { syntax } from './lexer.ts'
import type { Body, CallBlock, Expression, For, Given, Macro, Parameter, Statement, Target } from './nodes.ts'

/**
 * `given`: what is assigned at the beginning; `context`: the renderer's; `outer`: that of the part around; `nothing`:
 * undefined.
 */
export type Origin = 'given' | 'context' | 'outer' | 'nothing'
export type Scope = ReadonlyMap<string, Origin>

export interface About {
  readonly scope: Scope
  /** Of a loop's condition and of its `else`. */
  readonly test?: Scope
  readonly no?: Scope
  /** Which of `loop`, `caller`, `kwargs` and `varargs` it uses. */
  readonly uses: ReadonlySet<string>
}

/** The names of a scope while they are found; `before`: what is known where a branch of it begins. */
class Names {
  readonly own = new Map<string, Origin>()
  readonly #stored = new Set<string>()
  readonly #around: Names | null
  readonly #before: Names | null

  constructor(around: Names | null, before: Names | null = null) {
    this.#around = around
    this.#before = before
  }
  #isHere(name: string): boolean {
    for (let at: Names | null = this; at !== null; at = at.#before) if (at.own.has(name)) return true
    return false
  }
  #isStored(name: string): boolean {
    for (let at: Names | null = this; at !== null; at = at.#before) if (at.#stored.has(name)) return true
    return false
  }
  #isAround(name: string): boolean {
    return this.#around !== null && (this.#around.#isHere(name) || this.#around.#isAround(name))
  }
  load(name: string): void {
    if (!this.#isHere(name) && !this.#isAround(name)) this.own.set(name, 'context')
  }
  store(name: string): void {
    this.#stored.add(name)
    if (!this.#isHere(name)) this.own.set(name, this.#isAround(name) ? 'outer' : 'nothing')
  }
  give(name: string): void {
    this.#stored.add(name)
    this.own.set(name, 'given')
  }
  branch(): Names {
    return new Names(this.#around, this)
  }
  /** Takes over what branches have, of which not every one runs. */
  merge(branches: readonly Names[]): void {
    const fresh = branches.flatMap((branch) => [...branch.#stored]).filter((name) => !this.#isStored(name))
    for (const { own } of branches) for (const [name, origin] of own) this.own.set(name, origin)
    for (const name of fresh) {
      this.#stored.add(name)
      this.own.set(name, this.#isAround(name) ? 'outer' : 'context')
    }
  }
}

type Used = (name: string, stored: boolean) => void

const isNode = (value: unknown): value is object => typeof value === 'object' && value !== null

/** All names in a part, in order, whatever scope they are in. */
const walk = (value: unknown, used: Used): void => {
  if (!isNode(value)) return
  if (Array.isArray(value)) {
    for (const item of value) walk(item, used)
    return
  }
  const { kind, name } = value as { readonly kind?: unknown; readonly name?: unknown }
  if (kind === 'name' || kind === 'store') used(name as string, kind === 'store')
  else if (kind === undefined && typeof name === 'string') used(name, true)
  for (const inner of Object.values(value)) if (isNode(inner)) walk(inner, used)
}

/** Which of these names are read before they are set. */
const usesOf = (value: unknown, names: readonly string[]): ReadonlySet<string> => {
  const open = new Set(names)
  const found = new Set<string>()
  walk(value, (name, stored) => {
    if (!open.has(name)) return
    if (stored) open.delete(name)
    else found.add(name)
  })
  return found
}

/** What is known of filters and tests. */
export interface Known {
  filter(name: string): boolean
  test(name: string): boolean
}

class Analyst {
  readonly found = new Map<object, About>()
  readonly #known: Known

  constructor(known: Known) {
    this.#known = known
  }

  /** The scope of a part, and those inside: these are gone through when all names around them are known. */
  scope(around: Names | null, begin: (names: Names) => void, parts: readonly (Body | Expression)[]): Scope {
    const names = new Names(around)
    begin(names)
    const inside: Statement[] = []
    for (const part of parts)
      if (Array.isArray(part)) this.#body(part as Body, names, false, inside)
      else this.#expression(part as Expression, names, false)
    for (const node of inside) this.#inner(node, names)
    return names.own
  }

  #inner(node: Statement, around: Names): void {
    const nothing = (): void => undefined
    const uses = new Set<string>()
    if (node.kind === 'for') this.#for(node, around)
    else if (node.kind === 'macro' || node.kind === 'callBlock') this.#macro(node, around)
    else if (node.kind === 'with') {
      const targets = (names: Names): void => {
        for (const target of node.targets) this.#target(target, names, true)
      }
      this.found.set(node, { scope: this.scope(around, targets, [node.body]), uses })
    } else if (node.kind === 'setBlock') this.found.set(node, { scope: this.scope(around, nothing, [node.body]), uses })
    else if (node.kind === 'filterBlock')
      this.found.set(node, { scope: this.scope(around, nothing, [node.body, node.filter]), uses })
  }

  #for(node: For, around: Names): void {
    walk(node, (name, stored) => {
      if (stored && name === 'loop') throw syntax('loop is set inside of a loop', node.line)
    })
    const uses = node.recursive ? new Set(['loop']) : usesOf(node.body, ['loop'])
    const target = (names: Names): void => this.#target(node.target, names, true)
    const begin = (names: Names): void => {
      if (uses.has('loop')) names.give('loop')
      target(names)
    }
    const scope = this.scope(around, begin, [node.body])
    const test = node.test === null ? {} : { test: this.scope(around, target, [node.test]) }
    const no = node.no === null ? {} : { no: this.scope(around, () => undefined, [node.no]) }
    this.found.set(node, { scope, ...test, ...no, uses })
  }

  #macro(node: Macro | CallBlock, around: Names): void {
    const named = node.parameters.map(({ name }) => name)
    const uses = new Set(usesOf(node.body, ['caller', 'kwargs', 'varargs']))
    const caller = node.parameters.find(({ name }) => name === 'caller')
    if (uses.has('caller') && caller?.usual === null) throw syntax('caller is a parameter without a default', node.line)
    for (const name of named) if (name !== 'caller') uses.delete(name)
    const begin = (names: Names): void => {
      for (const name of named) names.give(name)
      for (const name of uses) names.give(name)
    }
    const usual = node.parameters.flatMap((parameter: Parameter) => parameter.usual ?? [])
    this.found.set(node, { scope: this.scope(around, begin, [...usual, node.body]), uses })
  }

  #target(target: Target, names: Names, gives: boolean): void {
    if (target.kind === 'unpack') for (const item of target.items) this.#target(item, names, gives)
    else if (target.kind === 'member') names.load(target.name)
    else if (gives) names.give(target.name)
    else names.store(target.name)
  }

  #body(body: Body, names: Names, soft: boolean, inside: Statement[]): void {
    for (const node of body) this.#statement(node, names, soft, inside)
  }

  #statement(node: Statement, names: Names, soft: boolean, inside: Statement[]): void {
    const expression = (found: Expression): void => this.#expression(found, names, soft)
    switch (node.kind) {
      case 'output':
        node.nodes.forEach(expression)
        return
      case 'set':
        expression(node.value)
        this.#target(node.target, names, false)
        return
      case 'if': {
        this.#expression(node.test, names, true)
        const branches = [node.body, node.elifs, node.no].map((body) => {
          const branch = names.branch()
          this.#body(body, branch, true, inside)
          return branch
        })
        names.merge(branches)
        return
      }
      case 'for':
        expression(node.of)
        break
      case 'macro':
        names.store(node.name)
        break
      case 'callBlock':
        if (node.call !== null) expression(node.call)
        break
      case 'with':
        node.values.forEach(expression)
        break
      case 'setBlock':
        this.#target(node.target, names, false)
        break
      case 'filterBlock':
        expression(node.filter)
        break
      default:
        return
    }
    inside.push(node)
  }

  #given({ list, named, rest, restNamed }: Given, names: Names, soft: boolean): void {
    for (const node of [...list, ...named.map(([, value]) => value), rest, restNamed])
      if (node !== null) this.#expression(node, names, soft)
  }

  /** `soft`: where a filter that is not there is a fault only when it is used. */
  #expression(node: Expression, names: Names, soft: boolean): void {
    const all = (nodes: readonly (Expression | null)[], deeper = soft): void => {
      for (const inner of nodes) if (inner !== null) this.#expression(inner, names, deeper)
    }
    switch (node.kind) {
      case 'name':
        names.load(node.name)
        return
      case 'list':
      case 'tuple':
        all(node.items)
        return
      case 'dict':
        all(node.pairs.flat())
        return
      case 'attribute':
      case 'unary':
        all([node.node])
        return
      case 'item':
        all([node.node, node.key])
        return
      case 'slice':
        all([node.node, ...node.bounds])
        return
      case 'call':
        all([node.node])
        this.#given(node.given, names, soft)
        return
      case 'filter':
      case 'test':
        if (!soft && !this.#known[node.kind](node.name))
          throw syntax(`the ${node.kind} ${node.name} is not supported`, node.line)
        all([node.node])
        this.#given(node.given, names, soft)
        return
      case 'binary':
      case 'logic':
        all([node.left, node.right])
        return
      case 'compare':
        all([node.node, ...node.ops.map(([, other]) => other)])
        return
      case 'concat':
        all(node.nodes)
        return
      case 'choice':
        all([node.test, node.yes, node.no], true)
        return
      default:
    }
  }
}

export interface Program {
  readonly body: Body
  readonly scope: Scope
  readonly about: ReadonlyMap<object, About>
}

/** Throws for a template that Jinja2 would not compile. */
export const analyze = (body: Body, known: Known): Program => {
  const analyst = new Analyst(known)
  return { body, scope: analyst.scope(null, () => undefined, [body]), about: analyst.found }
}
