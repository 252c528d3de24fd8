/**
 * What a model's matrices were multiplied with, as sums Σ x xᵀ (native/runtime/executor/moments.h), by the names of
 * their tensors.
 */
import { ContinuoError } from '../errors.ts'
import { type Graph, membersOf, tensorsOf } from './graph.ts'

type Member = readonly [declaration: number, member: number]

/** The members of constants whose matrices lie in the tensor. */
const holdersOf = (graph: Graph, tensor: string): readonly Member[] =>
  graph.declarations.flatMap((bound, declaration) => {
    if (bound.kind !== 'constant' || (bound.layout !== 'packed' && bound.layout !== 'stack')) return []
    const tensors = tensorsOf(graph, bound)
    const each = tensors.length / membersOf(graph, bound).length // of a member
    const members = tensors.flatMap((name, at) => (name === tensor ? [Math.floor(at / each)] : []))
    return [...new Set(members)].map((member): Member => [declaration, member])
  })

/** The sums of some tensors. */
export interface Observed {
  /** [declaration, member, …], for the engine. */
  readonly members: Uint32Array
  /** Of one of them, out of those of its members: a tensor may hold several matrices. */
  sum(tensor: string, read: (declaration: number, member: number) => Float32Array | null): Float32Array | null
}

export const observedIn = (graph: Graph, tensors: readonly string[]): Observed => {
  const holders = new Map(tensors.map((tensor) => [tensor, holdersOf(graph, tensor)]))
  return {
    members: Uint32Array.from([...holders.values()].flat(2)),
    sum(tensor, read) {
      const members = holders.get(tensor)
      if (members === undefined)
        throw new ContinuoError('MISUSE', `Nobody asked for the moments of "${tensor}" when the model was opened.`)
      let total: Float32Array | null = null
      for (const [declaration, member] of members) {
        const sum = read(declaration, member)
        if (total === null) total = sum
        else if (sum !== null) for (const [i, value] of sum.entries()) total[i]! += value
      }
      return total
    },
  }
}
