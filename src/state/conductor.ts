/**
 * The Conductor owns the pulse. `globalStep` counts the tokens fed to a session and never resets: it is the clock that
 * decides which memory levels fire. A reset begins a new context at the present pulse; the clock goes on.
 *
 * Observe, then advance: whoever looks at the state of pulse t looks before the token of pulse t is fed.
 */
import type { ConductorState } from '../../topics/state.ts'

export type { ConductorState } from '../../topics/state.ts'

export const begin = (): ConductorState => ({ globalStep: 0, phase: 'stream', origin: 0 })

export const advance = (conductor: ConductorState, tokens: number): ConductorState => ({
  ...conductor,
  globalStep: conductor.globalStep + tokens,
})

export const reset = (conductor: ConductorState): ConductorState => ({ ...conductor, origin: conductor.globalStep })
