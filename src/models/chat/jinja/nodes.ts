/** What a template is made of. */
import type { Value } from './values.ts'

interface Placed {
  readonly line: number
  /** How deep expressions are in one another. */
  readonly deep: number
}

/** What a call gets: `f(a, b=c, *rest, **restNamed)`. */
export interface Given {
  readonly list: readonly Expression[]
  readonly named: readonly (readonly [string, Expression])[]
  readonly rest: Expression | null
  readonly restNamed: Expression | null
}

export type Call = { readonly kind: 'call'; readonly node: Expression; readonly given: Given } & Placed
export type Filter = {
  readonly kind: 'filter'
  /** null: the body of a block. */
  readonly node: Expression | null
  readonly name: string
  readonly given: Given
} & Placed

export type Expression = Placed &
  (
    | { readonly kind: 'constant'; readonly value: Value }
    | { readonly kind: 'name'; readonly name: string }
    | { readonly kind: 'list' | 'tuple'; readonly items: readonly Expression[] }
    | { readonly kind: 'dict'; readonly pairs: readonly (readonly [Expression, Expression])[] }
    | { readonly kind: 'attribute'; readonly node: Expression; readonly name: string }
    | { readonly kind: 'item'; readonly node: Expression; readonly key: Expression }
    | {
        readonly kind: 'slice'
        readonly node: Expression
        readonly bounds: readonly [Expression | null, Expression | null, Expression | null]
      }
    | Call
    | Filter
    | { readonly kind: 'test'; readonly node: Expression; readonly name: string; readonly given: Given }
    | { readonly kind: 'unary'; readonly op: '-' | '+' | 'not'; readonly node: Expression }
    | { readonly kind: 'binary'; readonly op: string; readonly left: Expression; readonly right: Expression }
    | { readonly kind: 'logic'; readonly op: 'and' | 'or'; readonly left: Expression; readonly right: Expression }
    | {
        readonly kind: 'compare'
        readonly node: Expression
        readonly ops: readonly (readonly [string, Expression])[]
      }
    | { readonly kind: 'concat'; readonly nodes: readonly Expression[] }
    | {
        readonly kind: 'choice'
        readonly test: Expression
        readonly yes: Expression
        readonly no: Expression | null
      }
  )

/** What is assigned to. */
export type Target =
  | { readonly kind: 'store'; readonly name: string }
  | { readonly kind: 'member'; readonly name: string; readonly member: string }
  | { readonly kind: 'unpack'; readonly items: readonly Target[] }

export interface Parameter {
  readonly name: string
  readonly usual: Expression | null
}

export type Body = readonly Statement[]
type On = { readonly line: number }
export type If = {
  readonly kind: 'if'
  readonly test: Expression
  readonly body: Body
  readonly elifs: readonly If[]
  readonly no: Body
} & On
export type For = {
  readonly kind: 'for'
  readonly target: Target
  readonly of: Expression
  readonly body: Body
  readonly no: Body | null
  readonly test: Expression | null
  readonly recursive: boolean
} & On
export type Macro = {
  readonly kind: 'macro'
  readonly name: string
  readonly parameters: readonly Parameter[]
  readonly body: Body
} & On
/** `call` null: `{% generation %}`, which writes its body. */
export type CallBlock = {
  readonly kind: 'callBlock'
  readonly call: Call | null
  readonly parameters: readonly Parameter[]
  readonly body: Body
} & On
export type With = {
  readonly kind: 'with'
  readonly targets: readonly Target[]
  readonly values: readonly Expression[]
  readonly body: Body
} & On
export type SetBlock = {
  readonly kind: 'setBlock'
  readonly target: Target
  readonly filter: Filter | null
  readonly body: Body
} & On
export type FilterBlock = { readonly kind: 'filterBlock'; readonly body: Body; readonly filter: Filter } & On

export type Statement =
  | ({ readonly kind: 'data'; readonly text: string } & On)
  | ({ readonly kind: 'output'; readonly nodes: readonly Expression[] } & On)
  | ({ readonly kind: 'set'; readonly target: Target; readonly value: Expression } & On)
  | ({ readonly kind: 'break' | 'continue' } & On)
  | If
  | For
  | Macro
  | CallBlock
  | With
  | SetBlock
  | FilterBlock
