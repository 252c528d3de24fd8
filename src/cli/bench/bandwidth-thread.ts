/** Reads its part of memory once for every message, as fast as the C library compares two stretches of it. */
import { parentPort, workerData } from 'node:worker_threads'

const { bytes } = workerData as { bytes: number }
// Written to: memory that was never written is one page of zeros, and reading that is reading the cache.
const memory = Buffer.alloc(bytes, 1)
const [left, right] = [memory.subarray(0, bytes / 2), memory.subarray(bytes / 2)]

parentPort!.on('message', (gate: Int32Array) => {
  // All threads begin together: the last that arrives wakes the others.
  if (Atomics.sub(gate, 0, 1) === 1) Atomics.notify(gate, 0)
  for (let left = Atomics.load(gate, 0); left > 0; left = Atomics.load(gate, 0)) Atomics.wait(gate, 0, left)
  const started = performance.timeOrigin + performance.now()
  const order = left.compare(right)
  parentPort!.postMessage({ started, ended: performance.timeOrigin + performance.now(), order })
})
parentPort!.postMessage('ready')
