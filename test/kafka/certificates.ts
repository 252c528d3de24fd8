/**
 * Certificates for tests, made with node:crypto alone: X.509 version 3 (RFC 5280) in DER, ECDSA with P-256 and SHA-256.
 */
import { generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto'
import { isIP } from 'node:net'

const node = (tag: number, ...contents: readonly Uint8Array[]): Buffer => {
  const body = Buffer.concat(contents)
  const { length } = body
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return Buffer.concat([Buffer.from([tag, ...size]), body])
}
const sequence = (...contents: readonly Uint8Array[]): Buffer => node(0x30, ...contents)
const objectId = (hex: string): Buffer => node(0x06, Buffer.from(hex, 'hex'))
const octets = (content: Uint8Array): Buffer => node(0x04, content)
const bits = (content: Uint8Array): Buffer => node(0x03, Buffer.from([0]), content)
const TRUE = node(0x01, Buffer.from([0xff]))

const ECDSA_WITH_SHA256 = sequence(objectId('2a8648ce3d040302'))
const COMMON_NAME = objectId('550403')
const SUBJECT_ALT_NAME = objectId('551d11')
const BASIC_CONSTRAINTS = objectId('551d13')

const nameOf = (common: string): Buffer => sequence(node(0x31, sequence(COMMON_NAME, node(0x0c, Buffer.from(common)))))
/** UTCTime: YYMMDDHHMMSSZ, for years before 2050. */
const time = (date: Date): Buffer =>
  node(0x17, Buffer.from(`${date.toISOString().replace(/[-:T]/g, '').slice(2, 14)}Z`))
const altName = (host: string): Buffer =>
  isIP(host) === 4 ? node(0x87, Buffer.from(host.split('.').map(Number))) : node(0x82, Buffer.from(host))

export interface Certified {
  readonly name: string
  /** PEM. */
  readonly certificate: string
  /** PKCS#8 in PEM. */
  readonly key: string
  readonly privateKey: KeyObject
}

export interface CertificateOptions {
  /** Who signs; default: itself. */
  readonly issuer?: Certified
  /** Host names and IPv4 addresses. */
  readonly hosts?: readonly string[]
  readonly authority?: boolean
  readonly from?: Date
  readonly until?: Date
}

const DAY = 24 * 3600 * 1000

export const certify = (name: string, options: CertificateOptions = {}): Certified => {
  const { issuer, hosts = [], authority = false } = options
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const { from = new Date(Date.now() - DAY), until = new Date(Date.now() + DAY) } = options
  const extensions = [
    ...(authority ? [sequence(BASIC_CONSTRAINTS, TRUE, octets(sequence(TRUE)))] : []),
    ...(hosts.length > 0 ? [sequence(SUBJECT_ALT_NAME, octets(sequence(...hosts.map(altName))))] : []),
  ]
  const body = sequence(
    node(0xa0, node(0x02, Buffer.from([2]))), // version 3
    node(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])), // serial number, positive
    ECDSA_WITH_SHA256,
    nameOf(issuer?.name ?? name),
    sequence(time(from), time(until)),
    nameOf(name),
    publicKey.export({ format: 'der', type: 'spki' }),
    ...(extensions.length > 0 ? [node(0xa3, sequence(...extensions))] : []),
  )
  const signature = sign('sha256', body, issuer?.privateKey ?? privateKey)
  const der = sequence(body, ECDSA_WITH_SHA256, bits(signature))
  const lines = der.toString('base64').match(/.{1,64}/g) ?? []
  return {
    name,
    privateKey,
    certificate: `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`,
    key: String(privateKey.export({ format: 'pem', type: 'pkcs8' })),
  }
}
