/** A graph without weights: whether it can run, and how the engine would lay out its memory. */
import type { Graph } from './graph.ts'
import { callNative } from './native.ts'
import type { BlockPlan } from './types.ts'

/** Throws INVALID, naming node and variable, when a graph cannot run. `graph` may also be its JSON text. */
export const planGraph = (graph: Graph | string): readonly BlockPlan[] =>
  callNative((addon) => addon.plan(typeof graph === 'string' ? graph : JSON.stringify(graph)))

/** As `planGraph`, for those who only want to know whether the graph is good. */
export const checkGraph = (graph: Graph | string): void => {
  planGraph(graph)
}
