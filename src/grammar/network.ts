/**
 * A grammar as a network of nodes for each rule (a recursive transition network, W. A. Woods 1970), over bytes. Rules
 * in the last place of another are entered without a return, so right recursion needs no depth.
 */
import { byteRanges, type Chars } from './chars.ts'
import type { Expression, Rule } from './expression.ts'
import { MOST_NODES, refuse } from './limits.ts'

export interface Node {
  /** [first byte, last byte, node behind it] */
  readonly bytes: (readonly [number, number, number])[]
  /** Nodes that are reached for nothing. */
  readonly free: number[]
  /** A rule is read, then goes on at `to`: `start` is its first node. */
  readonly calls: { readonly start: number; readonly to: number }[]
}

export interface Network {
  /** All can be left again on a way that ends. */
  readonly nodes: readonly Node[]
  readonly start: number
  /** Whether a rule ends here: of each node. */
  readonly ends: readonly boolean[]
  /** Where nothing can follow but the end of the rule: of each node. */
  readonly onlyEnds: readonly boolean[]
}

interface Draft {
  readonly nodes: Node[]
  readonly starts: Map<Rule, number>
  readonly ends: boolean[]
  readonly names: Map<number, string>
}

const draftOf = (root: Rule): Draft & { readonly start: number } => {
  const nodes: Node[] = []
  const ends: boolean[] = []
  const starts = new Map<Rule, number>()
  const names = new Map<number, string>()
  const waiting: Rule[] = []
  /** Sets of several bytes and repeated parts are rules of their own; a set is the same rule wherever it stands. */
  const ofSet = new Map<string, Rule>()
  const ofPart = new Map<Expression, Rule>()

  const node = (): number => {
    if (nodes.length === MOST_NODES)
      refuse(
        `The grammar has more than ${MOST_NODES} nodes with its counted repetitions written out. Ask for shorter lists, shorter texts or fewer alternatives.`,
      )
    ends.push(false)
    return nodes.push({ bytes: [], free: [], calls: [] }) - 1
  }
  const startOf = (rule: Rule): number => {
    let start = starts.get(rule)
    if (start === undefined) {
      start = node()
      starts.set(rule, start)
      names.set(start, rule.name)
      waiting.push(rule)
    }
    return start
  }
  const call = (rule: Rule, from: number, to: number): void => {
    nodes[from]!.calls.push({ start: startOf(rule), to })
  }
  const addSet = (set: Chars, from: number, to: number): void => {
    for (const ranges of byteRanges(set)) {
      let at = from
      for (const [place, [first, last]] of ranges.entries()) {
        const next = place === ranges.length - 1 ? to : node()
        nodes[at]!.bytes.push([first, last, next])
        at = next
      }
    }
  }
  const addWords = (texts: readonly string[], from: number, to: number): void => {
    const children = new Map<number, Map<number, number>>()
    for (const text of texts) {
      let at = from
      const bytes = Buffer.from(text)
      for (const byte of bytes) {
        const branches = children.get(at) ?? new Map<number, number>()
        children.set(at, branches)
        let next = branches.get(byte)
        if (next === undefined) {
          next = node()
          branches.set(byte, next)
          nodes[at]!.bytes.push([byte, byte, next])
        }
        at = next
      }
      nodes[at]!.free.push(to)
    }
  }
  const small = (part: Expression): boolean =>
    part.kind === 'rule' || (part.kind === 'chars' && (part.set.at(-1)?.[1] ?? 0) < 0x80)
  const repeated = (part: Expression): Expression => {
    if (small(part)) return part
    const key = part.kind === 'chars' ? JSON.stringify(part.set) : null
    let rule = key === null ? ofPart.get(part) : ofSet.get(key)
    if (rule === undefined) {
      rule = { name: 'a repetition', body: part }
      if (key === null) ofPart.set(part, rule)
      else ofSet.set(key, rule)
    }
    return { kind: 'rule', rule }
  }
  const add = (expression: Expression, from: number, to: number): void => {
    switch (expression.kind) {
      case 'chars':
        addSet(expression.set, from, to)
        return
      case 'words':
        addWords(expression.words, from, to)
        return
      case 'rule':
        call(expression.rule, from, to)
        return
      case 'either':
        for (const part of expression.parts) add(part, from, to)
        return
      case 'sequence': {
        const { parts } = expression
        if (parts.length === 0) nodes[from]!.free.push(to)
        let at = from
        for (const [place, part] of parts.entries()) {
          const next = place === parts.length - 1 ? to : node()
          add(part, at, next)
          at = next
        }
        return
      }
      case 'repeat': {
        const { min, max } = expression
        const part = min > 1 || max > 1 ? repeated(expression.part) : expression.part
        let at = from
        const step = (next: number): void => {
          add(part, at, next)
          at = next
        }
        for (let count = 0; count < min; count += 1) step(node())
        if (max === Number.POSITIVE_INFINITY) {
          const loop = node()
          nodes[at]!.free.push(loop)
          add(part, loop, loop)
          nodes[loop]!.free.push(to)
          return
        }
        for (let count = min; count < max; count += 1) {
          nodes[at]!.free.push(to)
          step(node())
        }
        nodes[at]!.free.push(to)
      }
    }
  }

  const start = startOf(root)
  for (let rule = waiting.pop(); rule !== undefined; rule = waiting.pop()) {
    const end = node()
    ends[end] = true
    add(rule.body, starts.get(rule)!, end)
  }
  return { nodes, starts, ends, names, start }
}

/**
 * The nodes from which the end of their rule is reached; `reads`: also by way of bytes. A call leads on where the rule
 * that it names is of the kind, too.
 */
const leading = ({ nodes, ends }: Draft, reads: boolean): boolean[] => {
  const good = nodes.map(() => false)
  const before: number[][] = nodes.map(() => [])
  const callers: { readonly from: number; readonly start: number; readonly to: number }[][] = nodes.map(() => [])
  for (const [from, { bytes, free, calls }] of nodes.entries()) {
    for (const to of free) before[to]!.push(from)
    if (reads) for (const [, , to] of bytes) before[to]!.push(from)
    for (const { start, to } of calls) {
      const found = { from, start, to }
      callers[start]!.push(found)
      callers[to]!.push(found)
    }
  }
  const waiting: number[] = []
  const mark = (node: number): void => {
    if (good[node]) return
    good[node] = true
    waiting.push(node)
  }
  for (const [node, end] of ends.entries()) if (end) mark(node)
  for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
    for (const from of before[node]!) mark(from)
    for (const { from, start, to } of callers[node]!) if (good[start] && good[to]) mark(from)
  }
  return good
}

/** Throws INVALID where a rule can reach itself before a byte was read. */
const checkLeftRecursion = ({ nodes, names }: Draft, empty: readonly boolean[]): void => {
  /** 1: on the way, 2: done. */
  const state = new Map<number, 1 | 2>()
  const calledFirst = (start: number): readonly number[] => {
    const seen = new Set([start])
    const waiting = [start]
    const called: number[] = []
    for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
      const reach = (to: number): void => {
        if (seen.has(to)) return
        seen.add(to)
        waiting.push(to)
      }
      for (const to of nodes[at]!.free) reach(to)
      for (const { start: rule, to } of nodes[at]!.calls) {
        called.push(rule)
        if (empty[rule]) reach(to)
      }
    }
    return called
  }
  for (const root of names.keys()) {
    if (state.has(root)) continue
    const path: { readonly rule: number; readonly next: readonly number[]; at: number }[] = []
    const enter = (rule: number): void => {
      state.set(rule, 1)
      path.push({ rule, next: calledFirst(rule), at: 0 })
    }
    enter(root)
    while (path.length > 0) {
      const top = path.at(-1)!
      const next = top.next[top.at]
      top.at += 1
      if (next === undefined) {
        state.set(top.rule, 2)
        path.pop()
      } else if (state.get(next) === 1)
        refuse(
          `The grammar cannot be read: ${names.get(next)} leads to itself before it has read a character (left recursion). Let it read something first, or write a repetition.`,
        )
      else if (!state.has(next)) enter(next)
    }
  }
}

/** Where nothing but free ways to the end of the rule follows. */
const endingOnly = (nodes: readonly Node[], ends: readonly boolean[]): boolean[] => {
  const plain = nodes.map(({ bytes, calls }) => bytes.length === 0 && calls.length === 0)
  // A node that reads something, or from which one that does is reached for nothing, does not only end.
  const before: number[][] = nodes.map(() => [])
  for (const [from, { free }] of nodes.entries()) for (const to of free) before[to]!.push(from)
  const waiting = plain.flatMap((only, node) => (only ? [] : [node]))
  for (let node = waiting.pop(); node !== undefined; node = waiting.pop())
    for (const from of before[node]!)
      if (plain[from]) {
        plain[from] = false
        waiting.push(from)
      }
  return plain.map((only, node) => only && (ends[node]! || nodes[node]!.free.length > 0))
}

/** Throws INVALID for a grammar that is too large, that is left-recursive, or that no text fits. */
export const networkOf = (root: Rule): Network => {
  const draft = draftOf(root)
  const productive = leading(draft, true)
  if (!productive[draft.start])
    refuse('No answer fits the grammar: whatever is written, it can never be ended. Look for rules without an end.')
  const nodes = draft.nodes.map(({ bytes, free, calls }) => ({
    bytes: bytes.filter(([, , to]) => productive[to]),
    free: free.filter((to) => productive[to]),
    calls: calls.filter(({ start, to }) => productive[start] && productive[to]),
  }))
  const whole = { ...draft, nodes }
  checkLeftRecursion(whole, leading(whole, false))
  return { nodes, start: draft.start, ends: draft.ends, onlyEnds: endingOnly(nodes, draft.ends) }
}
