/**
 * An executor: the bridge to the host for any graph. It steps one block at a time over one context: `insert` gives the
 * block's dynamics, `step` runs it, `fetch` reads what it left. Clock and chain belong to `Model.process` and stand
 * still here.
 *
 *   insert … ─▶ step ─▶ fetch, trace …        dynamics are cleared by the step, persistents go on
 */
import { ContinuoError } from '../errors.ts'
import type { LayoutEntry } from '../memory.ts'
import { type ConstantCalls, fetchConstant } from './constants.ts'
import type { EngineContext } from './context.ts'
import type { Executor, Numbers, TraceEntry } from './executor-types.ts'
import { type Dtype, type Graph, isBound } from './graph.ts'
import { storedDtypes } from './layout.ts'

/** The calls of the engine that an executor makes; `engine.ts` implements them. */
export interface ExecutorCalls extends ConstantCalls {
  readonly graph: Graph
  readonly context: EngineContext
  readonly traces: boolean
  step(block: number, rows: number, inputs: readonly Uint8Array[]): Promise<void>
  fetch(block: number, rows: number, declaration: number): Uint8Array<ArrayBuffer> | null
  trace(): readonly TraceEntry[]
  layout(state: Uint8Array): readonly LayoutEntry[]
}

const misuse = (message: string): never => {
  throw new ContinuoError('MISUSE', message)
}
const invalid = (message: string): never => {
  throw new ContinuoError('INVALID', message)
}

const elementsOf = (shape: readonly number[]): number => shape.reduce((product, extent) => product * extent, 1)

export const executorOf = (calls: ExecutorCalls): Executor => {
  const { graph, context } = calls
  const inserted = new Map<string, { readonly rows: number; readonly bytes: Uint8Array }>()
  let last: { readonly block: number; readonly rows: number } | undefined

  const declared = (name: string) =>
    graph.declarations.find((declaration) => declaration.name === name) ??
    misuse(`The graph declares no "${name}". Names are those of its declarations.`)

  const numbersOf = (name: string, dtype: Dtype, rows: Numbers | readonly number[]): Numbers => {
    const Kind = storedDtypes[dtype].array
    if (Array.isArray(rows)) {
      const whole = dtype === 'i32' || dtype === 'i8' || dtype === 'u8' || dtype === 'bool'
      const bad = rows.findIndex((value) => typeof value !== 'number' || (whole && !Number.isInteger(value)))
      if (bad >= 0)
        invalid(`Element ${bad} of "${name}" is ${rows[bad]}, expected ${whole ? 'a whole number' : 'a number'}.`)
      if (dtype === 'f16' || dtype === 'bf16' || dtype === 'f8')
        invalid(`"${name}" is ${dtype}: give its bits as a ${Kind.name}.`)
      return Kind.from(rows as readonly number[])
    }
    if (!(rows instanceof Kind)) invalid(`"${name}" is ${dtype}, expected a ${Kind.name} or an array of numbers.`)
    return (rows as Numbers).slice()
  }

  return {
    context,
    insert(name, rows) {
      const declaration = declared(name)
      if (declaration.kind !== 'dynamic') {
        const why = {
          constant: 'is constant: nobody writes it',
          volatile: 'is volatile: only the graph writes it',
          persistent: 'is persistent: only the graph writes it; use context.restore to replace a whole state',
        }[declaration.kind]
        misuse(`"${name}" ${why}. What can be inserted are the dynamics.`)
      } else {
        const numbers = numbersOf(name, declaration.dtype, rows)
        const each = elementsOf(declaration.shape)
        if (numbers.length === 0 || numbers.length % each !== 0) {
          invalid(`"${name}" was given ${numbers.length} elements, expected a multiple of ${each}: one or more rows.`)
        }
        inserted.set(name, {
          rows: numbers.length / each,
          bytes: new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength),
        })
      }
    },

    async step(name = graph.blocks[0]!.name) {
      const at = graph.blocks.findIndex((block) => block.name === name)
      const block = graph.blocks[at] ?? misuse(`The graph has no block "${name}".`)
      const inputs = block.inputs.map(
        (input) => inserted.get(input) ?? invalid(`Block "${name}" needs "${input}"; insert it before the step.`),
      )
      const rows = inputs[0]?.rows ?? 1
      const odd = inputs.findIndex((input) => input.rows !== rows)
      if (odd >= 0) {
        invalid(
          `"${block.inputs[odd]}" was given ${inputs[odd]!.rows} rows and "${block.inputs[0]}" ${rows}, expected as many.`,
        )
      }
      last = undefined
      await calls.step(
        at,
        rows,
        inputs.map(({ bytes }) => bytes),
      )
      for (const input of block.inputs) inserted.delete(input)
      last = { block: at, rows }
    },

    fetch(name, options = {}) {
      const [, plain, member] = /^([^(]*)\((\d+)\)$/.exec(name) ?? [undefined, name, undefined]
      const declaration = declared(plain!)
      if (isBound(declaration))
        return fetchConstant(calls, declaration, member === undefined ? undefined : Number(member), options)
      if (member !== undefined || options.widened)
        misuse(
          `"${name}" is ${declaration.kind}: only constants and volatile tables have members to fetch and are widened.`,
        )
      if (declaration.kind === 'persistent') {
        if ('counter' in declaration && declaration.clock) {
          return { dtype: storedDtypes.i64.name, shape: [], data: BigInt64Array.of(context.pulse) }
        }
        const state = context.serialize()
        const { dtype, shape, offset, bytes } = calls.layout(state).find((entry) => entry.name === name)!
        const copy = new Uint8Array(bytes)
        copy.set(state.subarray(offset, offset + bytes))
        const Kind = storedDtypes['counter' in declaration ? 'i64' : declaration.dtype].array
        return { dtype, shape, data: new Kind(copy.buffer) }
      }
      if (declaration.kind !== 'volatile') {
        return misuse(
          `"${name}" is ${declaration.kind}${declaration.kind === 'dynamic' ? ' and was cleared by the step' : ''}. What can be fetched are constants, persistents and volatiles.`,
        )
      }
      if (!last) return misuse(`There is nothing to fetch before the first step, or after one that failed.`)
      const at = graph.declarations.indexOf(declaration)
      const bytes = calls.fetch(last.block, last.rows, at)
      if (!bytes) {
        return misuse(
          `"${name}" was planned into memory that later nodes of the step used. Return it from the block, or create the executor with memoryReuse: false.`,
        )
      }
      const { name: dtype, array: Kind } = storedDtypes[declaration.dtype]
      return {
        dtype,
        shape: [last.rows, ...declaration.shape],
        data: new Kind(bytes.buffer, bytes.byteOffset, bytes.byteLength / Kind.BYTES_PER_ELEMENT),
      }
    },

    trace() {
      if (!calls.traces) misuse('The executor does not trace. Create it with trace: true.')
      return calls.trace()
    },
  }
}
