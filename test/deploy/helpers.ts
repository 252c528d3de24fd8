import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { temporary } from '../cli/helpers.ts'

/** A file of this content that goes away after the file's tests. */
export const temporaryFile = (name: string, text: string): string => {
  const path = join(temporary(), name)
  writeFileSync(path, text)
  return path
}
