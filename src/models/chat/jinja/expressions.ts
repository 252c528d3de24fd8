/** Tokens as expressions. */
import { syntax, type Token } from './lexer.ts'
import type { Call, Expression, Filter, Given } from './nodes.ts'
import { int } from './numbers.ts'
import type { Value } from './values.ts'

/** Expressions in expressions, and statements in statements: published templates have about ten. */
const MOST_NESTED = 100
/** How deep an expression is: each operand of `a + b + c` is one deeper than the next. */
const MOST_OPERANDS = 500

const CONSTANTS: ReadonlyMap<string, Value> = new Map<string, Value>([
  ...(['true', 'True'] as const).map((name) => [name, true] as const),
  ...(['false', 'False'] as const).map((name) => [name, false] as const),
  ...(['none', 'None'] as const).map((name) => [name, null] as const),
])
const COMPARED = new Set(['==', '!=', '<', '<=', '>', '>='])
const NOTHING: Given = { list: [], named: [], rest: null, restNamed: null }

type Draft<T> = T extends unknown ? Omit<T, 'line' | 'deep'> : never

/** Reads expressions; what reads statements is built on it. */
export class Expressions {
  private readonly tokens: readonly Token[]
  protected at = 0
  protected depth = 0

  constructor(tokens: readonly Token[]) {
    this.tokens = tokens
  }

  protected get token(): Token {
    return this.tokens[this.at]!
  }

  /** The token that was taken last. */
  protected get before(): Token {
    return this.tokens[this.at - 1]!
  }

  /** Whether the token is this sign or one of these words. */
  protected is(...words: readonly string[]): boolean {
    const { type, value } = this.token
    return words.includes(type === 'name' ? value : type === 'string' ? '' : type)
  }

  protected skip(...words: readonly string[]): boolean {
    const found = this.is(...words)
    if (found) this.at += 1
    return found
  }

  protected said(): string {
    const { type, value } = this.token
    return type === 'end' ? 'the end of the template' : value === '' ? type : value
  }

  protected fail(what: string): never {
    throw syntax(what, this.token.line)
  }

  protected expect(word: string): void {
    if (!this.skip(word)) this.fail(`expected ${word}, found ${this.said()}`)
  }

  protected name(): string {
    const { type, value } = this.token
    if (type !== 'name' || /^\d/.test(value)) this.fail(`expected a name, found ${this.said()}`)
    this.at += 1
    return value
  }

  /** A name that can be assigned to. */
  protected own(): string {
    const name = this.name()
    if (CONSTANTS.has(name)) this.fail(`${name} cannot be assigned to`)
    return name
  }

  protected deeper<T>(parse: () => T): T {
    this.depth += 1
    if (this.depth > MOST_NESTED) this.fail(`it is nested more than ${MOST_NESTED} deep`)
    const found = parse()
    this.depth -= 1
    return found
  }

  protected make(line: number, draft: Draft<Expression>, inside: readonly (Expression | null)[]): Expression {
    let deep = 0
    for (const node of inside) if (node !== null && node.deep > deep) deep = node.deep
    if (deep >= MOST_OPERANDS) this.fail(`an expression has more than ${MOST_OPERANDS} parts in one another`)
    return { ...draft, line, deep: deep + 1 } as Expression
  }

  /** One expression, or several with commas between them. */
  protected tuple({
    choices = true,
    ends = [],
    empty = false,
  }: {
    choices?: boolean
    ends?: string[]
    empty?: boolean
  } = {}): Expression {
    const { line } = this.token
    const items: Expression[] = []
    let several = false
    for (;;) {
      if (this.is('}}', '%}', ')', ...ends)) break
      items.push(this.expression(choices))
      if (!this.skip(',')) break
      several = true
    }
    if (!several && items.length === 1) return items[0]!
    if (!several && !empty) this.fail(`expected an expression, found ${this.said()}`)
    return this.make(line, { kind: 'tuple', items }, items)
  }

  protected expression(choices = true): Expression {
    return this.deeper(() => (choices ? this.choice() : this.or()))
  }

  protected choice(): Expression {
    let yes = this.or()
    while (this.is('if')) {
      const { line } = this.token
      this.at += 1
      const test = this.or()
      const no = this.skip('else') ? this.expression() : null
      yes = this.make(line, { kind: 'choice', test, yes, no }, [test, yes, no])
    }
    return yes
  }

  protected or(): Expression {
    let left = this.and()
    while (this.skip('or')) {
      const right = this.and()
      left = this.make(left.line, { kind: 'logic', op: 'or', left, right }, [left, right])
    }
    return left
  }

  protected and(): Expression {
    let left = this.not()
    while (this.skip('and')) {
      const right = this.not()
      left = this.make(left.line, { kind: 'logic', op: 'and', left, right }, [left, right])
    }
    return left
  }

  protected not(): Expression {
    const { line } = this.token
    if (!this.skip('not')) return this.compare()
    const node = this.deeper(() => this.not())
    return this.make(line, { kind: 'unary', op: 'not', node }, [node])
  }

  protected compare(): Expression {
    const node = this.sum()
    const ops: [string, Expression][] = []
    for (;;) {
      const { type } = this.token
      const without =
        this.is('not') && this.tokens[this.at + 1]?.type === 'name' && this.tokens[this.at + 1]!.value === 'in'
      if (!COMPARED.has(type) && !this.is('in') && !without) break
      this.at += without ? 2 : 1
      ops.push([without ? 'not in' : type === 'name' ? 'in' : type, this.sum()])
    }
    if (ops.length === 0) return node
    return this.make(node.line, { kind: 'compare', node, ops }, [node, ...ops.map(([, other]) => other)])
  }

  protected binary(ops: readonly string[], operand: () => Expression): Expression {
    let left = operand()
    while (this.is(...ops)) {
      const op = this.token.type
      this.at += 1
      const right = operand()
      left = this.make(left.line, { kind: 'binary', op, left, right }, [left, right])
    }
    return left
  }

  protected sum(): Expression {
    return this.binary(['+', '-'], () => this.concat())
  }

  protected concat(): Expression {
    const nodes = [this.product()]
    while (this.skip('~')) nodes.push(this.product())
    return nodes.length === 1 ? nodes[0]! : this.make(nodes[0]!.line, { kind: 'concat', nodes }, nodes)
  }

  protected product(): Expression {
    return this.binary(['*', '/', '//', '%'], () => this.binary(['**'], () => this.unary(true)))
  }

  protected unary(filters: boolean): Expression {
    const { line, type } = this.token
    let node: Expression
    if (type === '-' || type === '+') {
      this.at += 1
      const inner = this.deeper(() => this.unary(false))
      node = this.make(line, { kind: 'unary', op: type, node: inner }, [inner])
    } else node = this.primary()
    node = this.postfix(node)
    if (!filters) return node
    for (;;) {
      if (this.is('|')) node = this.filters(node, false)!
      else if (this.is('is')) node = this.test(node)
      else if (this.is('(')) node = this.call(node)
      else return node
    }
  }

  protected primary(): Expression {
    const { type, value, line } = this.token
    const constant = (found: Value): Expression => this.make(line, { kind: 'constant', value: found }, [])
    if (type === 'name') {
      const name = this.name()
      const known = CONSTANTS.get(name)
      if (known !== undefined) return constant(known)
      if (name === 'self') throw syntax('self, which blocks have, is not supported', line)
      return this.make(line, { kind: 'name', name }, [])
    }
    this.at += 1
    if (type === 'string') {
      let text = value
      for (; this.token.type === 'string'; this.at += 1) text += this.token.value
      return constant(text)
    }
    if (type === 'integer') {
      if (value.length > 1100) throw syntax('a number has too many digits', line)
      return constant(int(BigInt(value.replaceAll('_', ''))))
    }
    if (type === 'float') {
      const found = Number(value.replaceAll('_', ''))
      if (Number.isFinite(found)) return constant(found)
      throw syntax(`${value} is too large for a float`, line)
    }
    if (type === '(') {
      const inside = this.deeper(() => this.tuple({ empty: true }))
      this.expect(')')
      return inside
    }
    if (type === '[') {
      const items = this.several(']', () => this.expression())
      return this.make(line, { kind: 'list', items }, items)
    }
    if (type === '{') {
      const pairs = this.several('}', (): readonly [Expression, Expression] => {
        const key = this.expression()
        this.expect(':')
        return [key, this.expression()]
      })
      return this.make(line, { kind: 'dict', pairs }, pairs.flat())
    }
    this.at -= 1
    return this.fail(`expected an expression, found ${this.said()}`)
  }

  /** With commas between them and perhaps one behind. */
  protected several<T>(close: string, parse: () => T): readonly T[] {
    const items: T[] = []
    while (!this.is(close)) {
      if (items.length > 0) this.expect(',')
      if (!this.is(close)) items.push(parse())
    }
    this.expect(close)
    return items
  }

  protected postfix(first: Expression): Expression {
    let node = first
    for (;;) {
      const { line } = this.token
      if (this.is('(')) node = this.call(node)
      else if (this.skip('.')) {
        const { type, value } = this.token
        if (type === 'integer') {
          const key = this.primary()
          node = this.make(line, { kind: 'item', node, key }, [node])
        } else if (type === 'name') {
          this.at += 1
          node = this.make(line, { kind: 'attribute', node, name: value }, [node])
        } else this.fail(`expected a name or a number behind a point, found ${this.said()}`)
      } else if (this.skip('[')) node = this.subscript(node, line)
      else return node
    }
  }

  protected subscript(node: Expression, line: number): Expression {
    const start = this.is(':') ? null : this.expression()
    if (this.is(':')) {
      const bound = (): Expression | null => (this.is(':', ']', ',') ? null : this.expression())
      this.at += 1
      const stop = bound()
      const step = this.skip(':') ? bound() : null
      if (this.is(',')) this.fail('a slice of several dimensions is not supported')
      this.expect(']')
      return this.make(line, { kind: 'slice', node, bounds: [start, stop, step] }, [node, start, stop, step])
    }
    const keys = [start!]
    while (this.skip(',')) keys.push(this.expression())
    this.expect(']')
    const key = keys.length === 1 ? start! : this.make(line, { kind: 'tuple', items: keys }, keys)
    return this.make(line, { kind: 'item', node, key }, [node, key])
  }

  protected given(): readonly [Given, readonly (Expression | null)[]] {
    const list: Expression[] = []
    const named: [string, Expression][] = []
    let [rest, restNamed]: (Expression | null)[] = [null, null]
    this.expect('(')
    for (let first = true; !this.is(')'); first = false) {
      if (!first) {
        this.expect(',')
        if (this.is(')')) break
      }
      const wrong = (is: boolean): void => {
        if (is) this.fail('the values of a call stand in an order that is not allowed')
      }
      if (this.skip('*')) {
        wrong(rest !== null || restNamed !== null)
        rest = this.expression()
      } else if (this.skip('**')) {
        wrong(restNamed !== null)
        restNamed = this.expression()
      } else if (this.token.type === 'name' && this.tokens[this.at + 1]!.type === '=') {
        wrong(restNamed !== null)
        const name = this.name()
        this.at += 1
        if (named.some(([other]) => other === name)) this.fail(`${name} is given twice`)
        named.push([name, this.expression()])
      } else {
        wrong(rest !== null || restNamed !== null || named.length > 0)
        list.push(this.expression())
      }
    }
    this.expect(')')
    return [{ list, named, rest, restNamed } as Given, [...list, ...named.map(([, node]) => node), rest!, restNamed!]]
  }

  protected call(node: Expression): Call {
    const { line } = this.token
    const [given, inside] = this.given()
    return this.make(line, { kind: 'call', node, given }, [node, ...inside]) as Call
  }

  /** `|a|b(c)`; `begins`: the first stands without a bar. */
  protected filters(first: Expression | null, begins: boolean): Filter | null {
    let node = first
    for (let bare = begins; bare || this.skip('|'); bare = false) {
      const { line } = this.token
      let name = this.name()
      while (this.skip('.')) name += `.${this.name()}`
      const [given, inside] = this.is('(') ? this.given() : [NOTHING, []]
      node = this.make(line, { kind: 'filter', node, name, given }, [node, ...inside])
    }
    return node as Filter | null
  }

  protected test(node: Expression): Expression {
    const { line } = this.token
    this.at += 1
    const negated = this.skip('not')
    let name = this.name()
    while (this.skip('.')) name += `.${this.name()}`
    let given = NOTHING
    let inside: readonly (Expression | null)[] = []
    const { type, value } = this.token
    if (type === '(') [given, inside] = this.given()
    else if (
      ['name', 'string', 'integer', 'float', '[', '{'].includes(type) &&
      !(type === 'name' && /^(?:else|or|and)$/.test(value))
    ) {
      if (type === 'name' && value === 'is') this.fail('tests with is cannot stand in a row')
      const operand = this.deeper(() => this.postfix(this.primary()))
      given = { ...NOTHING, list: [operand] }
      inside = [operand]
    }
    const test = this.make(line, { kind: 'test', node, name, given }, [node, ...inside])
    return negated ? this.make(line, { kind: 'unary', op: 'not', node: test }, [test]) : test
  }
}
