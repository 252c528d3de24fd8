/** A graph without weights: whether it can run, and how the engine would lay out its memory. */

import type { BlockPlan } from './executor-types.ts'
import type { Graph } from './graph.ts'
import { callNative } from './native.ts'

/** Throws INVALID, naming node and variable, when a graph cannot run. `graph` may also be its JSON text. */
export const planGraph = (graph: Graph | string): readonly BlockPlan[] =>
  callNative((addon) => addon.plan(typeof graph === 'string' ? graph : JSON.stringify(graph)))

/** As `planGraph`, where only the check is wanted and not the plan. */
export const checkGraph = (graph: Graph | string): void => {
  planGraph(graph)
}
