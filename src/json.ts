/**
 * JSON from outside: files of model packages, headers of snapshots. How deep it may be nested and how long it may be is bounded
 * before it is parsed, because what walks over a value later does so recursively.
 */
import { open } from 'node:fs/promises'
import { ContinuoError, messageOf } from './errors.ts'

/** Arrays and objects inside each other; published packages need fewer than ten. The engine's own reader has 32. */
export const MOST_NESTED = 64

/** Where the text is nested deeper than MOST_NESTED, as a number of UTF-16 units from its beginning; −1: nowhere. */
const tooDeepAt = (text: string): number => {
  let depth = 0
  for (let at = 0; at < text.length; at += 1) {
    switch (text.charCodeAt(at)) {
      case 0x22: // "
        for (at += 1; at < text.length && text.charCodeAt(at) !== 0x22; at += 1)
          if (text.charCodeAt(at) === 0x5c) at += 1
        break
      case 0x5b: // [
      case 0x7b: // {
        depth += 1
        if (depth > MOST_NESTED) return at
        break
      case 0x5d: // ]
      case 0x7d: // }
        depth -= 1
    }
  }
  return -1
}

/** Throws INVALID where `what` is nested too deeply, a SyntaxError where it is no JSON. */
export const parseJson = (text: string, what: string): unknown => {
  const at = tooDeepAt(text)
  if (at < 0) return JSON.parse(text)
  throw new ContinuoError(
    'INVALID',
    `${what} is nested deeper than ${MOST_NESTED} levels at character ${at}; nothing that Continuo reads is.`,
  )
}

/** The content of a JSON file of at most `most` bytes, and its text. Throws INVALID, naming the file; ENOENT passes as it is. */
export const readJsonFile = async (
  path: string,
  most: number,
): Promise<{ readonly text: string; readonly json: unknown }> => {
  const file = await open(path)
  let text: string
  try {
    const { size } = await file.stat()
    if (size > most)
      throw new ContinuoError(
        'INVALID',
        `${path} has ${size} bytes, expected at most ${most}. Take the file from the package that the model came with.`,
      )
    text = await file.readFile('utf8')
  } finally {
    await file.close()
  }
  try {
    return { text, json: parseJson(text, path) }
  } catch (cause) {
    if (cause instanceof ContinuoError) throw cause
    throw new ContinuoError('INVALID', `${path} is not JSON: ${messageOf(cause)}.`, { cause })
  }
}

/** Of config.json and the other small files of a tokenizer. */
export const MOST_CONFIG_BYTES = 1 << 24
/** Of tokenizer.json; the largest published ones have some 35 MB. */
export const MOST_TOKENIZER_BYTES = 1 << 28
