import type { KafkaConfig, SASLOptions } from 'kafkajs'
import { ContinuoError } from '../../errors.ts'
import { shownUrl } from '../shown.ts'

export interface KafkaUrl {
  /** As given, without credentials. */
  readonly url: string
  readonly prefix: string
  readonly config: KafkaConfig & { readonly brokers: string[] }
}

const PARAMETERS = ['ssl', 'sasl', 'username', 'password', 'clientId'] as const
type Parameter = (typeof PARAMETERS)[number]
const MECHANISMS = ['plain', 'scram-sha-256', 'scram-sha-512'] as const

const invalid = (url: string, why: string): ContinuoError =>
  new ContinuoError(
    'INVALID',
    `A Kafka log's URL has the form kafka://host:9092[,host:9092…][/prefix][?ssl=true&sasl=plain&username=…&password=…]; in "${shownUrl(url)}" ${why}. Try kafka://127.0.0.1:9092/continuo.`,
  )

const parseBroker = (url: string, broker: string, index: number): string => {
  const match = /^(?<host>[A-Za-z0-9._-]+)(?::(?<port>\d{1,5}))?$/.exec(broker)
  const port = Number(match?.groups?.port ?? 9092)
  if (match === null || port < 1 || port > 65_535)
    throw invalid(url, `broker ${index + 1} is not a host and a port from 1 to 65535`)
  return `${match.groups?.host}:${port}`
}

/** ../open.ts documents the form. Environment: `KAFKA_USERNAME`, `KAFKA_PASSWORD`. */
export const parseKafkaUrl = (url: string, env: NodeJS.ProcessEnv = process.env): KafkaUrl => {
  const match = /^kafka:\/\/(?<hosts>[^/?#]*)(?:\/(?<prefix>[^?#]*))?(?:\?(?<query>[^#]*))?$/.exec(url)
  const before = url.split('?', 1)[0]!
  if (before.includes('@') || (match === null && url.includes('@')))
    throw invalid(
      url,
      'credentials stand before the host; give them as username and password, or in KAFKA_USERNAME and KAFKA_PASSWORD',
    )
  if (match === null)
    throw invalid(
      url,
      url.includes('#')
        ? 'a # begins a fragment, which means nothing here (write %23 in a password)'
        : 'no brokers are named',
    )
  const { hosts = '', prefix = '', query = '' } = match.groups ?? {}
  if (hosts === '') throw invalid(url, 'no brokers are named')
  const brokers = hosts.split(',').map((broker, index) => parseBroker(url, broker, index))
  const name = prefix === '' ? 'continuo' : prefix
  if (!/^[a-zA-Z0-9._-]{1,200}$/.test(name) || name === '.' || name === '..')
    throw invalid(url, `the prefix is not 1 to 200 of a-z, A-Z, 0-9, ".", "_" and "-"`)

  const given: Partial<Record<Parameter, string>> = {}
  for (const [index, [parameter, value]] of [...new URLSearchParams(query)].entries()) {
    const known = PARAMETERS.find((candidate) => candidate === parameter)
    if (known === undefined)
      throw invalid(
        url,
        `parameter ${index + 1} is unknown; these are understood: ${PARAMETERS.join(', ')} (write %26 for an & in a password)`,
      )
    given[known] = value
  }
  const { ssl = 'false', clientId = 'continuo' } = given
  if (ssl !== 'true' && ssl !== 'false') throw invalid(url, 'ssl is neither true nor false')
  const username = given.username ?? env.KAFKA_USERNAME
  const password = given.password ?? env.KAFKA_PASSWORD
  let sasl: SASLOptions | undefined
  if (given.sasl !== undefined) {
    const mechanism = MECHANISMS.find((candidate) => candidate === given.sasl)
    if (mechanism === undefined) throw invalid(url, `sasl is not one of ${MECHANISMS.join(', ')}`)
    if (username === undefined || password === undefined)
      throw invalid(url, 'sasl needs username and password, here or in KAFKA_USERNAME and KAFKA_PASSWORD')
    sasl = { mechanism, username, password } as SASLOptions
  } else if (given.username !== undefined || given.password !== undefined)
    throw invalid(url, `credentials need a mechanism: add sasl=plain or another of ${MECHANISMS.join(', ')}`)

  const kept = (['ssl', 'sasl', 'clientId'] as const).flatMap((parameter) =>
    given[parameter] === undefined ? [] : [`${parameter}=${given[parameter]}`],
  )
  return {
    url: `kafka://${brokers.join(',')}/${name}${kept.length > 0 ? `?${kept.join('&')}` : ''}`,
    prefix: name,
    config: { brokers, clientId, ssl: ssl === 'true', ...(sasl && { sasl }) },
  }
}
