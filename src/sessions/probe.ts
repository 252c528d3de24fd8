/**
 * Probes: observers of a session's state. Observe, then advance: a probe at pulse t sees the state before the token of
 * pulse t is fed, and the token waits until the observer is done.
 */

import type { Context } from '../engine/context.ts'
import { storedDtypes } from '../engine/layout.ts'
import type { ModelInfo } from '../engine/types.ts'
import type { WorkItem, WorkResult } from '../engine/work.ts'
import { ContinuoError } from '../errors.ts'
import { joinedResults, piece } from '../operators/advance/pieces.ts'
import { activeLevels, type ConductorState, type Phase } from '../state/conductor.ts'

/** A persistent of the model as it stood; a copy, so it may be kept. */
export interface StateReading {
  /** As safetensors names it; floats narrower than f32 come as their bits. */
  readonly dtype: string
  /** Axes, outermost first. */
  readonly shape: readonly number[]
  /** Its numbers, a copy; floats narrower than f32 as their bits. */
  readonly data: Float32Array | Uint16Array | Uint8Array | Int8Array | Int32Array | BigInt64Array
}

/** What a probe sees: a session just before its state moves. */
export interface Probe {
  /** Its id. */
  readonly session: string
  /** Tokens fed before: the pulse of the token that comes next. */
  readonly pulse: number
  /** The phase that the session is in. */
  readonly phase: Phase
  /** The memory levels that fire with that token, as indices into `model.levels`. */
  readonly activeLevels: readonly number[]
  /**
   * Names are those of `model.layout`. Rejects with INVALID for another one, with MISUSE after the observer is done.
   */
  read(name: string): Promise<StateReading>
}

/** An error that it throws is the call's: the token is not fed. */
export type OnProbe = (probe: Probe) => void | Promise<void>

const readingOf = (model: Pick<ModelInfo, 'layout'>, state: Uint8Array, name: string): StateReading => {
  const entries = model.layout.tensors(state)
  const entry = entries.find((each) => each.name === name)
  if (entry === undefined) {
    throw new ContinuoError(
      'INVALID',
      `The model has no persistent "${name}". Expected one of: ${entries.map((each) => each.name).join(', ')}.`,
    )
  }
  const { dtype, shape, offset, bytes } = entry
  const { array: Kind } = Object.values(storedDtypes).find((each) => each.name === dtype)!
  // A slice has a buffer of its own, so the numbers are aligned.
  return { dtype, shape, data: new Kind(state.slice(offset, offset + bytes).buffer) }
}

/** Shows the observer a session that stands still. */
export const observe = async (
  onProbe: OnProbe,
  model: Pick<ModelInfo, 'layout' | 'levels'>,
  session: string,
  conductor: ConductorState,
  context: Context,
): Promise<void> => {
  let copy: Promise<Uint8Array> | null = null
  let over = false
  try {
    await onProbe({
      session,
      pulse: conductor.globalStep,
      phase: conductor.phase,
      activeLevels: activeLevels(conductor, model.levels),
      async read(name) {
        if (over) {
          throw new ContinuoError(
            'MISUSE',
            `The probe of session "${session}" at pulse ${conductor.globalStep} is over and the session moved on. Read before the observer returns.`,
          )
        }
        copy ??= context.state()
        return readingOf(model, await copy, name)
      },
    })
  } finally {
    over = true
    // An observer may be done without its copy.
    await Promise.allSettled([copy])
  }
}

/**
 * An engine that stops at every pulse divisible by `every` to let `look` see the context. Where calls are cut is not
 * visible in what they compute, so a probed session has the bits of one without probes.
 */
export const stopping =
  (
    submit: (item: WorkItem) => Promise<WorkResult>,
    every: number,
    look: (context: Context) => Promise<void>,
  ): ((item: WorkItem) => Promise<WorkResult>) =>
  async (item) => {
    const { context, tokens, generate, request, perspectives } = item
    // It feeds no token.
    if (request !== undefined) return submit(item)
    const results: WorkResult[] = []
    const generated: number[] = []
    let at = 0
    for (;;) {
      const past = Number(context.pulse % BigInt(every))
      const left = generate === undefined ? 0 : generate.count - generated.length
      if (past === 0 && (at < tokens.length || left > 0)) await look(context)
      const slice = tokens.subarray(at, at + every - past)
      const count = slice.length > 0 ? 0 : Math.min(left, every - past)
      const result = await submit({
        context,
        tokens: slice,
        nats: item.nats,
        ...(perspectives && { perspectives }),
        ...(generate !== undefined && count > 0 && { generate: piece(generate, generated, count) }),
      })
      results.push(result)
      generated.push(...result.generated)
      at += slice.length
      const goesOn = at < tokens.length || (generate !== undefined && generated.length < generate.count)
      // A generation may end before its count.
      if (goesOn && (slice.length > 0 || result.ended === null)) continue
      return joinedResults(results)
    }
  }
