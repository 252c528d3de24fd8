/** No message holds a password, however the URL is wrong. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseEmbeddedUrl } from '../../src/streams/embedded/url.ts'
import { parseKafkaUrl } from '../../src/streams/kafka/url.ts'
import { openLog } from '../../src/streams/open.ts'
import { shownUrl, withoutUrls } from '../../src/streams/shown.ts'

/** Capitals that stand in no sentence of ours, so that any four characters in a row are the secret's. */
const LETTERS = [...'XQZJVKW']
const SPECIAL = [...'/?#@%&=:+,; \\"\'']
const secret = fc
  .array(fc.oneof({ weight: 3, arbitrary: fc.constantFrom(...LETTERS) }, fc.constantFrom(...SPECIAL)), {
    minLength: 6,
    maxLength: 24,
  })
  .map((characters) => characters.join(''))
  // At least one stretch that is the secret's for sure.
  .map((text) => `XQ${text}ZJ`)

/** Where people put a password, rightly and wrongly. */
const FORMS: readonly ((secret: string) => string)[] = [
  (s) => `kafka://user:${s}@host:9092/p`,
  (s) => `kafka://user:12${s}@host`,
  (s) => `kafka://:${s}@host`,
  (s) => `kafka://${s}@host`,
  (s) => `kafka:user:${s}@host`,
  (s) => `kafka:/user:${s}@host`,
  (s) => `Kafka://user:${s}@host`,
  (s) => `kafka://host:9092/p?sasl=plain&username=u&password=${s}`,
  (s) => `kafka://host:9092/p?sasl=plain&username=u&pasword=${s}`,
  (s) => `kafka://host:9092/p?sasl=plain&username=u&PASSWORD=${s}`,
  (s) => `kafka://host:9092/p?sasl=plain:u:${s}`,
  (s) => `kafka://host:9092/p?sasl=${s}`,
  (s) => `kafka://host:9092/p?ssl=${s}`,
  (s) => `kafka://host:9092/p?${s}`,
  (s) => `kafka://host:9092/p#password=${s}`,
  (s) => `kafka://host:9092/p:${s}`,
  (s) => `kafka://host:9092/p/${s}`,
  (s) => `kafka://host:9092/?password=${s}&username=u`,
  (s) => `kafka://host:9092?password=${s}&sasl=scram-sha-512`,
  (s) => `kafka://host:password=${s}`,
  (s) => `http://user:${s}@host:9092/p`,
  (s) => `HTTP://host/p?password=${s}`,
  (s) => `user:${s}@host:9092/p`,
  (s) => `host:9092/p?password=${s}`,
  (s) => `file:x?password=${s}`,
  (s) => `file:x#${s}`,
  (s) => `file:x?prefix=a:${s}`,
  (s) => `file://user:${s}@host/x`,
  (s) => `file:user:${s}@host/x`,
  (s) => `file:///x?prefix=p&password=${s}`,
]

const encodings: readonly ((text: string) => string)[] = [(text) => text, encodeURIComponent, encodeURI]

/** The URL, and what of it must not be seen: the secret as it stands there and as it is meant. */
const hidden = fc
  .record({
    text: secret,
    form: fc.constantFrom(...FORMS),
    encode: fc.constantFrom(...encodings),
    /** A slip of the finger before the secret. */
    slip: fc.option(fc.record({ at: fc.nat(), what: fc.constantFrom(...SPECIAL, 'k', 'u', '1') })),
  })
  .map(({ text, form, encode, slip }) => {
    const [before = '', after = ''] = form('\0').split('\0')
    const at = slip === null ? 0 : slip.at % (before.length + 1)
    const slipped = slip === null ? before : before.slice(0, at) + slip.what + before.slice(at)
    return { url: slipped + encode(text) + after, secrets: [text, ...encodings.map((as) => as(text))] }
  })

const pieces = (text: string): string[] =>
  Array.from({ length: text.length - 3 }, (_, at) => text.slice(at, at + 4)).filter((piece) =>
    // Four characters of punctuation alone may be the sentence's own.
    LETTERS.some((letter) => piece.includes(letter)),
  )

const expectHidden = (shown: string, secrets: readonly string[]): void => {
  const leaked = secrets.flatMap(pieces).filter((piece) => shown.includes(piece))
  if (leaked.length > 0) expect.fail(`${JSON.stringify(leaked)} can be read in ${shown}`)
}

const told = (error: unknown): string => {
  const { message, stack, cause } = error as Error
  return [
    message,
    stack,
    JSON.stringify(error),
    JSON.stringify({ message }),
    String(cause),
    JSON.stringify(cause),
  ].join('\n')
}

describe('a wrong log URL', () => {
  test('is shown without its password, whatever is wrong with it', () => {
    fc.assert(
      fc.property(hidden, ({ url, secrets }) => expectHidden(shownUrl(url), secrets)),
      { numRuns: 3000 },
    )
  })

  test('is refused without a word of it in message, stack or JSON; what is taken shows none either', {
    tags: 'slow',
  }, () => {
    fc.assert(
      fc.property(hidden, ({ url, secrets }) => {
        for (const parse of [parseKafkaUrl, parseEmbeddedUrl]) {
          try {
            const parsed = parse(url, {})
            if ('url' in parsed) expectHidden(parsed.url, secrets)
          } catch (error) {
            expectHidden(told(error), secrets)
          }
        }
      }),
      { numRuns: 3000 },
    )
  })

  test('is refused so by the library', async () => {
    const refused = hidden.filter(({ url }) => {
      try {
        return url.startsWith('kafka:') ? parseKafkaUrl(url, {}) === null : !url.startsWith('file:')
      } catch {
        return true
      }
    })
    await fc.assert(
      fc.asyncProperty(refused, async ({ url, secrets }) => {
        expectHidden(told(await openLog(url).catch((error: unknown) => error)), secrets)
      }),
      { numRuns: 1000 },
    )
  })

  test('is shown where there is nothing to hide', () => {
    for (const url of [
      'kafka://127.0.0.1:9092/continuo',
      'kafka://a,b:1/p.q?ssl=true&sasl=scram-sha-512&clientId=me',
      'file:continuo.db?prefix=a-b',
      'file:///var/a b.db',
    ])
      expect(shownUrl(url)).toBe(url)
    expect(shownUrl('file:x.db?password=no')).toBe('file:x.db…')
    expect(shownUrl('kafka://a:1/p?sasl=plain&username=u')).toBe('kafka://a:1…')
  })

  test('is taken out of a message that quotes it for something else', () => {
    fc.assert(
      fc.property(hidden, ({ url, secrets }) => {
        fc.pre(/^(kafka|file):|:\/\/|:.+@/i.test(url))
        for (const word of [url, `--threads=${url}`])
          expectHidden(withoutUrls(`"${url}" is too much; ${JSON.stringify({ url })}`, ['run', word]), secrets)
      }),
    )
    expect(withoutUrls('There is no session "log:7".', ['--session', 'log:7'])).toBe('There is no session "log:7".')
  })
})
