/**
 * A pattern as instructions, each naming what comes after it. Counted repetitions are written out, and how many
 * instructions that makes is counted before any is made.
 *
 *   CHAR   one character, then `next`
 *   SPLIT  `next`, and where that fails `other`
 *   RUN    as many characters as there are, then `next`; where that fails one less, and so on
 *   END    goes on with `next` at the end of a line
 *   AHEAD  goes on with `next` if `inner` matches here, or does not
 *   JOIN   a place that several ways lead to: what failed from here is marked and not tried again
 *   MATCH  the end
 *
 * Only JOIN and MATCH have more than one instruction before them. So a matcher that marks the JOINs never executes an
 * instruction twice at one place.
 */
import { MOST_INSTRUCTIONS } from './limits.ts'
import { type Node, type Test, UnsupportedPattern } from './pattern.ts'

export const CHAR = 0
export const SPLIT = 1
export const RUN = 2
export const AHEAD = 3
export const JOIN = 4
const MATCH = 5
export const END = 6

/**
 * All have the same members, so that the matcher's loop sees one shape; what a kind has no use for is not looked at.
 */
export interface Instruction {
  readonly kind: number
  /** CHAR, RUN */
  readonly test: Test
  /** RUN: its number among the runs. JOIN: among the joins. */
  readonly number: number
  /** AHEAD */
  readonly negative: boolean
  /** All but MATCH. */
  next: Instruction | null
  /** SPLIT: the other choice. AHEAD: what is looked for. */
  readonly other: Instruction | null
}

const never: Test = () => false
const make = (kind: number, next: Instruction | null, rest: Partial<Instruction> = {}): Instruction => {
  const { test = never, number = 0, negative = false, other = null } = rest
  return { kind, test, number, negative, next, other }
}

export interface Program {
  /** How many instructions it has at most. */
  readonly size: number
  readonly start: Instruction
  /** `start` without the alternatives that cannot begin with a certain character of ASCII; null where none can. */
  readonly starts: readonly (Instruction | null)[]
  readonly joins: number
  readonly runs: number
}

/** How many instructions a node becomes; as a float, so that no number of repetitions overflows. */
const sizeOf = (node: Node): number => {
  switch (node.kind) {
    case 'char':
    case 'end':
      return 1
    case 'sequence':
      return node.nodes.reduce((sum, part) => sum + sizeOf(part), 0)
    case 'either':
      return node.nodes.reduce((sum, part) => sum + sizeOf(part) + 1, 0)
    case 'ahead':
      return sizeOf(node.node) + 2
    case 'repeat': {
      const size = sizeOf(node.node)
      if (node.max === Infinity) return node.min * size + (node.node.kind === 'char' ? 1 : size + 2)
      return node.min * size + (node.max - node.min) * (size + 1) + 1
    }
  }
}

/** Whether a match of the node may begin with a character, as far as is told here; null: it may be empty. */
const beginsWith = (node: Node, code: number): boolean | null => {
  switch (node.kind) {
    case 'char':
      return node.test(code)
    // What looks ahead looks at more than the character: the matcher must see it.
    case 'ahead':
    case 'end':
      return true
    case 'repeat':
      return beginsWith(node.node, code) || (node.min === 0 ? null : false)
    case 'either': {
      const answers = node.nodes.map((branch) => beginsWith(branch, code))
      return answers.includes(true) || (answers.includes(null) ? null : false)
    }
    case 'sequence':
      for (const part of node.nodes) {
        const answer = beginsWith(part, code)
        if (answer !== null) return answer
      }
      return null
  }
}

export const MATCHED = make(MATCH, null)

/** Throws UnsupportedPattern for a pattern that is too large. */
export const programOf = (node: Node, source: string): Program => {
  const size = sizeOf(node)
  if (size > MOST_INSTRUCTIONS)
    throw new UnsupportedPattern(
      `the pattern ${JSON.stringify(source.length > 80 ? `${source.slice(0, 80)}…` : source)}, which has ${size} parts with its repetitions written out; at most ${MOST_INSTRUCTIONS} are taken`,
    )
  let joins = 0
  let runs = 0
  const joined = (next: Instruction): Instruction => {
    if (next.kind === JOIN || next.kind === MATCH) return next
    joins += 1
    return make(JOIN, next, { number: joins - 1 })
  }
  const compile = (node: Node, next: Instruction): Instruction => {
    switch (node.kind) {
      case 'char':
        return make(CHAR, next, { test: node.test })
      case 'sequence':
        return node.nodes.reduceRight((after, part) => compile(part, after), next)
      case 'either': {
        const after = joined(next)
        return node.nodes
          .map((branch) => compile(branch, after))
          .reduceRight((other, branch) => make(SPLIT, branch, { other }))
      }
      case 'end':
        return make(END, next)
      case 'ahead':
        return make(AHEAD, next, { other: compile(node.node, MATCHED), negative: node.negative })
      case 'repeat': {
        let step: Instruction
        if (node.max === Infinity && node.node.kind === 'char') {
          step = make(RUN, next, { test: node.node.test, number: runs })
          runs += 1
        } else if (node.max === Infinity) {
          step = make(JOIN, null, { number: joins })
          joins += 1
          step.next = make(SPLIT, compile(node.node, step), { other: next })
        } else if (node.max > node.min) {
          const after = joined(next)
          step = after
          for (let copy = node.min; copy < node.max; copy += 1)
            step = make(SPLIT, compile(node.node, step), { other: after })
        } else step = next
        for (let copy = 0; copy < node.min; copy += 1) step = compile(node.node, step)
        return step
      }
    }
  }
  const branches = (node.kind === 'either' ? node.nodes : [node]).map((branch) => ({
    branch,
    step: compile(branch, MATCHED),
  }))
  const chains = new Map<string, Instruction | null>()
  const chainOf = (taken: readonly number[]): Instruction | null => {
    const key = taken.join()
    let chain = chains.get(key)
    if (chain === undefined) {
      chain = taken
        .map((at) => branches[at]!.step)
        .reduceRight<Instruction | null>((other, next) => (other === null ? next : make(SPLIT, next, { other })), null)
      chains.set(key, chain)
    }
    return chain
  }
  const all = branches.map((_, at) => at)
  const starts = Array.from({ length: 128 }, (_, code) =>
    chainOf(all.filter((at) => beginsWith(branches[at]!.branch, code) !== false)),
  )
  return { size, start: chainOf(all)!, starts, joins, runs }
}
