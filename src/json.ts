/**
 * JSON from outside: files of model packages, headers of snapshots. How deep it may be nested and how long it may be is
 * bounded before it is parsed, because what walks over a value later does so recursively.
 */
import { ContinuoError, messageOf } from './errors.ts'
import { readBounded } from './files.ts'
import { foreign } from './foreign.ts'

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

/**
 * Where a bare Infinity or NaN stands, as Python's json module writes them: outside strings JSON has no such letters.
 */
const bareNumbers = (text: string): readonly { readonly at: number; readonly word: 'Infinity' | 'NaN' }[] => {
  const found: { at: number; word: 'Infinity' | 'NaN' }[] = []
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code === 0x22) {
      for (at += 1; at < text.length && text.charCodeAt(at) !== 0x22; at += 1) if (text.charCodeAt(at) === 0x5c) at += 1
    } else if (code === 0x49 || code === 0x4e) {
      const word = code === 0x49 ? 'Infinity' : 'NaN'
      if (text.startsWith(word, at)) found.push({ at, word })
    }
  }
  return found
}

/**
 * As `parseJson`, for what Python wrote: a bare Infinity, -Infinity or NaN is a number (Python's json, "Infinite and
 * NaN Number Values").
 */
export const parsePythonJson = (text: string, what: string): unknown => {
  const bare = bareNumbers(text)
  if (bare.length === 0) return parseJson(text, what)
  // A name for NaN that no string of the text has. 1e999 is beyond every double: it reads as Infinity.
  let nan = '\ue000NaN'
  while (text.includes(nan)) nan += '\ue000'
  let strict = ''
  let from = 0
  for (const { at, word } of bare) {
    strict += text.slice(from, at) + (word === 'NaN' ? `"${nan}"` : '1e999')
    from = at + word.length
  }
  strict += text.slice(from)
  parseJson(strict, what)
  return JSON.parse(strict, (_, value: unknown) => (value === nan ? Number.NaN : value))
}

/** JSON as Python writes it: a number that JSON lacks stands bare. With an indent of two. */
export const pythonJson = (value: unknown): string => {
  const plain = JSON.stringify(value)
  let mark = '\ue000'
  while (plain.includes(mark)) mark += '\ue000'
  const text = JSON.stringify(
    value,
    (_, item: unknown) => (typeof item === 'number' && !Number.isFinite(item) ? `${mark}${item}${mark}` : item),
    2,
  )
  return text.replaceAll(`"${mark}`, '').replaceAll(`${mark}"`, '')
}

/**
 * The content of a JSON file of at most `most` bytes, and its text. Throws INVALID, naming the file; ENOENT passes as
 * it is.
 */
export const readJsonFile = async (
  path: string,
  most: number,
  parse: (text: string, what: string) => unknown = parseJson,
): Promise<{ readonly text: string; readonly json: unknown }> => {
  const bytes = await readBounded(path, most)
  // Editors of Windows put a byte order mark before the text, which is no part of it (RFC 8259, section 8.1).
  const text = bytes.toString('utf8').replace(/^\ufeff/, '')
  try {
    return { text, json: parse(text, path) }
  } catch (cause) {
    if (cause instanceof ContinuoError) throw cause
    const what = foreign(bytes)
    if (what !== null) throw new ContinuoError('INVALID', `${path} ${what}`, { cause })
    throw new ContinuoError('INVALID', `${path} is not JSON: ${messageOf(cause)}.`, { cause })
  }
}

/** Of config.json and the other small files of a tokenizer. */
export const MOST_CONFIG_BYTES = 1 << 24
/** Of the list of the files of a sharded model: some 100 bytes a tensor. */
export const MOST_INDEX_BYTES = 1 << 26
/** Of tokenizer.json; the largest published ones have some 35 MB. */
export const MOST_TOKENIZER_BYTES = 1 << 28
