import { resolve } from 'node:path'
import { ContinuoError } from '../../errors.ts'
import { holdsCredentials, shownUrl } from '../shown.ts'

export interface EmbeddedUrl {
  /** Absolute. */
  readonly path: string
  readonly prefix: string
}

/** The names that Kafka allows for a topic, so that a stream can move from one log to the other. */
export const isTopicName = (name: string): boolean =>
  /^[a-zA-Z0-9._-]{1,249}$/.test(name) && name !== '.' && name !== '..'

const invalid = (url: string, why: string): ContinuoError =>
  new ContinuoError(
    'INVALID',
    `The embedded log's URL has the form file:PATH[?prefix=continuo]; in "${shownUrl(url)}" ${why}. Try file:continuo.db.`,
  )

/**
 * `file:PATH[?prefix=NAME]`: PATH relative to the working directory, absolute, or after `//` and an empty or local
 * host; percent-encoded where it holds `?`, `#` or `%`.
 */
export const parseEmbeddedUrl = (url: string): EmbeddedUrl => {
  const match = /^file:(?:\/\/(?<host>[^/?#]*)(?=\/))?(?<path>[^?#]*)(?:\?(?<query>[^#]*))?(?<fragment>#.*)?$/s.exec(
    url,
  )
  const { host = '', path: encoded = '', query = '', fragment } = match?.groups ?? {}
  if (match === null) throw invalid(url, 'nothing names a file')
  if (holdsCredentials(url.slice('file:'.length)))
    throw invalid(url, 'credentials stand before an @, and a file has none (write %40 for an @ in its name)')
  if (fragment !== undefined)
    throw invalid(url, 'a # begins a fragment, which means nothing here (write %23 in a path)')
  if (host !== '' && host !== 'localhost')
    throw invalid(url, 'a host is named, and files of other hosts are out of reach')
  let path: string
  try {
    path = decodeURIComponent(encoded)
  } catch {
    throw invalid(url, 'a % is not followed by two hexadecimal digits of UTF-8 (write %25 for % itself)')
  }
  if (path === '' || path.endsWith('/')) throw invalid(url, 'nothing names a file')
  if (path.includes('\0')) throw invalid(url, 'the path holds a zero byte')
  let prefix = 'continuo'
  for (const [name, value] of new URLSearchParams(query)) {
    if (name !== 'prefix') throw invalid(url, 'a parameter is unknown; only prefix is understood')
    prefix = value
  }
  if (!isTopicName(prefix) || prefix.length > 200)
    throw invalid(url, `the prefix is not 1 to 200 of a-z, A-Z, 0-9, ".", "_" and "-"`)
  return { path: resolve(path), prefix }
}
