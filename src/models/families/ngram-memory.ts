/**
 * An ngram memory behind a model of another family (docs/ngram.md): the model's logits are the base to which the memory
 * adds its votes, so the model learns the text that it reads without having been trained for it. memory.json says so:
 * `{ "kind": "ngram", "slots": 58368 }`; with `"learned": true` it begins with the numbers of memory.safetensors beside
 * it.
 */
import { z } from 'zod'
import type { Block, Declaration, Graph, Node, OpNode } from '../../engine/graph.ts'
import { callNative } from '../../engine/native.ts'
import { NGRAM_LEARN, NGRAM_TOKENS, SLOT_NUMBERS } from '../../engine/ngram-ops.ts'
import { ContinuoError } from '../../errors.ts'
import { schemaFault } from '../../issues.ts'

const LEAST_SLOTS = 2 ** 10
const MOST_SLOTS = 2 ** 24
/** With these the state is a megabyte. */
export const DEFAULT_SLOTS = 58_368
/** With these the state of a small memory is 200 kB. */
export const DEFAULT_SMALL_SLOTS = 13_312

/** Contexts that are remembered at a time; 8 bytes each, 16 where tokens are subwords. */
export const ngramSlots = z.int().min(LEAST_SLOTS).max(MOST_SLOTS).multipleOf(2)

/** A memory that learns from its own draws goes round in circles. */
export const ngramLearn = z.enum(NGRAM_LEARN).default('read')

/**
 * The tensor of what other texts taught the votes before: of a package of the family ngram, and of memory.safetensors.
 */
export const LEARNED = 'learned'

/** What memory.json says of it beside an external memory, in the member "ngram". */
export const ngramMember = z.strictObject({
  slots: ngramSlots.default(DEFAULT_SLOTS),
  learn: ngramLearn,
  /** The memory begins with the numbers in memory.safetensors. */
  learned: z.literal(true).optional(),
})

const schema = ngramMember.extend({ kind: z.literal('ngram') })

export type NgramMemory = z.infer<typeof schema>

/** Whether the content of a memory.json asks for an ngram memory. */
export const asksForNgram = (parsed: unknown): boolean => (Object(parsed) as { kind?: unknown }).kind === 'ngram'

/** memory.json with every member there. Throws INVALID for members that it cannot have. */
export const readNgramMemory = (parsed: unknown): NgramMemory => {
  const result = schema.safeParse(parsed)
  if (result.success) return result.data
  const { path, message } = schemaFault(result.error)
  throw new ContinuoError(
    'INVALID',
    `memory.json: ${path.length > 0 ? `${path.join('.')}: ` : ''}${message}. Expected { "kind": "ngram", "slots": N, "learn": "read" or "all" }, and "learned": true where memory.safetensors has its first numbers.`,
  )
}

const table = (name: string, dtype: 'i32' | 'f32', axes: readonly number[]): Declaration => ({
  kind: 'persistent',
  name,
  dtype,
  init: 0,
  axes,
})

const resultsOf = (block: Block): Readonly<Record<string, string>> => {
  const last = block.nodes.at(-1)
  return last !== undefined && 'return' in last ? (last.return as Readonly<Record<string, string>>) : {}
}

/** Operations with another name for a value that they read. */
const renamed = (nodes: readonly Node[], from: string, to: string): readonly Node[] =>
  nodes.map((node): Node => {
    if (!('op' in node)) return node
    return { ...node, ...(node.in !== undefined && { in: node.in.map((name) => (name === from ? to : name)) }) }
  })

/**
 * The graph of a language model with the memory behind it: its step goes on to the logits and through the memory, and
 * what it returns as the hidden vector are the memory's logits. An external memory goes on reading the hidden vector
 * itself. Throws INVALID for a model that cannot have one.
 */
export const withNgramMemory = (
  graph: Graph,
  { slots, learn, learned }: NgramMemory,
  modelType: string,
  vocabSize: number,
): Graph => {
  const refuse = (why: string): never => {
    throw new ContinuoError(
      'INVALID',
      `memory.json asks for an ngram memory, but a "${modelType}" model ${why}. Take memory.json away.`,
    )
  }
  if (graph.perspective !== undefined || modelType === 'ngram') refuse('has a memory of its own')
  const step = graph.blocks.find(({ name }) => name === 'step')!
  const predict = graph.blocks.find(({ name }) => name === 'predict')!
  const { hidden, previous } = resultsOf(step) as { hidden: string; previous: string }
  const { logits } = resultsOf(predict) as { logits: string }
  const [token, input] = [step.inputs[0]!, predict.inputs[0]!]
  const isShift = (node: Node): node is OpNode => 'op' in node && node.op === 'cache.shift' && node.out === previous
  const last = step.nodes.find(isShift)!.state!
  const remembers = graph.memory !== undefined
  const gone = new Set(remembers ? [input] : [input, last, previous])
  const subwords = vocabSize !== NGRAM_TOKENS
  const sizes = callNative((addon) => addon.ngram(subwords ? 'subwords' : 'bytes', slots))
  const vector = (kind: 'dynamic' | 'volatile', name: string): Declaration => ({
    ...{ kind, name },
    ...{ shape: [vocabSize], dtype: 'f32' },
  })
  const first = graph.blocks.find(({ name }) => name === 'first')
  const begin: Node = {
    op: 'cache.ngram.first',
    in: learned ? ['ngram.learned'] : [],
    state: 'ngram.mixture',
  }
  const blocks = graph.blocks.filter((block) => block !== first && block !== step && block !== predict)
  return {
    ...graph,
    declarations: [
      ...graph.declarations.filter(({ name }) => !gone.has(name)),
      ...(learned
        ? [{ kind: 'constant', name: 'ngram.learned', shape: [sizes.learned], layout: 'vector', ref: LEARNED } as const]
        : []),
      table('ngram.slots', 'i32', [slots, subwords ? SLOT_NUMBERS.subwords : SLOT_NUMBERS.bytes]),
      table('ngram.text', 'i32', [sizes.text]),
      ...(subwords ? [table('ngram.base', 'f32', [vocabSize])] : []),
      table('ngram.mixture', 'f32', [sizes.mixture]),
      table('ngram.last', 'f32', [vocabSize]),
      vector('dynamic', 'ngram.hidden'),
      ...['ngram.read', 'ngram.previous', 'ngram.logits'].map((name) => vector('volatile', name)),
    ],
    blocks: [
      ...blocks,
      { name: 'first', inputs: [], nodes: [begin, ...(first?.nodes ?? [{ return: {} }])] },
      {
        ...step,
        nodes: [
          ...step.nodes.filter((node) => (remembers || !isShift(node)) && !('return' in node)),
          ...renamed(predict.nodes, input, hidden).filter((node) => !('return' in node)),
          {
            op: 'cache.ngram',
            in: [token, 'ngram.slots', 'ngram.text', logits, ...(subwords ? ['ngram.base'] : [])],
            out: 'ngram.read',
            state: 'ngram.mixture',
            learn,
          },
          { op: 'cache.shift', in: ['ngram.read'], out: 'ngram.previous', state: 'ngram.last' },
          { return: { hidden: 'ngram.read', previous: 'ngram.previous', ...(remembers && { inner: hidden }) } },
        ],
      },
      {
        ...predict,
        inputs: ['ngram.hidden'],
        nodes: [
          { op: 'scale', in: ['ngram.hidden'], out: 'ngram.logits', factor: 1 },
          { return: { logits: 'ngram.logits' } },
        ],
      },
    ],
  }
}
