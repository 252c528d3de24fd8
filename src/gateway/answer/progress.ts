/** How far a prompt was read, for streams that ask (`return_progress`, as llama.cpp's server has it). */
import type { Start } from '../../models/chat/thoughts.ts'
import type { ServerEvent } from '../sse.ts'
import type { Shape } from './job.ts'

/** What is known of a prompt that is in the log. */
export interface Prompted {
  /** See `Prompt`. */
  readonly tokens: number | null
  /** Where the session stood before it. */
  readonly pulse: number
  readonly cached: number
  readonly start: Start
}

/**
 * An event each time that more of the prompt was read, until all of it was or the answer begins. `asked` resolves when
 * the request is in the log, `begun` settles when its first piece is there, and `moved` resolves with the pulse of its
 * session once that is another one. `length`: tokens of the prompt, where `Prompted` does not know them.
 */
export async function* promptProgress(
  asked: Promise<{ readonly shape: Shape; readonly prompted: Prompted }>,
  begun: Promise<unknown>,
  moved: (at: number, signal: AbortSignal) => Promise<number | null>,
  length: number | null,
): AsyncGenerator<ServerEvent> {
  const over = new AbortController()
  const answered = begun.then(
    () => null,
    () => null,
  )
  try {
    const known = await Promise.race([answered, asked])
    if (known === null) return
    const { shape, prompted } = known
    const { pulse, cached } = prompted
    const total = prompted.tokens ?? length
    const began = performance.now()
    for (let at: number | null = pulse; ; ) {
      at = await Promise.race([answered, moved(at, over.signal)])
      if (at === null) return
      const processed = Math.min(at - pulse, total ?? Number.POSITIVE_INFINITY)
      const time_ms = Math.round(performance.now() - began)
      yield* shape.progress?.({ total, cache: cached, processed, time_ms }) ?? []
      if (processed === total) return
    }
  } finally {
    over.abort()
  }
}
