/**
 * The live line: rewritten in place on a terminal, a plain line every few seconds elsewhere. Other output goes through
 * `above`, so that it never lands in the middle of the line.
 */
export interface Progress {
  above(write: () => void): void
  /** Leaves the last line standing. */
  stop(): void
}

const LIVE_INTERVAL = 200 // ms
const PLAIN_INTERVAL = 5000
const CLEAR = '\r\u001b[2K'

/** `line` gives the present state; null while there is nothing to tell. */
export const startProgress = (stream: NodeJS.WriteStream, line: () => string | null): Progress => {
  const live = stream.isTTY === true
  let shown = ''
  const draw = (): void => {
    const text = line()
    if (text === null) return
    if (live) {
      shown = text.slice(0, Math.max(20, (stream.columns || 80) - 1))
      stream.write(`${CLEAR}${shown}`)
    } else if (text !== shown) {
      shown = text
      stream.write(`${text}\n`)
    }
  }
  let stopped = false
  const timer = setInterval(draw, live ? LIVE_INTERVAL : PLAIN_INTERVAL)
  timer.unref()
  return {
    above(write) {
      if (!live || shown === '') return write()
      stream.write(CLEAR)
      write()
      stream.write(shown)
    },
    stop() {
      if (stopped) return
      stopped = true
      clearInterval(timer)
      draw()
      if (live && shown !== '') stream.write('\n')
    },
  }
}
