/** Sessions and workers as rows of the console. */
import type { Head } from '../../state/head.ts'
import type { SessionView } from '../sessions-view.ts'
import type { Seen } from './boards.ts'
import type { Trail } from './trail.ts'
import type { SessionRow, WorkerRow } from './types.ts'

export const rowOf = (view: SessionView, { conductor, settings }: Head, at: number, trail: Trail): SessionRow => ({
  id: view.session,
  partition: view.partition,
  status: view.status,
  ...(view.reason !== undefined && { reason: view.reason }),
  ...(view.from !== undefined && { from: view.from.session }),
  phase: conductor.phase,
  pulse: view.pulse,
  origin: view.origin,
  tokens: view.tokens,
  generated: view.generated,
  bits: view.bitsPerToken,
  offset: view.offset,
  complete: view.complete,
  generating: view.generating,
  chain: view.chain.slice(0, 8),
  snapshot: view.snapshot?.pulse ?? null,
  archived: view.archived,
  settings,
  at,
  trail: trail.stretches.map(({ bits }) => bits),
})

export const workerRow = ({ url, reachable, view }: Seen): WorkerRow => ({
  url,
  reachable,
  instance: view?.instance ?? null,
  ready: reachable && view?.ready === true,
  device: view?.device ?? null,
  began: view?.began ?? null,
  partitions: view?.partitions.length ?? 0,
  residentBytes: view?.contexts?.residentBytes ?? 0,
  resident: view?.contexts?.resident ?? 0,
  spilled: view?.contexts?.spilled ?? 0,
  spillBytes: view?.contexts?.spillBytes ?? 0,
  blocks: view?.blocks ?? null,
  experts: view?.experts ?? null,
  engineSteps: view?.engine.steps ?? 0,
  engineTokens: view?.engine.tokens ?? 0,
  speed: view?.speed ?? 0,
})
