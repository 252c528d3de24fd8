/**
 * TLS to the brokers: the files that the caller names, and what a connection's failure says about certificates and
 * ports.
 *
 * A failed handshake seldom says what is wrong. A Kafka broker closes the connection without a word where a client
 * speaks plain to a TLS listener or TLS to a plain one, and an alert may be lost when the connection is reset. So a
 * connection that was made and then broken off is looked at once more, in the other way or without sending anything
 * (`diagnose`).
 */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { connect as connectPlain, isIP } from 'node:net'
import { type ConnectionOptions, connect as connectTls, createSecureContext } from 'node:tls'
import { ContinuoError, messageOf } from '../../errors.ts'
import type { TlsFiles } from '../log.ts'

export interface TlsContents {
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
}

const PARTS = ['ca', 'cert', 'key'] as const
type Part = (typeof PARTS)[number]

const FLAG = { ca: '--tls-ca', cert: '--tls-cert', key: '--tls-key' } as const
const VARIABLE = { ca: 'KAFKA_TLS_CA', cert: 'KAFKA_TLS_CERT', key: 'KAFKA_TLS_KEY' } as const

const invalid = (message: string, cause?: unknown): ContinuoError => new ContinuoError('INVALID', message, { cause })

/** No file of certificates comes near: all roots of a browser together take 0.3 MB. */
const MAX_PEM = 4 * 1024 * 1024

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g

const readPem = (part: Part, path: string): string => {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw invalid(
      `${FLAG[part]} (${VARIABLE[part]}) names ${path}, which cannot be read (${messageOf(error)}): check the path and its permissions.`,
      error,
    )
  }
  const wrong = (expected: string, cause?: unknown): ContinuoError =>
    invalid(
      `${FLAG[part]} (${VARIABLE[part]}) names ${path}, which holds no ${expected} in PEM form (-----BEGIN …-----). A PKCS#12 or JKS store has to be converted first, for example with openssl pkcs12 or keytool -exportcert -rfc.`,
      cause,
    )
  if (text.length > MAX_PEM) throw wrong(part === 'key' ? 'private key' : 'certificate')
  if (part === 'key') {
    if (/ENCRYPTED/.test(text))
      throw invalid(
        `${FLAG.key} (${VARIABLE.key}) names ${path}, an encrypted key: give it without a pass phrase (openssl pkey -in KEY -out PLAIN), readable for this user only.`,
      )
    try {
      createPrivateKey(text)
    } catch (error) {
      throw wrong('private key', error)
    }
    return text
  }
  const certificates = text.match(CERTIFICATE) ?? []
  if (certificates.length === 0) throw wrong('certificate')
  try {
    for (const certificate of certificates) new X509Certificate(certificate)
  } catch (error) {
    throw wrong('certificate that can be read', error)
  }
  return text
}

/**
 * The contents of the files that the caller names or, for those that it does not, the environment. INVALID where they
 * cannot serve: files without TLS, unreadable files, no PEM, a certificate without its key. What stands in the
 * environment is for whichever connection uses TLS, and means nothing to one that does not.
 */
export const readTls = (ssl: boolean, given: TlsFiles = {}, env: NodeJS.ProcessEnv = process.env): TlsContents => {
  const flag = PARTS.find((part) => given[part] !== undefined)
  if (!ssl) {
    if (flag === undefined) return {}
    throw invalid(
      `${FLAG[flag]} is for connections with TLS, and the URL asks for none: add ssl=true to it, kafka://…?ssl=true.`,
    )
  }
  const contents: { -readonly [P in Part]?: string } = {}
  for (const part of PARTS) {
    const path = given[part] ?? (env[VARIABLE[part]] || undefined)
    if (path !== undefined) contents[part] = readPem(part, path)
  }
  const { cert, key } = contents
  if ((cert === undefined) !== (key === undefined)) {
    const [has, lacks] = cert === undefined ? (['key', 'cert'] as const) : (['cert', 'key'] as const)
    throw invalid(
      `A client certificate needs its private key: ${FLAG[has]} (${VARIABLE[has]}) is given and ${FLAG[lacks]} (${VARIABLE[lacks]}) is not. One file may hold both.`,
    )
  }
  try {
    createSecureContext(contents)
  } catch (error) {
    throw invalid(
      `The client certificate and its key do not fit each other (${messageOf(error)}): give the key that the certificate of ${FLAG.cert} was made for.`,
      error,
    )
  }
  return contents
}

export type TlsProblem =
  | 'untrusted'
  | 'expired'
  | 'not yet valid'
  | 'revoked'
  | 'wrong name'
  | 'client certificate'
  | 'version'
  | 'plain port'
  | 'TLS port'

/** OpenSSL's reasons why a certificate does not pass, and Node's own. */
const VERIFICATION: Readonly<Record<string, TlsProblem>> = {
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'untrusted',
  UNABLE_TO_GET_ISSUER_CERT: 'untrusted',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'untrusted',
  SELF_SIGNED_CERT_IN_CHAIN: 'untrusted',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'untrusted',
  CERT_SIGNATURE_FAILURE: 'untrusted',
  CERT_UNTRUSTED: 'untrusted',
  CERT_REJECTED: 'untrusted',
  CERT_CHAIN_TOO_LONG: 'untrusted',
  PATH_LENGTH_EXCEEDED: 'untrusted',
  INVALID_CA: 'untrusted',
  INVALID_PURPOSE: 'untrusted',
  CERT_HAS_EXPIRED: 'expired',
  CERT_NOT_YET_VALID: 'not yet valid',
  CERT_REVOKED: 'revoked',
  ERR_TLS_CERT_ALTNAME_INVALID: 'wrong name',
}

/**
 * The alerts of RFC 8446, section 6.2, that are about the client's certificate; OpenSSL spells their protocol in
 * several ways.
 */
const CLIENT_ALERT =
  /^ERR_SSL_.*_ALERT_(HANDSHAKE_FAILURE|(BAD|NO|UNSUPPORTED)_CERTIFICATE|CERTIFICATE_(REQUIRED|REVOKED|EXPIRED|UNKNOWN)|UNKNOWN_CA|ACCESS_DENIED)$/
const ALERT = /^ERR_SSL_.*_ALERT_/

/** The meaning of an error's code for certificates and ports; null for what may pass by itself. */
export const problemOf = (code: unknown): TlsProblem | null => {
  if (typeof code !== 'string') return null
  if (Object.hasOwn(VERIFICATION, code)) return VERIFICATION[code]!
  if (CLIENT_ALERT.test(code)) return 'client certificate'
  if (/^ERR_SSL_(.*_ALERT_PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL|NO_PROTOCOLS_AVAILABLE)$/.test(code)) return 'version'
  if (code === PLAIN_PORT || code === 'ERR_SSL_WRONG_VERSION_NUMBER') return 'plain port'
  return code === TLS_PORT ? 'TLS port' : null
}

const PLAIN_PORT = 'TLS_TO_A_PLAIN_PORT'
const TLS_PORT = 'PLAIN_TO_A_TLS_PORT'

/** The fault and its remedy. */
export const problemText = (problem: TlsProblem): string => {
  switch (problem) {
    case 'untrusted':
      return "The broker's certificate is not signed by an authority that is trusted here: name the file with the authority's certificate, --tls-ca FILE (or KAFKA_TLS_CA)"
    case 'expired':
      return "The broker's certificate has expired: renew it on the broker, or set this machine's clock right"
    case 'not yet valid':
      return "The broker's certificate is not valid yet: set the clock of this machine or of the one that made the certificate right"
    case 'revoked':
      return "The broker's certificate was revoked: give the broker another"
    case 'wrong name':
      return "The broker's certificate is for another host name: use a name that the certificate holds, in the URL and in the broker's advertised.listeners, or have one made with this name in it (subjectAltName)"
    case 'client certificate':
      return "The broker takes no client without a certificate that it trusts: give one with its key, --tls-cert FILE --tls-key FILE (or KAFKA_TLS_CERT, KAFKA_TLS_KEY), signed by an authority of the broker's trust store"
    case 'version':
      return 'Broker and client have no version of TLS in common: enable TLSv1.2 or TLSv1.3 on the broker (ssl.enabled.protocols)'
    case 'plain port':
      return "This port does not speak TLS: take ssl=true out of the URL, or name the port of the broker's TLS listener"
    case 'TLS port':
      return "This port speaks TLS: add ssl=true to the URL, or name the port of the broker's plain listener"
  }
}

/** Longest time of a second look, ms. */
const LOOK = 1000

interface Node {
  readonly host: string
  readonly port: number
}

const servername = ({ host }: Node): ConnectionOptions => (isIP(host) ? {} : { servername: host })

/**
 * Shakes hands, sends nothing and listens: `secure` tells whether it came so far, `code` what the other side or the
 * check said.
 */
const shakeHands = (
  node: Node,
  options: ConnectionOptions,
  listen: boolean,
): Promise<{ secure: boolean; code: string }> =>
  new Promise((resolve) => {
    let secure = false
    const socket = connectTls({ ...node, ...servername(node), ...options })
    const done = (code = ''): void => {
      clearTimeout(timer)
      socket.destroy()
      resolve({ secure, code })
    }
    const timer = setTimeout(done, LOOK)
    socket
      .once('secureConnect', () => {
        secure = true
        if (listen) socket.resume()
        else done()
      })
      .on('error', ({ code }: NodeJS.ErrnoException) => done(code))
      .once('close', () => done())
  })

/** ApiVersions, version 0: the one request that every Kafka answers to anybody. */
const CORRELATION = 0x5ec0_4de5
const API_VERSIONS = Buffer.alloc(14)
API_VERSIONS.writeInt32BE(10, 0)
API_VERSIONS.writeInt16BE(18, 4)
API_VERSIONS.writeInt32BE(CORRELATION, 8)
API_VERSIONS.writeInt16BE(-1, 12) // no client id

const speaksPlainKafka = (node: Node): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connectPlain(node, () => socket.write(API_VERSIONS))
    let seen = Buffer.alloc(0)
    const done = (answer: boolean): void => {
      clearTimeout(timer)
      socket.destroy()
      resolve(answer)
    }
    const timer = setTimeout(done, LOOK, false)
    socket
      .on('data', (data) => {
        seen = Buffer.concat([seen, data])
        if (seen.length >= 8) done(seen.readInt32BE(4) === CORRELATION)
      })
      .on('error', () => done(false))
      .once('close', () => done(false))
  })

const found = (code: string, message: string): Error =>
  Object.assign(new Error(message), { name: 'KafkaJSConnectionError', code })

/**
 * The reason why a connection to `node` failed, as far as it is one of TLS: a new error with its code, else null. `ssl`
 * are the options of the connection that failed; false for a plain one. Takes two seconds at most.
 */
export const diagnose = async (node: Node, ssl: ConnectionOptions | false): Promise<Error | null> => {
  const address = `${node.host}:${node.port}`
  if (ssl === false) {
    const { secure, code } = await shakeHands(node, { rejectUnauthorized: false }, false)
    return secure || ALERT.test(code) ? found(TLS_PORT, `${address} answers a TLS handshake`) : null
  }
  const { secure, code } = await shakeHands(node, ssl, true)
  if (problemOf(code) !== null) return found(code, `${address} ended the handshake: ${code}`)
  if (secure || !(await speaksPlainKafka(node))) return null
  return found(PLAIN_PORT, `${address} answers without TLS`)
}
