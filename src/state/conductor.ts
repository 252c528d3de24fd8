/**
 * The Conductor owns the pulse. `globalStep` counts the tokens fed to a session and never resets: it is the clock that
 * decides which memory levels fire. A reset begins a new context at the present pulse; the clock goes on.
 *
 *   build ──▶ stream     until closed
 *         └─▶ test       a bounded stretch, with an assessment at its end
 *
 * The phase changes nothing of what a token does: in every phase the memory rewrites itself by the same loop.
 *
 * Observe, then advance: the state of pulse t is the one before the token of pulse t is fed.
 */
import type { ConductorState } from '../../topics/state.ts'

export type { ConductorState } from '../../topics/state.ts'

/** `build`, `test` or `stream`: what a session is for. What a token does is the same in each. */
export type Phase = ConductorState['phase']

export const begin = (phase: Phase = 'stream'): ConductorState => ({ globalStep: 0, phase, origin: 0 })

/**
 * The memory levels that fire with the token of this pulse, as indices into `periods` (pulses between two firings of a
 * level, whole numbers from 1): those with `globalStep % period === 0`. At pulse 0 all of them do.
 */
export const activeLevels = ({ globalStep }: ConductorState, periods: readonly number[]): readonly number[] =>
  periods.flatMap((period, level) => (globalStep % period === 0 ? [level] : []))

export const advance = (conductor: ConductorState, tokens: number): ConductorState => ({
  ...conductor,
  globalStep: conductor.globalStep + tokens,
})

export const reset = (conductor: ConductorState): ConductorState => ({ ...conductor, origin: conductor.globalStep })
