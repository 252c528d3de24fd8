/**
 * Grammars that bind answers: which tokens may follow, token by token. Text and ids alone decide; nothing that is kept
 * here changes an answer.
 */
import type { Grammar } from '../../topics/chunks.ts'
import { Automaton, DEAD, type State } from './automaton.ts'
import { callsRule } from './calls.ts'
import { type Rule, ruleOf } from './expression.ts'
import { gbnfRule } from './gbnf.ts'
import { anyObject } from './json.ts'
import { checkSize, schemaRule } from './json-schema.ts'
import { MOST_BYTES, refusalOf, refuse } from './limits.ts'
import { type Mask, maskOf, withEnds } from './mask.ts'
import { type Network, networkOf } from './network.ts'
import { regexOf } from './regex.ts'
import { type Tree, treeOf, type Vocabulary } from './vocabulary.ts'

export type { Mask } from './mask.ts'

/** Grammars that were read last; reading one takes milliseconds. */
const MOST_READ = 16
/** Numbers that the automaton of a grammar keeps, and bytes of its masks. */
const MOST_KEPT = 1 << 20
const MOST_MASK_BYTES = 1 << 22

/**
 * A grammar that was read, and what was found out about it: the masks are those of the states of the automaton, for one
 * vocabulary.
 */
interface Read {
  readonly network: Network
  automaton: Automaton
  masks: Map<State, Mask>
  tree: Tree | null
}

const ruleIn = (grammar: Grammar): Rule => {
  switch (grammar.type) {
    case 'json':
      return ruleOf('JSON', anyObject)
    case 'jsonSchema':
      return schemaRule(grammar.schema)
    case 'regex':
      return ruleOf('the regular expression', regexOf(grammar.pattern, 'The regular expression', true))
    case 'calls':
      return callsRule(grammar)
    case 'gbnf': {
      const bytes = Buffer.byteLength(grammar.text)
      return bytes > MOST_BYTES
        ? refuse(`The grammar has ${bytes} bytes, expected at most ${MOST_BYTES}.`)
        : gbnfRule(grammar.text)
    }
  }
}

const readLast = new Map<string, Read>()

const read = (grammar: Grammar): Read => {
  if (grammar.type === 'jsonSchema') checkSize(grammar.schema)
  const key = JSON.stringify(grammar)
  let found = readLast.get(key)
  if (found === undefined) {
    const network = networkOf(ruleIn(grammar))
    found = { network, automaton: new Automaton(network), masks: new Map(), tree: null }
  }
  readLast.delete(key)
  readLast.set(key, found)
  if (readLast.size > MOST_READ) readLast.delete(readLast.keys().next().value!)
  return found
}

/** Why the grammar cannot be used, as a sentence; null: it can. */
export const faultOfGrammar = (grammar: Grammar): string | null => refusalOf(() => read(grammar))

/** One a tokenizer: sorting the tokens of a large vocabulary takes a tenth of a second. */
const trees = new WeakMap<object, Tree>()

const treeFor = (vocabulary: Vocabulary): Tree => {
  let tree = trees.get(vocabulary.tokenizer)
  if (tree?.vocabSize !== vocabulary.vocabSize) {
    tree = treeOf(vocabulary)
    trees.set(vocabulary.tokenizer, tree)
  }
  return tree
}

/** Where an answer stands in its grammar. */
export interface Matcher {
  /** Which tokens may follow; those that end a generation may where the grammar can end. */
  mask(): Mask
  /** Whether nothing may follow: `grammar`, it has ended; `blocked`, it has not; null: something may. */
  over(): 'grammar' | 'blocked' | null
  /** The next token of the answer. Returns whether the grammar allows it there; if not, the matcher is of no use. */
  accept(id: number): boolean
}

/**
 * Before the first token of an answer; `ends` are the ids that end a generation. Throws INVALID for what
 * `faultOfGrammar` finds.
 */
export const openMatcher = (grammar: Grammar, vocabulary: Vocabulary, ends: readonly number[]): Matcher => {
  const found = read(grammar)
  const tree = treeFor(vocabulary)
  let { automaton } = found
  let state = automaton.start
  /** The grammar's automaton may be another one by now. */
  const settle = (): void => {
    if (found.automaton.kept > MOST_KEPT) {
      found.automaton = new Automaton(found.network)
      found.masks.clear()
    }
    if (automaton === found.automaton) return
    state = found.automaton.stateOf(automaton.placesOf(state))
    automaton = found.automaton
  }
  const going = (): Mask => {
    settle()
    if (found.tree !== tree || (found.masks.size + 1) * (tree.vocabSize / 8) > MOST_MASK_BYTES) found.masks.clear()
    found.tree = tree
    let mask = found.masks.get(state)
    if (mask === undefined) {
      mask = maskOf(automaton, state, tree)
      found.masks.set(state, mask)
    }
    return mask
  }
  return {
    mask() {
      const mask = going()
      return withEnds(mask, ends, automaton.ended(state))
    },
    over() {
      if (withEnds(going(), ends, false).count > 0) return null
      return automaton.ended(state) ? 'grammar' : 'blocked'
    },
    accept(id) {
      settle()
      for (const byte of vocabulary.tokenizer.bytesOf(id)) {
        state = automaton.step(state, byte)
        if (state === DEAD) return false
      }
      return true
    },
  }
}
