/**
 * How messages show a log URL. A URL can hold a password, in the right place or in a wrong one: before the host, behind
 * a `/`, `?` or `#` that is not encoded, under a misspelt name. So a message never quotes a URL, nor a part of it, as
 * it was given. It shows what this function returns: the whole where its form leaves no room for a password, else the
 * scheme and, where they can be told for sure, the hosts or the file.
 */
import { normalize } from 'node:path'

const HOSTS = '[A-Za-z0-9._-]+(?::\\d{1,5})?(?:,[A-Za-z0-9._-]+(?::\\d{1,5})?)*'
const HARMLESS = '(?:ssl=(?:true|false)|sasl=(?:plain|scram-sha-256|scram-sha-512)|clientId=[A-Za-z0-9._-]*)'
const KAFKA = new RegExp(`^(kafka://${HOSTS})(?=[/?#]|$)`)
const WHOLE_KAFKA = new RegExp(`^kafka://${HOSTS}(?:/[A-Za-z0-9._-]*)?(?:\\?${HARMLESS}(?:&${HARMLESS})*)?$`)
const FILE = /^file:(?:\/\/(?:localhost)?(?=\/))?(?!\/\/)[^?#]*/s
const WHOLE_FILE = /^[^?#]*(?:\?prefix=[A-Za-z0-9._-]*)?$/s

/** `name:password@` in what should be a path. The password may hold any character, `/` and `?` among them. */
const CREDENTIALS = /:.*@|^\/\/[^/]*@/s

export const holdsCredentials = (path: string): boolean => CREDENTIALS.test(path)

export const shownUrl = (url: string): string => {
  const file = FILE.exec(url)?.[0]
  if (file !== undefined && !holdsCredentials(url.slice('file:'.length))) return WHOLE_FILE.test(url) ? url : `${file}…`
  const scheme = /^(?:kafka:(?:\/\/)?|file:)/i.exec(url)?.[0].toLowerCase() ?? ''
  // What stands before an @, or before one that was encoded, may be a password wherever it stands.
  const hosts = /@|%40/.test(url) ? undefined : KAFKA.exec(url)?.[1]
  if (hosts === undefined) return `${scheme}…`
  return WHOLE_KAFKA.test(url) ? url : `${hosts}…`
}

/** Nothing that could be hidden, and a part of each URL that a message has as an example. */
const BARE_SCHEME = /^(?:kafka|file):\/*$/i
const URL_LIKE = /^(?:kafka|file):|:\/\/|:.+@/is

/**
 * `text` with every URL among `given`, the words of a command line, as it may be shown: for messages that quote a word
 * wherever it was taken for something else (an operand too many, a number, a folder).
 */
export const withoutUrls = (text: string, given: readonly string[]): string =>
  given
    .flatMap((word) => [word, word.replace(/^--[^=]*=/, '')])
    .filter((word) => URL_LIKE.test(word) && !BARE_SCHEME.test(word))
    .sort((a, b) => b.length - a.length)
    .reduce((shown, word) => {
      const safe = shownUrl(word)
      // As it was given, as a path that was tidied up (`//` is `/` there), in JSON, and encoded.
      const forms = [word, normalize(word)].flatMap((form) => [form, JSON.stringify(form).slice(1, -1)])
      return [...forms, encodeURI(word)].reduce((all, form) => all.replaceAll(form, safe), shown)
    }, text)
