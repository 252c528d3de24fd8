/**
 * How much of the input is read, for the live line: records that are finished, of those that were there since the
 * worker last had nothing to do.
 */
import type { TopicNames } from '../../topics/index.ts'
import type { Worker } from '../operators/worker/worker.ts'
import type { EventLog } from '../streams/log.ts'

const LOOK = 1000 // ms

/** `done` and `left`: records; `seconds`: in which those were done. */
export const remainingText = (done: number, left: number, seconds: number): string | null => {
  if (left === 0) return null
  const share = `${Math.floor((100 * done) / (done + left))}% of ${(done + left).toLocaleString('en-US')} records`
  if (done === 0) return share
  const wait = (seconds * left) / done
  if (wait < 90) return `${share}, ${Math.ceil(wait)} s left`
  return wait < 5400 ? `${share}, ${Math.round(wait / 60)} min left` : `${share}, ${Math.round(wait / 3600)} h left`
}

export interface Remaining {
  /** null: nothing is left to read, or it is not known yet. */
  text(): string | null
  stop(): void
}

type Tasks = Pick<Worker, 'tasks'>['tasks']

export const startRemaining = (log: EventLog, names: TopicNames, tasks: () => Tasks): Remaining => {
  const firsts = new Map<number, number>()
  let began = performance.now()
  let text: string | null = null
  let looking = false
  const look = async (): Promise<void> => {
    let [done, left] = [0, 0]
    for (const [partition, { offset }] of tasks()) {
      if (offset < 0) continue
      const first = firsts.get(partition) ?? offset
      firsts.set(partition, first)
      done += offset - first
      left += Math.max(0, (await log.bounds(names.chunks, partition)).end - offset)
    }
    text = remainingText(done, left, (performance.now() - began) / 1000)
    if (left > 0) return
    firsts.clear()
    began = performance.now()
  }
  const timer = setInterval(() => {
    if (looking) return
    looking = true
    // A log that does not answer is the worker's to speak of; the line says nothing meanwhile.
    look()
      .catch(() => {
        text = null
      })
      .finally(() => {
        looking = false
      })
  }, LOOK).unref()
  return { text: () => text, stop: () => clearInterval(timer) }
}
