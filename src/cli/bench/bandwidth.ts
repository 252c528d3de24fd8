/**
 * Bytes a second that so many threads read from memory. JavaScript's own loops do not saturate it; `Buffer.compare` is
 * the C library's memcmp, which reads in whole vectors and does nothing else.
 */
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import { beside } from '../../places.ts'

/** Of all threads together: like a model's weights, far beyond the last cache. */
const BYTES = 256 * 1024 * 1024
const PAGE = 4096

interface Pass {
  readonly started: number
  readonly ended: number
  readonly order: number
}

export interface Bandwidth {
  /** One pass over all the memory, in bytes a second. */
  measure(): Promise<number>
  close(): Promise<void>
}

export const startBandwidth = async (threads: number): Promise<Bandwidth> => {
  const bytes = Math.floor(BYTES / threads / (2 * PAGE)) * 2 * PAGE
  const url = beside(import.meta.url, 'bandwidth-thread')
  const workers = Array.from({ length: threads }, () => new Worker(url, { workerData: { bytes } }))
  await Promise.all(workers.map((worker) => once(worker, 'message')))
  return {
    async measure() {
      const gate = new Int32Array(new SharedArrayBuffer(4))
      gate[0] = threads
      const passes = workers.map(async (worker) => {
        const answer = once(worker, 'message')
        worker.postMessage(gate)
        return ((await answer) as [Pass])[0]
      })
      const all = await Promise.all(passes)
      if (all.some(({ order }) => order !== 0))
        throw new Error('Memory that was filled with one byte compares as unequal.')
      const started = Math.min(...all.map((pass) => pass.started))
      const ended = Math.max(...all.map((pass) => pass.ended))
      return (threads * bytes * 1000) / (ended - started)
    },
    async close() {
      await Promise.all(workers.map((worker) => worker.terminate()))
    },
  }
}
