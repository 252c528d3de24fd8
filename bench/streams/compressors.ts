/** Compressors as references: a program that packs a text in b bits needed b bits to predict it. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ContinuoError } from '../../src/errors.ts'

export interface Compressor {
  readonly name: string
  readonly program: string
  /** The package of Debian that has the program. */
  readonly install: string
  /** Arguments that pack the file `x` into `x.<ending>`. */
  readonly args: readonly string[]
  readonly ending: string
  /** Bytes of its file that hold no data; null: as many as the program makes of an empty file. */
  readonly header: number | null
}

/**
 * The measure of all others. 7z 26.02 writes 106 bytes around the data of one file `x`; 118 is what the goals for
 * readers were measured with, at most 0.5 % in PPMd's favour.
 */
export const PPMD: Compressor = {
  ...{ name: 'PPMd', program: '7z', install: 'p7zip-full', ending: '7z', header: 118 },
  args: ['a', '-m0=PPMd:o=16:mem=64m', 'x.7z', 'x'],
}
export const OTHERS: readonly Compressor[] = [
  {
    ...{ name: 'xz -9e', program: 'xz', install: 'xz-utils', ending: 'xz', header: null },
    args: ['-9e', '-k', 'x'],
  },
  {
    // 1,011 bytes of an empty file: zpaq writes the program of its model into the archive.
    ...{ name: 'zpaq -m5', program: 'zpaq', install: 'zpaq', ending: 'zpaq', header: null },
    args: ['add', 'x.zpaq', 'x', '-m5'],
  },
]

const SECONDS = 300

/** Size of the file; null: the program is missing. Throws UNAVAILABLE where it fails, or takes longer than SECONDS. */
const fileSize = ({ program, args, ending }: Compressor, bytes: Uint8Array): number | null => {
  const folder = mkdtempSync(join(tmpdir(), 'continuo-streams-'))
  try {
    writeFileSync(join(folder, 'x'), bytes)
    const { error, status, stderr } = spawnSync(program, args, { cwd: folder, timeout: SECONDS * 1000 })
    if (error !== undefined && 'code' in error && error.code === 'ENOENT') return null
    if (status !== 0) throw new ContinuoError('UNAVAILABLE', `${program} failed: ${error?.message ?? String(stderr)}`)
    return statSync(join(folder, `x.${ending}`)).size
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** Bits that the compressor needs for a text; null where its program is missing. */
export const bitsBy = (compressor: Compressor): ((bytes: Uint8Array) => number) | null => {
  const empty = fileSize(compressor, new Uint8Array(0))
  if (empty === null) return null
  const header = compressor.header ?? empty
  return (bytes) => 8 * (fileSize(compressor, bytes)! - header)
}
