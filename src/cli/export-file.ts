/** The file of a session, as `continuo export` writes it, for commands that take one. */
import { ContinuoError } from '../errors.ts'
import { openWholeFile, type WholeFile } from '../operators/snapshots/whole-file.ts'
import type { Head } from '../state/head.ts'
import { usage } from './flags.ts'

const invalid = (message: string): ContinuoError => new ContinuoError('INVALID', message)

/** Throws INVALID, or a usage error, for what is no such file. It is to be closed. */
export const openExport = async (path: string): Promise<WholeFile> => {
  const file = await openWholeFile(path).catch((error: NodeJS.ErrnoException) => {
    if (error instanceof ContinuoError) throw error
    if (error.code === 'EISDIR') throw usage(`${path} is a folder; a file that continuo export wrote is expected.`)
    throw invalid(`The file ${path} cannot be read: ${error.message}.`)
  })
  if (file === null) throw invalid(`${path} is not a file that continuo export wrote. Nothing was changed.`)
  return file
}

/** Throws INVALID for a session that stands inside a record. */
export const checkComplete = (path: string, { session, cursor }: Head): void => {
  if (cursor.complete) return
  throw invalid(
    `${path} holds session "${session}" in the middle of the record at offset ${cursor.offset}, and the rest of that record is in another log. Let the worker finish it, then export again.`,
  )
}
