/**
 * Who may come in, and what is said to those who may not or find nobody there.
 *
 * @module-tag slow
 */
import { createServer } from 'node:net'
import { afterAll, describe, expect, test } from 'vitest'
import { parseKafkaUrl } from '../../src/streams/kafka/url.ts'
import { openLog } from '../../src/streams/open.ts'
import { freePorts } from '../../tools/kafka/properties.ts'
import { bytes, readAll, record, refuses } from '../streams/helpers.ts'
import { freshPrefix, ownBroker } from './broker.ts'

describe('a Kafka URL', () => {
  const env = { KAFKA_USERNAME: 'from-env', KAFKA_PASSWORD: 'secret-env' }

  test('names brokers, prefix and credentials; what is shown of it holds no credentials', () => {
    const url = 'kafka://a:1,b/p.q?ssl=true&sasl=scram-sha-256&username=u%20v&password=s%26cret&clientId=me'
    expect(parseKafkaUrl(url, env)).toEqual({
      url: 'kafka://a:1,b:9092/p.q?ssl=true&sasl=scram-sha-256&clientId=me',
      prefix: 'p.q',
      config: {
        brokers: ['a:1', 'b:9092'],
        clientId: 'me',
        ssl: true,
        sasl: { mechanism: 'scram-sha-256', username: 'u v', password: 's&cret' },
      },
    })
  })

  test('takes credentials from the environment, and a default prefix', () => {
    const { prefix, config } = parseKafkaUrl('kafka://a:1?sasl=plain', env)
    expect(prefix).toBe('continuo')
    expect(config.sasl).toEqual({ mechanism: 'plain', username: 'from-env', password: 'secret-env' })
    expect(parseKafkaUrl('kafka://a:1', env).config.sasl).toBeUndefined()
  })

  test.each([
    ['kafka://', 'no brokers'],
    ['kafka:a:1', 'no brokers'],
    ['kafka://a:0', 'broker 1 is not'],
    ['kafka://b:1,a:1:2', 'broker 2 is not'],
    ['kafka://a:1,', 'host and a port'],
    ['kafka://u:secret@a:1', 'credentials stand before'],
    ['kafka://u:12/secret@a:1', 'credentials stand before'],
    ['kafka://u:12?secret@a:1', 'parameter 1 is unknown'],
    ['kafka://u:12#secret@a:1', 'credentials stand before'],
    ['kafka://a:1?sasl=plain&username=u&password=12#secret', 'kafka://a:1…', '%23'],
    ['kafka://a:1/p/q', 'kafka://a:1…', 'prefix'],
    ['kafka://a:1?sals=plain', 'kafka://a:1…', 'parameter 1 is unknown', 'sasl'],
    ['kafka://a:1?sasl=plain&username=u&pasword=secret', 'parameter 3 is unknown', 'password'],
    ['kafka://a:1?sasl=plain&username=u&password=a&secret', 'parameter 4 is unknown', '%26'],
    ['kafka://a:1?ssl=yes', 'neither true nor false'],
    ['kafka://a:1?sasl=gssapi', 'scram-sha-512'],
    ['kafka://a:1?sasl=plain', 'kafka://a:1?sasl=plain', 'KAFKA_USERNAME'],
    ['kafka://a:1?username=u&password=secret', 'mechanism'],
  ])('%s is INVALID', async (url, ...parts) => {
    const call = (async () => parseKafkaUrl(url, {}))()
    await refuses(call, 'INVALID', ...parts, 'kafka://127.0.0.1:9092/continuo')
    await call.catch((error: Error) => expect(error.message).not.toContain('secret'))
  })
})

describe('a log that does not answer', { timeout: 20_000 }, () => {
  test('is UNAVAILABLE within seconds, and the message says how to start one', async () => {
    const [port] = await freePorts(1)
    await refuses(
      openLog(`kafka://127.0.0.1:${port}`),
      'UNAVAILABLE',
      `Cannot reach 127.0.0.1:${port}`,
      'npm run kafka',
    )
  })

  test('though it takes the connection is UNAVAILABLE, too', async () => {
    const sockets: { destroy(): void }[] = []
    const server = createServer((socket) => void sockets.push(socket))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const address = server.address() as { port: number }
    await refuses(openLog(`kafka://127.0.0.1:${address.port}`), 'UNAVAILABLE', `127.0.0.1:${address.port}`)
    for (const socket of sockets) socket.destroy()
    server.close()
  })
})

const { kafka: broker, missing } = await ownBroker({
  saslUsers: { alice: 'wonderland', bob: 'builder' },
  config: {
    'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
    // The plaintext listeners belong to the broker itself and to the test.
    'super.users': 'User:ANONYMOUS;User:alice',
  },
})
if (broker === undefined) console.warn(`Tests on a broker are skipped: ${missing}`)
afterAll(() => broker?.stop())

describe.skipIf(broker === undefined)('a log with users', { timeout: 30_000 }, () => {
  const prefix = freshPrefix()
  const address = (user: string, password: string): string =>
    `kafka://${broker!.saslBrokers}/${prefix}?sasl=plain&username=${user}&password=${password}`

  test('lets in who has the password, for everything', async () => {
    const log = await openLog(address('alice', 'wonderland'))
    expect(log.url).not.toContain('wonderland')
    const topic = `${prefix}.t`
    await log.createTopics([{ name: topic, partitions: 1, config: {} }])
    await log.append(topic, [record('x')], 0)
    expect((await readAll(log, topic)).length).toBe(1)
    const writer = await log.claim(`${prefix}-group`, topic, 0)
    await writer.commit([{ topic, ...record('y') }], 1)
    expect(await log.committed(`${prefix}-group`, topic, 0)).toBe(1)
    const membership = await log.join(`${prefix}-group`, topic)
    await new Promise<void>((resolve) => membership.assignments.subscribe(() => resolve()))
    await log.close()
  })

  test('is DENIED to a wrong password, and the message does not tell it', async () => {
    const call = openLog(address('alice', 'wrong-secret'))
    await refuses(call, 'DENIED', 'credentials', 'KAFKA_PASSWORD')
    await call.catch((error: Error) => expect(error.message).not.toContain('wrong-secret'))
  })

  test('is DENIED to a mechanism that it does not know', async () => {
    const url = address('alice', 'wonderland').replace('sasl=plain', 'sasl=scram-sha-256')
    await refuses(openLog(url), 'DENIED', 'sasl')
  })

  test('is DENIED in part to who lacks a permission', async () => {
    const log = await openLog(address('bob', 'builder'))
    const topic = `${prefix}.t`
    await refuses(log.append(topic, [record('x')], 0), 'DENIED', 'permission', topic)
    await refuses(log.claim(`${prefix}-group`, topic, 0), 'DENIED', 'permission')
    await refuses(log.partitionOf(topic, bytes('k')), 'DENIED')
    await refuses(log.createTopics([{ name: `${prefix}.u`, partitions: 1, config: {} }]), 'DENIED', `${prefix}.u`)
    await log.close()
  })

  test('without credentials where they are needed is no log: UNAVAILABLE or DENIED, within seconds', async () => {
    await refuses(openLog(`kafka://${broker!.saslBrokers}/${prefix}`), ['UNAVAILABLE', 'DENIED'])
  })
})
