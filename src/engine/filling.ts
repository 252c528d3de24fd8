/** Contexts from states that come in parts: each block goes at once to where it stays. */
import type { StateLayout, StateSource } from '../memory.ts'
import { awaitNative, callNative, type EngineHandle, type FillingHandle } from './native.ts'
import type { ContextHead } from './types.ts'

export const isSource = (state: Uint8Array | StateSource | null): state is StateSource =>
  typeof state === 'object' && state !== null && 'hot' in state

/** Hands the filled context to `take`. Rejects as `Context.load`; then nothing is left of it. */
export const fillFrom = async <T>(
  engine: EngineHandle,
  { first, growth }: StateLayout,
  { hot, blocks, fill }: StateSource,
  { pulse, origin, chain }: ContextHead,
  take: (filling: FillingHandle) => T,
): Promise<T> => {
  const tables = growth.map((each) => each.tables.map((table) => first.findIndex(({ name }) => name === table.name)))
  const filling = await awaitNative((addon) => addon.fill(engine, hot, tables, blocks, pulse, origin, String(chain)))
  try {
    await fill({
      bytes: ({ g, block }, bytes) => awaitNative((addon) => addon.placeBlock(filling, g, block, bytes)),
      files: (files) =>
        awaitNative((addon) =>
          addon.placeFiles(
            filling,
            files[0]?.g ?? 0,
            files.map(({ block }) => block),
            files.map(({ path }) => path),
            files.map(({ hash }) => hash),
          ),
        ),
    })
    return take(filling)
  } finally {
    callNative((addon) => addon.dropFilling(filling))
  }
}
