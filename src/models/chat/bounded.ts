/**
 * The interpreter of chat templates, with a price on all it does. A template is a program from outside, and the library's built-ins work on
 * values of any size in one call, so each is paid for before it runs: by the size of what it reads, and of what it would make. What the
 * library does inside is known for its pinned version; tests hold each of its built-ins to these bounds.
 */
import { Interpreter } from '@huggingface/jinja'

/**
 * One for each statement and expression, for each element of a list and each `STEP_TEXT` characters of a text that it gives, and for what a
 * built-in reads. A published template takes some hundred a message. All of them take some seconds.
 */
export const MOST_STEPS = 2_000_000
/** Characters of a step. So the texts of a rendering have 2²⁸ characters in all, and fit the memory. */
const STEP_TEXT = 128
/** Of any text that a template makes, in UTF-16 units: four times what a gateway takes by default. */
export const MOST_TEXT = 1 << 23
/** Comparisons of characters in a search that are a step. */
const STEP_SEARCH = 1 << 16
/** Lists in lists that are written as text; JSON of tools has a few. */
const MOST_DEPTH = 64
/** What a turn of a loop costs beside its body; a variable that is not there, and a `break`, cost as much: the library throws for them. */
const DEAR = 8
/** Comparisons of an element in a sort. */
const SORT = 24

interface Value {
  readonly type: string
  readonly value: unknown
}
interface Node {
  readonly type: string
}
type Method = (args: readonly Value[], scope: unknown) => Value

/** What of the library is put in front of, under its names. */
interface Evaluator {
  run(program: unknown): Value
  evaluate(node: Node | undefined, environment: unknown): Value
  evaluateBlock(body: readonly Node[], environment: unknown): Value
  evaluateArguments(args: readonly Node[], environment: unknown): [Value[], Map<string, Value>]
  evaluateCallExpression(node: Call, environment: unknown): Value
  evaluateBinaryExpression(node: Binary, environment: unknown): Value
  evaluateFor(node: Loop, environment: unknown): Value
  evaluateMemberExpression(node: Member, environment: unknown): Value
  evaluateSliceExpression(object: Value, node: Node, environment: unknown): Value
  applyFilter(operand: Value, filter: Filter, environment: unknown): Value
}
interface Binary extends Node {
  readonly left: Node
  readonly right: Node
  readonly operator: { readonly value: string }
}
interface Call extends Node {
  readonly callee: Node & { readonly value?: unknown }
  readonly args: readonly Node[]
}
interface Loop extends Node {
  /** A list, or a choice (`lhs`) of its elements. */
  readonly iterable: Node & { readonly lhs?: Node }
}
interface Member extends Node {
  readonly object: Node
}
/** `name`, or `name(args)`. */
interface Filter extends Node {
  readonly value?: unknown
  readonly callee?: { readonly value?: unknown }
  readonly args?: readonly Node[]
}
/** A value that was computed already, in the place of an expression. */
interface Computed extends Node {
  readonly type: 'Computed'
  readonly found: Value
}

// The library's declarations import each other without extensions, which this module resolution does not follow.
const Base = Interpreter as unknown as new (environment: unknown) => Evaluator

const computed = (found: Value): Computed => ({ type: 'Computed', found })
const textOf = ({ type, value }: Value): string | null => (type === 'StringValue' ? (value as string) : null)

/** The values in a list or an object; null: it is neither. */
const within = ({ value }: Value): readonly Value[] | IterableIterator<Value> | null =>
  Array.isArray(value) ? value : value instanceof Map ? (value as Map<string, Value>).values() : null

const sizeOf = ({ value }: Value): number =>
  Array.isArray(value) ? value.length : value instanceof Map ? value.size : 0

/** Filters that look at their operand only, and those that go over its elements and not into them; all others may read everything. */
const LIGHT: ReadonlySet<unknown> = new Set(['length', 'first', 'last', 'list', 'safe', 'default', 'abs', 'bool'])
const SHALLOW: ReadonlySet<unknown> = new Set([
  'reverse',
  'selectattr',
  'rejectattr',
  'map',
  'items',
  'keys',
  'values',
  'unique',
  'get',
])

interface Extent {
  readonly values: number
  readonly characters: number
  readonly depth: number
}

export class Bounded extends Base {
  #steps = 0
  /** Characters of the template's source: what the library goes through to learn which names a macro uses. */
  readonly #source: number
  /** Of a namespace that is made. */
  #pairs: readonly Node[] | null = null
  /** What the arguments that are evaluated next are for. */
  #filtered: {
    readonly operand: Value
    readonly extent: Extent
    readonly name: unknown
    readonly args: unknown
  } | null = null

  constructor(environment: unknown, source: string) {
    super(environment)
    this.#source = source.length
  }

  #pay(steps: number): void {
    this.#steps += steps
    // Not a number is too much.
    if (!(this.#steps <= MOST_STEPS)) throw new Error(`it takes more than ${MOST_STEPS} steps`)
  }

  #payText(characters: number): void {
    if (!(characters <= MOST_TEXT)) throw new Error(`it makes a text of more than ${MOST_TEXT} characters`)
    this.#pay(characters / STEP_TEXT)
  }

  /** Pays for all that is in a value, as often as it is in there: lists can hold a list twice, and again. */
  #payAll(value: Value, depth = 1): Extent {
    if (depth > MOST_DEPTH) throw new Error(`it writes lists that are nested more than ${MOST_DEPTH} deep`)
    this.#pay(1)
    const own = textOf(value)?.length ?? 0
    this.#pay(own / STEP_TEXT)
    let [values, characters, deepest] = [1, own, depth]
    if (value.value instanceof Map) for (const key of value.value.keys()) characters += (key as string).length
    this.#pay((characters - own) / STEP_TEXT)
    for (const inner of within(value) ?? []) {
      const extent = this.#payAll(inner, depth + 1)
      values += extent.values
      characters += extent.characters
      deepest = Math.max(deepest, extent.depth)
    }
    return { values, characters, depth: deepest }
  }

  /** How often the sought stands in the text, found as the library does; both are paid for, as comparisons may be. */
  #count(text: string, sought: string): number {
    this.#pay((text.length * sought.length) / STEP_SEARCH)
    if (sought === '') return text.length + 1
    let count = 0
    for (let at = text.indexOf(sought); at >= 0; at = text.indexOf(sought, at + sought.length)) {
      count += 1
      this.#pay(1)
    }
    return count
  }

  #payReplace(text: string, [sought, put]: readonly Value[]): void {
    const [from, to] = [textOf(sought!), textOf(put!)]
    if (from === null || to === null) return
    this.#payText(text.length + this.#count(text, from) * to.length)
  }

  /** A method of a text. */
  #payMethod(name: unknown, text: string, args: readonly Value[]): void {
    this.#payText(text.length)
    if (name === 'replace' && args.length >= 2) this.#payReplace(text, args)
    else if (name === 'split') {
      const separator = args[0] === undefined ? null : textOf(args[0])
      if (separator === null) this.#pay(text.length / 2)
      else this.#count(text, separator)
    } else for (const arg of args) this.#payAll(arg)
  }

  override evaluate(node: Node | undefined, environment: unknown): Value {
    if (node?.type === 'Computed') return (node as Computed).found
    if (node?.type === 'Macro' || node?.type === 'CallStatement') this.#pay(this.#source / STEP_TEXT)
    if (node?.type === 'Break' || node?.type === 'Continue') this.#pay(DEAR)
    const found = super.evaluate(node, environment)
    this.#pay(1)
    if (found.type === 'UndefinedValue') this.#pay(DEAR)
    const text = textOf(found)
    if (text !== null) this.#payText(text.length)
    else this.#pay(sizeOf(found))
    return found
  }

  override evaluateBlock(body: readonly Node[], environment: unknown): Value {
    let result = ''
    for (const node of body) {
      const found = this.evaluate(node, environment)
      if (found.type === 'NullValue' || found.type === 'UndefinedValue') continue
      if (within(found) !== null) this.#payAll(found)
      result += String(found)
    }
    return super.evaluate({ type: 'StringLiteral', value: result } as Node, environment)
  }

  override evaluateCallExpression(node: Call, environment: unknown): Value {
    this.#pairs = node.callee.value === 'namespace' ? node.args : null
    return super.evaluateCallExpression(node, environment)
  }

  override evaluateFor(node: Loop, environment: unknown): Value {
    const { iterable } = node
    const chooses = iterable.type === 'SelectExpression'
    const found = this.evaluate(chooses ? iterable.lhs : iterable, environment)
    this.#pay(DEAR * sizeOf(found))
    const known = chooses ? { ...iterable, lhs: computed(found) } : computed(found)
    return super.evaluateFor({ ...node, iterable: known }, environment)
  }

  override evaluateBinaryExpression(node: Binary, environment: unknown): Value {
    const { value: operator } = node.operator
    if (operator === 'and' || operator === 'or') return super.evaluateBinaryExpression(node, environment)
    const [left, right] = [this.evaluate(node.left, environment), this.evaluate(node.right, environment)]
    const [a, b] = [textOf(left), textOf(right)]
    // A list becomes a text beside one, or where it is compared with another value.
    const asText = operator === '~' || operator === '==' || operator === '!=' || (operator === '+' && (a ?? b) !== null)
    if (asText && (Array.isArray(left.value) || Array.isArray(right.value))) {
      this.#payAll(left)
      this.#payAll(right)
    } else if (asText && a !== null && b !== null) this.#payText(Math.max(a.length, b.length))
    // In a text, or among the texts of a list, each of which may be as long.
    if (operator.endsWith('in') && a !== null) this.#pay((a.length * (b?.length ?? sizeOf(right))) / STEP_SEARCH)
    return super.evaluateBinaryExpression({ ...node, left: computed(left), right: computed(right) }, environment)
  }

  override evaluateMemberExpression(node: Member, environment: unknown): Value {
    const object = this.evaluate(node.object, environment)
    const found = super.evaluateMemberExpression({ ...node, object: computed(object) }, environment)
    if (found?.type !== 'FunctionValue') return found
    const { property } = node as unknown as { readonly property: { readonly value?: unknown } }
    const method = found.value as Method
    const paid: Method = (args, scope) => {
      const text = textOf(object)
      if (text !== null) this.#payMethod(this.#nameOf(object, found) ?? property.value, text, args)
      else if (this.#nameOf(object, found) === 'dictsort') this.#pay(this.#payAll(object).values * SORT)
      else if (object.value instanceof Map) this.#pay(object.value.size)
      return method(args, scope)
    }
    return Object.assign(Object.create(Object.getPrototypeOf(found)), found, { value: paid })
  }

  /** Under which name a value has this built-in, however the template named it. */
  #nameOf(object: Value, found: Value): string | undefined {
    const { builtins } = object as unknown as { readonly builtins?: ReadonlyMap<string, Value> }
    for (const [name, builtin] of builtins ?? []) if (builtin === found) return name
    return undefined
  }

  override evaluateSliceExpression(object: Value, node: Node, environment: unknown): Value {
    // A text is cut into its characters for that, whatever part of it is wanted.
    const text = textOf(object)
    this.#pay(text === null ? sizeOf(object) : text.length / 4)
    return super.evaluateSliceExpression(object, node, environment)
  }

  override applyFilter(operand: Value, filter: Filter, environment: unknown): Value {
    const name = filter.type === 'CallExpression' ? filter.callee?.value : filter.value
    const outer = this.#filtered
    try {
      if (!LIGHT.has(name)) {
        if (SHALLOW.has(name)) this.#pay(sizeOf(operand))
        else {
          const extent = this.#payAll(operand)
          this.#payText(extent.characters)
          if (name === 'sort' || name === 'dictsort') this.#pay(extent.values * SORT)
          if (name === 'join') this.#pay(textOf(operand) === null ? 0 : extent.characters)
          this.#filtered = { operand, extent, name, args: filter.args }
        }
      }
      return super.applyFilter(operand, filter, environment)
    } finally {
      this.#filtered = outer
    }
  }

  override evaluateArguments(args: readonly Node[], environment: unknown): [Value[], Map<string, Value>] {
    const filtered = this.#filtered?.args === args ? this.#filtered : null
    const makesPairs = this.#pairs === args
    this.#filtered = null
    this.#pairs = null
    const found = super.evaluateArguments(args, environment)
    // A text among them is cut into its characters before it is seen that it is no pair.
    if (makesPairs) for (const arg of found[0]) this.#pay(this.#payAll(arg).characters)
    if (filtered !== null) this.#payFilter(filtered, found)
    return found
  }

  /** What a filter makes with these arguments. */
  #payFilter(
    { operand, extent, name }: { readonly operand: Value; readonly extent: Extent; readonly name: unknown },
    [args, named]: readonly [readonly Value[], ReadonlyMap<string, Value>],
  ): void {
    const text = textOf(operand)
    const whole = (value: Value | undefined, usual: number): number =>
      value?.type === 'IntegerValue' ? Number(value.value) : usual
    if (name === 'replace' && text !== null && args.length >= 2) this.#payReplace(text, args)
    if (name === 'indent' && text !== null)
      this.#payText(text.length + (this.#count(text, '\n') + 1) * whole(args[0] ?? named.get('width'), 4))
    if (name === 'join') {
      const separator = args[0] ?? named.get('separator')
      const items = text === null ? sizeOf(operand) : text.length
      this.#payText(extent.characters + items * (separator === undefined ? 0 : (textOf(separator)?.length ?? 0)))
    }
    if (name === 'tojson') {
      const indent = whole(named.get('indent'), 0)
      const separators = named.get('separators')
      const between = separators === undefined ? 2 : this.#payAll(separators).characters
      this.#payText(extent.characters + extent.values * (2 * extent.depth * indent + between + 2))
    }
  }
}
