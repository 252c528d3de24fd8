/** Tokens as statements. */
import { Expressions } from './expressions.ts'
import { syntax, tokensOf } from './lexer.ts'
import type { Body, Expression, If, Macro, Parameter, Statement, Target } from './nodes.ts'

/** Statements of Jinja2 and its extensions that are refused by name. */
const REFUSED = new Set([
  ...['include', 'import', 'from', 'extends', 'block', 'autoescape', 'trans', 'pluralize', 'blocktrans', 'do', 'debug'],
])

class Parser extends Expressions {
  /** Whether a `break` has a loop to end: one for each function that Python would make. */
  #loops = [0]

  template(): Body {
    const body = this.#statements([])
    if (!this.is('end')) this.fail(`${this.said()} has no beginning`)
    return body
  }

  /** Up to a tag that is one of these words, which is not taken. */
  #statements(ends: readonly string[]): Body {
    const body: Statement[] = []
    for (;;) {
      const { type, value, line } = this.token
      if (type === 'end') {
        if (ends.length > 0) this.fail(`expected ${ends.join(' or ')}, found the end of the template`)
        return body
      }
      this.at += 1
      if (type === 'data') body.push({ kind: 'data', text: value, line })
      else if (type === '{{') {
        body.push({ kind: 'output', nodes: [this.tuple()], line })
        this.expect('}}')
      } else {
        if (this.token.type === 'name' && ends.includes(this.token.value)) return body
        body.push(this.deeper(() => this.#statement(line)))
        this.expect('%}')
      }
    }
  }

  /** What stands between two tags, with the end of the first; the word that ends it is taken. */
  #body(...ends: readonly string[]): Body {
    this.skip(':')
    this.expect('%}')
    const body = this.#statements(ends)
    this.at += 1
    return body
  }

  get #ended(): string {
    return this.before.value
  }

  /** The body of what Python makes a function of: no `break` inside ends a loop outside. */
  #closed(end: string): Body {
    this.#loops.push(0)
    const body = this.#body(end)
    this.#loops.pop()
    return body
  }

  #statement(line: number): Statement {
    const word = this.name()
    switch (word) {
      case 'set':
        return this.#set(line)
      case 'for':
        return this.#for(line)
      case 'if':
        return this.#if(line)
      case 'print': {
        const nodes: Expression[] = []
        while (!this.is('%}')) {
          if (nodes.length > 0) this.expect(',')
          nodes.push(this.expression())
        }
        return { kind: 'output', nodes, line }
      }
      case 'macro': {
        const name = this.own()
        const parameters = this.#parameters()
        return { kind: 'macro', name, parameters, body: this.#closed('endmacro'), line } satisfies Macro
      }
      case 'call': {
        const parameters = this.is('(') ? this.#parameters() : []
        const call = this.expression()
        if (call.kind !== 'call') throw syntax('call takes a call of a macro', line)
        return { kind: 'callBlock', call, parameters, body: this.#closed('endcall'), line }
      }
      case 'generation':
        return { kind: 'callBlock', call: null, parameters: [], body: this.#closed('endgeneration'), line }
      case 'filter': {
        const filter = this.filters(null, true)!
        return { kind: 'filterBlock', body: this.#body('endfilter'), filter, line }
      }
      case 'with': {
        const [targets, values]: [Target[], Expression[]] = [[], []]
        while (!this.is('%}')) {
          if (targets.length > 0) this.expect(',')
          targets.push(this.#target(false))
          this.expect('=')
          values.push(this.expression())
        }
        return { kind: 'with', targets, values, body: this.#body('endwith'), line }
      }
      case 'break':
      case 'continue':
        if (this.#loops.at(-1) === 0) throw syntax(`${word} stands in no loop`, line)
        return { kind: word, line }
      default:
        throw syntax(REFUSED.has(word) ? `{% ${word} %} is not supported` : `{% ${word} %} is not known here`, line)
    }
  }

  #set(line: number): Statement {
    const target = this.#target(true)
    if (this.skip('=')) return { kind: 'set', target, value: this.tuple(), line }
    const filter = this.filters(null, false)
    return { kind: 'setBlock', target, filter, body: this.#body('endset'), line }
  }

  #for(line: number): Statement {
    const target = this.#target(false, 'in')
    this.expect('in')
    const of = this.tuple({ choices: false, ends: ['recursive'] })
    const test = this.skip('if') ? this.expression() : null
    const recursive = this.skip('recursive')
    this.#loops.push(this.#loops.pop()! + 1)
    const body = this.#body('endfor', 'else')
    this.#loops.push(this.#loops.pop()! - 1)
    const otherwise = (): Body => (recursive ? this.#closed('endfor') : this.#body('endfor'))
    const no = this.#ended === 'else' ? otherwise() : null
    return { kind: 'for', target, of, body, no, test, recursive, line }
  }

  #if(line: number): If {
    const ends = ['elif', 'else', 'endif']
    const test = this.tuple({ choices: false })
    const body = this.#body(...ends)
    const elifs: If[] = []
    while (this.#ended === 'elif') {
      const own = this.token.line
      const other = this.tuple({ choices: false })
      elifs.push({ kind: 'if', test: other, body: this.#body(...ends), elifs: [], no: [], line: own })
    }
    const no = this.#ended === 'else' ? this.#body('endif') : []
    return { kind: 'if', test, body, elifs, no, line }
  }

  #parameters(): readonly Parameter[] {
    const found: Parameter[] = []
    this.expect('(')
    while (!this.is(')')) {
      if (found.length > 0) this.expect(',')
      const name = this.own()
      const usual = this.skip('=') ? this.expression() : null
      if (usual === null && found.at(-1)?.usual) this.fail(`${name} has no default behind one that has`)
      if (found.some((other) => other.name === name)) this.fail(`${name} is named twice`)
      found.push({ name, usual })
    }
    this.expect(')')
    return found
  }

  /** What is assigned to; `end` may come behind its last comma. */
  #target(members: boolean, end = ')'): Target {
    const items: Target[] = []
    let several = false
    for (;;) {
      if (items.length > 0 && this.is(end, '}}', '%}', ')')) break
      items.push(this.deeper(() => this.#targetItem(members)))
      if (!this.skip(',')) break
      several = true
    }
    return several ? { kind: 'unpack', items } : items[0]!
  }

  #targetItem(members: boolean): Target {
    if (this.skip('(')) {
      const inside = this.#target(false, ')')
      this.expect(')')
      return inside
    }
    const name = this.own()
    return members && this.skip('.') ? { kind: 'member', name, member: this.name() } : { kind: 'store', name }
  }
}

/** Throws for what is no template, and for what is not supported, with the line of it. */
export const parse = (source: string): Body => new Parser(tokensOf(source)).template()
