/** The experts of a model that lie in a store (docs/experts.md): how they are opened, watched and left. */
import { availableMemory } from 'node:process'
import { ContinuoError, messageOf } from '../errors.ts'
import { callNative, type EngineHandle } from './native.ts'
import type { ExpertOptions, OpenModelOptions } from './options.ts'
import type { ExpertPort, ExpertStatistics } from './types.ts'

/** How often the table of frequencies is written while a model serves, ms. */
const SAVE_INTERVAL = 600_000
/** How often sentences of the store are looked for, ms. */
const NOTES_INTERVAL = 1000

const invalid = (message: string): never => {
  throw new ContinuoError('INVALID', message)
}

/** A store. */
export interface ExpertStore {
  readonly folder: string
  readonly layers: readonly number[]
  readonly digest: string
}

/** The request by which the native engine opens the store. Throws INVALID for options that cannot be. */
export const expertsOf = (
  store: ExpertStore,
  {
    bytes = Math.floor(availableMemory() / 2),
    deviceBytes,
    io = 'direct',
    backend = 'automatic',
    depth = 16,
    policy = 'score',
    deltas = true,
    lookAhead = true,
    frequencies = true,
  }: ExpertOptions = {},
): Required<Omit<ExpertOptions, 'from' | 'deviceBytes'>> & Pick<ExpertOptions, 'deviceBytes'> & ExpertStore => {
  if (!Number.isSafeInteger(bytes) || bytes < 1) invalid(`experts.bytes is ${bytes}, expected a whole number of bytes.`)
  if (deviceBytes !== undefined && (!Number.isSafeInteger(deviceBytes) || deviceBytes < 0))
    invalid(`experts.deviceBytes is ${deviceBytes}, expected a whole number of bytes, at least 0.`)
  if (!Number.isInteger(depth) || depth < 8 || depth > 32) invalid(`experts.depth is ${depth}, expected 8 to 32.`)
  const bound = deviceBytes === undefined ? {} : { deviceBytes }
  return { ...store, ...bound, bytes, io, backend, depth, policy, deltas, lookAhead, frequencies }
}

/** The port to an opened store, and its end. Reading the most frequent experts has begun when this returns. */
export const expertPort = (
  engine: EngineHandle,
  { folder }: ExpertStore,
  {
    experts: { frequencies = true } = {},
    warn = (message) => process.emitWarning(message),
  }: Pick<OpenModelOptions, 'experts' | 'warn'>,
): { readonly port: ExpertPort; close(): void } => {
  let last: ExpertStatistics | null = null
  const look = (): ExpertStatistics => last ?? callNative((addon) => addon.expertStatistics(engine))!
  const tell = (): void => {
    for (const note of callNative((addon) => addon.expertNotes(engine))) warn(note)
  }
  const save = (): void => callNative((addon) => addon.saveFrequencies(engine))
  const saveQuietly = (): void => {
    try {
      if (frequencies && look().uses > 0) save()
    } catch (error) {
      warn(messageOf(error))
    }
  }
  if (frequencies) callNative((addon) => addon.warmExperts(engine))
  tell()
  const saving = setInterval(saveQuietly, SAVE_INTERVAL).unref()
  const telling = setInterval(tell, NOTES_INTERVAL).unref()
  return {
    port: {
      folder,
      get statistics() {
        return look()
      },
      forget() {
        if (last === null) callNative((addon) => addon.forgetExperts(engine))
      },
      saveFrequencies: save,
    },
    close() {
      clearInterval(saving)
      clearInterval(telling)
      saveQuietly()
      tell()
      last = look()
    },
  }
}
