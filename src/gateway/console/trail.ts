/** How well a session was predicted lately: bits per token over short stretches, from the sums in its heads. */
import type { Head } from '../../state/head.ts'

/** Pulses that a trail goes back, and of one stretch at least. */
const REACH = 2000
const STRETCH = 64

interface Stretch {
  /** Pulse at its end. */
  readonly pulse: number
  /** Thousandths of bits per token. */
  readonly bits: number
}

export interface Trail {
  /** The sums at the end of the last stretch. */
  pulse: number
  nats: number
  predictions: number
  readonly stretches: Stretch[]
}

const sumsOf = ({ conductor, totals }: Head) => ({
  pulse: conductor.globalStep,
  nats: totals.nats,
  predictions: totals.predictions,
})

/** A new trail begins with the sums of the first head that is seen, unless that is the session's first. */
export const beginTrail = (head: Head): Trail => {
  const first = head.from === undefined && head.conductor.globalStep === head.totals.tokens + head.totals.generated
  const trail: Trail = { ...(first ? { pulse: 0, nats: 0, predictions: 0 } : sumsOf(head)), stretches: [] }
  extendTrail(trail, head)
  return trail
}

export const extendTrail = (trail: Trail, head: Head): void => {
  const now = sumsOf(head)
  const predictions = now.predictions - trail.predictions
  if (now.pulse - trail.pulse < STRETCH || predictions < 0) return
  if (predictions > 0) {
    const bits = (now.nats - trail.nats) / predictions / Math.LN2
    if (Number.isFinite(bits)) trail.stretches.push({ pulse: now.pulse, bits: Math.round(bits * 1000) })
  }
  Object.assign(trail, now)
  while (trail.stretches.length > 0 && trail.stretches[0]!.pulse < now.pulse - REACH) trail.stretches.shift()
}
