/**
 * Lines of standard input as a client of MCP sends them: one that is too long is left out, where the SDK would end the
 * connection.
 */
import { Transform, type TransformCallback } from 'node:stream'

/** Bytes of a message: an event of the log takes less. */
export const MOST_MESSAGE = 4 << 20
const LINE_END = 0x0a

/**
 * Passes lines of at most `most` bytes; `leftOut` is called once for each other one. What is held is bounded by `most`.
 */
export const boundedLines = (leftOut: () => void, most = MOST_MESSAGE): Transform => {
  let held: Buffer[] = []
  let bytes = 0
  let skipping = false
  const take = (piece: Buffer): void => {
    if (skipping) return
    held.push(piece)
    bytes += piece.length
    if (bytes <= most) return
    skipping = true
    held = []
    leftOut()
  }
  return new Transform({
    transform(chunk: Buffer, _encoding, done: TransformCallback) {
      let from = 0
      for (let at = chunk.indexOf(LINE_END); at >= 0; at = chunk.indexOf(LINE_END, from)) {
        take(chunk.subarray(from, at + 1))
        if (!skipping) this.push(Buffer.concat(held))
        held = []
        bytes = 0
        skipping = false
        from = at + 1
      }
      take(chunk.subarray(from))
      done()
    },
  })
}
