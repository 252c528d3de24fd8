/** Contexts from states that come in parts: each block goes at once to where it stays. */
import type { BlockFile, BlockPlace, BlockSink, StateLayout, StateSource } from '../memory.ts'
import { inParallel } from '../parallel.ts'
import type { ContextHead } from './context.ts'
import { awaitNative, type ContextHandle, callNative, type EngineHandle, type FillingHandle } from './native.ts'

export const isSource = (state: Uint8Array | StateSource | null): state is StateSource =>
  typeof state === 'object' && state !== null && 'hot' in state

/** Blocks of one job: so many are hashed at a time. */
const TOGETHER = 4
/** Jobs at a time; blocks that come meanwhile are gathered. */
const JOBS = 2

/**
 * Files of one call, which a thread reads, hashes and checks: a few milliseconds, so that other work finds a thread.
 */
const FILES = 16
/** Calls at a time. */
const CALLS = 3

/** The same files in the same order; a call has files of one growth. */
const inCalls = (files: readonly BlockFile[]): readonly (readonly BlockFile[])[] => {
  const calls: BlockFile[][] = []
  for (const file of files) {
    const last = calls.at(-1)
    if (last !== undefined && last[0]!.g === file.g && last.length < FILES) last.push(file)
    else calls.push([file])
  }
  return calls
}

interface Waiting extends BlockPlace {
  readonly bytes: Uint8Array
  readonly resolve: (hash: string) => void
  readonly reject: (error: unknown) => void
}

/** Puts blocks that come at about the same time in one job. */
const gathered = (filling: FillingHandle): BlockSink['bytes'] => {
  const waiting: Waiting[] = []
  let jobs = 0
  const next = async (): Promise<void> => {
    if (jobs === JOBS) return
    jobs += 1
    while (waiting.length > 0) {
      const group = waiting.splice(0, TOGETHER)
      const [growths, blocks, arrays] = [
        group.map(({ g }) => g),
        group.map(({ block }) => block),
        group.map(({ bytes }) => bytes),
      ]
      try {
        const hashes = await awaitNative((addon) => addon.placeBlocks(filling, growths, blocks, arrays))
        for (const [at, { resolve }] of group.entries()) resolve(hashes[at]!)
      } catch (error) {
        for (const { reject } of group) reject(error)
      }
    }
    jobs -= 1
  }
  return ({ g, block }, bytes) =>
    new Promise((resolve, reject) => {
      waiting.push({ g, block, bytes, resolve, reject })
      // Not at once: others may come in this turn.
      void Promise.resolve().then(next)
    })
}

/**
 * Hands the filled context to `take`. `context`: the one that keeps blocks. Rejects as `Context.load`; then nothing is
 * left of it.
 */
export const fillFrom = async <T>(
  engine: EngineHandle,
  { first, growth }: StateLayout,
  { hot, blocks, kept = blocks.map(() => 0), held, resting, fill }: StateSource,
  { pulse, origin, chain }: ContextHead,
  context: ContextHandle | null,
  take: (filling: FillingHandle) => T,
): Promise<T> => {
  // Rings come whole, with the hot part.
  const tables = growth.map(({ places, tables: own }) =>
    places === undefined ? own.map((table) => first.findIndex(({ name }) => name === table.name)) : [],
  )
  const keeper = kept.some((count, g) => count > 0 && (held === undefined || growth[g]!.sleeps !== true))
    ? context
    : null
  const filling = await awaitNative((addon) =>
    addon.fill(engine, hot, tables, blocks, kept, keeper, held ?? null, pulse, origin, String(chain)),
  )
  try {
    const rests = resting !== undefined
    if (rests) {
      const g = growth.findIndex(({ sleeps }) => sleeps)
      const asleep = resting.map((_, block) => block)
      callNative((addon) =>
        addon.restBlocks(
          filling,
          asleep.map(() => g),
          asleep,
        ),
      )
    }
    await fill({
      rests,
      bytes: gathered(filling),
      async files(files) {
        const found = await inParallel(inCalls(files), CALLS, (call) =>
          awaitNative((addon) =>
            addon.placeFiles(
              filling,
              call[0]!.g,
              call.map(({ block }) => block),
              call.map(({ path }) => path),
              call.map(({ hash }) => hash),
            ),
          ),
        )
        return found.flat()
      },
    })
    return take(filling)
  } finally {
    callNative((addon) => addon.dropFilling(filling))
  }
}
