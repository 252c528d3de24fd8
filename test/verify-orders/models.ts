/** The models of the orders: a small one for each kind of state, opened once for a test file, and the shipped ones. */
import { fileURLToPath } from 'node:url'
import { type ModelPackage, openPackage } from '../../src/models/open.ts'
import { temporaryFolder } from '../engine/packages.ts'
import { FAMILIES, type OpenedFamily, openFamily } from '../families.ts'

/** What only some models do; others answer these events with dead letters, of which a few are enough. */
export interface Abilities {
  readonly remembers?: true
  readonly adapts?: true
}

/** Tokens of a text or request, at most: models differ by a factor of a hundred in what a token costs. */
interface Kind extends Abilities {
  readonly tokens: number
}

export const MODELS: Readonly<Record<string, Kind>> = {
  memory: { tokens: 120, remembers: true },
  perspective: { tokens: 40, adapts: true },
  titans: { tokens: 60 },
  'gpt2-refuse': { tokens: 60 },
  'gpt2-window': { tokens: 300 },
  qwen35: { tokens: 300 },
  rwkv7: { tokens: 40 },
  recall: { tokens: 60, remembers: true },
}

/** Their memory lies in blocks that are blobs, their states are small: most orders take one of these. */
export const OFTEN = ['memory', 'memory', 'perspective', 'gpt2-refuse', 'gpt2-window', 'qwen35', 'titans'] as const

export interface Opened {
  /** Flags of `continuo run`. */
  readonly flags: readonly string[]
  /** Memory that about two contexts take. */
  readonly residentBytes: number
  readonly opened: ModelPackage
}

type Named = Pick<OpenedFamily, 'dir' | 'flags' | 'overflow'> & Pick<Opened, 'residentBytes'>

/** Of the shipped model with an external memory: about two contexts. */
const RECALL_BYTES = 4_000_000

const familyAt = async (key: string): Promise<Named> => {
  const known = FAMILIES.find((family) => family.key === key)
  if (known !== undefined)
    return { ...(await openFamily(known.key, temporaryFolder())), residentBytes: known.residentBytes }
  const dir = fileURLToPath(new URL(`../../models/${key}`, import.meta.url))
  const flags = ['--model', dir, '--max-resident-bytes', String(RECALL_BYTES)]
  return { dir, flags, overflow: 'refuse', residentBytes: RECALL_BYTES }
}

/** Opens each model at its first use; `close` gives all of them back. */
export const createModels = () => {
  const all = new Map<string, Promise<Opened>>()
  const open = async (key: string): Promise<Opened> => {
    const { dir, flags, overflow, residentBytes } = await familyAt(key)
    const opened = await openPackage(dir, { threads: 1, device: 'cpu', overflow, keepPacked: false })
    return { flags, residentBytes, opened }
  }
  return {
    get(key: string): Promise<Opened> {
      const known = all.get(key) ?? open(key)
      all.set(key, known)
      return known
    },
    async close(): Promise<void> {
      for (const { opened } of await Promise.all(all.values())) opened.model.close()
      all.clear()
    },
  }
}
export type Models = ReturnType<typeof createModels>
