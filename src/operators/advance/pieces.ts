/** An item of work in pieces: where it is cut is not visible in what it computes. */
import type { Generate, WorkResult } from '../../engine/work.ts'

/** What draws of the parts found, put together. */
const joinedNotes = (results: readonly WorkResult[]): Pick<WorkResult, 'draws' | 'experts'> => {
  const draws = results.flatMap((each) => each.draws ?? [])
  if (draws.length === 0) return {}
  return { draws, experts: Int32Array.from(results.flatMap(({ experts = [] }) => [...experts])) }
}

/** The likeliest tokens of the parts, put together. */
const joinedTop = (results: readonly WorkResult[]): Pick<WorkResult, 'top' | 'topLogprobs'> => {
  const top = results.flatMap((each) => [...(each.top ?? [])])
  if (top.length === 0) return {}
  return { top: Int32Array.from(top), topLogprobs: joined(results.map(({ topLogprobs = NO_NUMBERS }) => topLogprobs)) }
}

const NO_NUMBERS = new Float32Array(0)

const joined = (parts: readonly Float32Array[]): Float32Array => {
  const out = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.length
  }
  return out
}

/** The result of an item, from those of its pieces in their order. */
export const joinedResults = (results: readonly WorkResult[]): WorkResult => {
  const events = results.flatMap((each) => each.events ?? [])
  return {
    ...results.at(-1)!,
    ...(events.length > 0 && { events }),
    ...joinedNotes(results),
    ...joinedTop(results),
    nats: joined(results.map(({ nats }) => nats)),
    generated: Int32Array.from(results.flatMap(({ generated }) => [...generated])),
    logprobs: joined(results.map(({ logprobs }) => logprobs)),
  }
}

const counted = (counts: ReadonlyMap<number, number>, more: readonly number[]): ReadonlyMap<number, number> => {
  const all = new Map(counts)
  for (const id of more) all.set(id, (all.get(id) ?? 0) + 1)
  return all
}

/** The next `count` tokens of a request of which `before` were generated. */
export const piece = (generate: Generate, before: readonly number[], count: number): Generate => {
  const { stop, penalties } = generate
  const more = generate.more === true || before.length + count < generate.count
  const rest = {
    ...generate,
    count,
    more,
    ...(penalties && { penalties: { ...penalties, counts: counted(penalties.counts, before) } }),
  }
  if (stop === undefined) return rest
  const tail = Buffer.concat([stop.tail, ...before.map((id) => stop.vocabulary.bytesOf(id))])
  return { ...rest, stop: { ...stop, tail } }
}
