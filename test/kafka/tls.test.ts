/**
 * Certificates, ports and passwords on listeners of a real broker: what is let in, and what is said to the rest.
 *
 * @module-tag slow
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { TlsFiles } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { continuo, json, MODEL, start } from '../cli/helpers.ts'
import { readAll, record, refuses } from '../streams/helpers.ts'
import { freshPrefix, ownBroker } from './broker.ts'
import { certify } from './certificates.ts'

const folder = mkdtempSync(join(tmpdir(), 'continuo-tls-'))
const file = (name: string, ...parts: readonly string[]): string => {
  const path = join(folder, name)
  writeFileSync(path, parts.join(''))
  return path
}

const HERE = ['127.0.0.1', 'localhost']
const DAY = 24 * 3600 * 1000
const ago = (days: number): Date => new Date(Date.now() - days * DAY)

const authority = certify('Continuo tests', { authority: true })
const stranger = certify('Some other authority', { authority: true })
const servers = {
  TRUSTED: certify('broker', { issuer: authority, hosts: HERE }),
  EXPIRED: certify('broker', { issuer: authority, hosts: HERE, from: ago(9), until: ago(2) }),
  EARLY: certify('broker', { issuer: authority, hosts: HERE, from: ago(-2), until: ago(-9) }),
  ELSEWHERE: certify('broker', { issuer: authority, hosts: ['kafka.example.org', '10.9.8.7'] }),
  MUTUAL: certify('broker', { issuer: authority, hosts: HERE }),
  SCRAM: certify('broker', { issuer: authority, hosts: HERE }),
}
const client = certify('client', { issuer: authority })
const intruder = certify('client', { issuer: stranger })

const ca = file('ca.pem', authority.certificate)
const files: TlsFiles = { ca }
const cert = file('client.pem', client.certificate)
const key = file('client.key', client.key)
const strangers = {
  cert: file('intruder.pem', intruder.certificate),
  key: file('intruder.key', intruder.key),
  ca: file('stranger.pem', stranger.certificate),
}

/**
 * How long a SCRAM connection lives before it must show its password again, ms: several times within the test, and a
 * broker takes no less than 1 s.
 */
const REAUTHENTICATE = 2000

const { kafka: broker, missing } = await ownBroker({
  listeners: { TRUSTED: 'SSL', EXPIRED: 'SSL', EARLY: 'SSL', ELSEWHERE: 'SSL', MUTUAL: 'SSL', SCRAM: 'SASL_SSL' },
  scramUsers: { alice: 'wonder/land' },
  config: {
    ...Object.fromEntries(
      Object.entries(servers).flatMap(([name, { certificate, key: privateKey }]) => [
        [`listener.name.${name.toLowerCase()}.ssl.keystore.type`, 'PEM'],
        [
          `listener.name.${name.toLowerCase()}.ssl.keystore.location`,
          file(`${name}.pem`, privateKey, certificate, authority.certificate),
        ],
      ]),
    ),
    'listener.name.mutual.ssl.client.auth': 'required',
    'listener.name.mutual.ssl.truststore.type': 'PEM',
    'listener.name.mutual.ssl.truststore.location': ca,
    'listener.name.scram.sasl.enabled.mechanisms': 'SCRAM-SHA-512',
    'listener.name.scram.scram-sha-512.connections.max.reauth.ms': String(REAUTHENTICATE),
    'listener.name.scram.scram-sha-512.sasl.jaas.config':
      'org.apache.kafka.common.security.scram.ScramLoginModule required;',
  },
})
if (broker === undefined) console.warn(`Tests on a broker are skipped: ${missing}`)
afterAll(async () => {
  await broker?.stop()
  rmSync(folder, { recursive: true, force: true })
})

/** A way to the listener that counts who comes. */
const counted = async (address: string): Promise<{ address: string; connections: () => number; close: () => void }> => {
  const port = Number(address.split(':')[1])
  const sockets = new Set<Socket>()
  let count = 0
  const server = createServer((from) => {
    count += 1
    const to = connect(port, '127.0.0.1')
    for (const socket of [from, to]) {
      sockets.add(socket)
      socket
        .on('error', () => {})
        .on('close', () => {
          from.destroy()
          to.destroy()
        })
    }
    from.pipe(to).pipe(from)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    address: `127.0.0.1:${(server.address() as { port: number }).port}`,
    connections: () => count,
    close: () => {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}

describe('files for TLS', () => {
  const none = 'kafka://127.0.0.1:1/p'
  const encrypted = file(
    'encrypted.key',
    '-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n',
  )
  const garbled = file('garbled.pem', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n')
  const plain = file('plain.txt', 'not a certificate')

  test.each<[string, string, TlsFiles, readonly string[]]>([
    ['a flag without ssl=true', none, { ca }, ['--tls-ca', 'ssl=true']],
    ['a flag with a file', 'file:x.db', { ca }, ['--tls-ca', 'file']],
    [
      'a file that is not there',
      `${none}?ssl=true`,
      { ca: join(folder, 'none.pem') },
      ['--tls-ca', 'none.pem', 'cannot be read'],
    ],
    ['a folder', `${none}?ssl=true`, { ca: folder }, ['--tls-ca', 'cannot be read']],
    ['no PEM', `${none}?ssl=true`, { ca: plain }, ['--tls-ca', 'plain.txt', 'PEM']],
    ['a certificate that is none', `${none}?ssl=true`, { ca: garbled }, ['--tls-ca', 'garbled.pem']],
    ['a key for a certificate', `${none}?ssl=true`, { cert: key, key }, ['--tls-cert', 'client.key', 'PEM']],
    ['a certificate for a key', `${none}?ssl=true`, { cert, key: cert }, ['--tls-key', 'client.pem', 'PEM']],
    ['an encrypted key', `${none}?ssl=true`, { cert, key: encrypted }, ['--tls-key', 'pass phrase']],
    ['a certificate without a key', `${none}?ssl=true`, { cert }, ['--tls-cert', '--tls-key']],
    ['a key without a certificate', `${none}?ssl=true`, { key }, ['--tls-cert', '--tls-key']],
    ["another certificate's key", `${none}?ssl=true`, { cert, key: strangers.key }, ['do not fit']],
  ])('%s is INVALID', async (_, url, tls, parts) => {
    await refuses(openLog(url, { tls }), 'INVALID', ...parts)
  })

  test('that cannot serve are a usage error of every command that opens a log, also from the environment', async () => {
    const url = `${none}?ssl=true`
    const commands = [
      ['feed', '--session', 's', '--close'],
      ['tail'],
      ['sessions'],
      ['topics', 'apply'],
      ['topics', 'list'],
      ['export', join(folder, 'x.safetensors'), '--session', 's'],
    ]
    for (const args of commands) {
      const { code, err } = await continuo([...args, '--log', url, '--tls-ca', plain])
      expect([code, err], args[0]).toEqual([2, expect.stringContaining('plain.txt')])
    }
    for (const args of [['run'], ['verify'], ['import', 'x.safetensors', '--session', 's'], ['demo']])
      expect((await continuo([...args, '--help'])).out, args[0]).toContain('--tls-ca FILE')
    const { code, err } = await continuo(['sessions', '--log', url], { env: { KAFKA_TLS_CA: plain } })
    expect([code, err]).toEqual([2, expect.stringContaining('KAFKA_TLS_CA')])
    const doctor = await continuo(['doctor', '--log', url, '--tls-ca', plain])
    expect([doctor.code, doctor.out]).toEqual([1, expect.stringContaining('plain.txt')])
  })
})

describe.skipIf(broker === undefined)('a broker with TLS', { timeout: 60_000 }, () => {
  const url = (listener: string, more = ''): string =>
    `kafka://${broker!.addresses[listener]}/${freshPrefix()}?ssl=true${more}`

  const use = async (address: string, tls: TlsFiles): Promise<void> => {
    const log = await openLog(address, { tls })
    const topic = `${log.prefix}.t`
    await log.createTopics([{ name: topic, partitions: 1, config: {} }])
    await log.append(topic, [record('x')], 0)
    const writer = await log.claim(`${log.prefix}-group`, topic, 0)
    await writer.commit([{ topic, ...record('y') }], 1)
    expect((await readAll(log, topic)).length).toBe(2)
    const membership = await log.join(`${log.prefix}-group`, topic)
    await new Promise<void>((resolve, reject) =>
      membership.assignments.subscribe({ next: () => resolve(), error: reject }),
    )
    await log.close()
  }

  test('lets in who names its authority, for everything', () => use(url('TRUSTED'), files))
  test('that asks for a certificate lets in who has one', () => use(url('MUTUAL'), { ca, cert, key }))
  test('takes certificate and key from one file', () => {
    const both = file('both.pem', client.key, client.certificate)
    return use(url('MUTUAL'), { ca, cert: both, key: both })
  })

  test('takes the files from the environment', async () => {
    const env = { KAFKA_TLS_CA: ca, KAFKA_TLS_CERT: cert, KAFKA_TLS_KEY: key }
    const { code, err } = await continuo(['topics', 'apply', '--log', url('MUTUAL')], { env })
    expect([code, err]).toEqual([0, ''])
    // And what a flag names goes before.
    const flagged = await continuo(['topics', 'list', '--log', url('MUTUAL'), '--tls-ca', strangers.ca], { env })
    expect([flagged.code, flagged.err]).toEqual([1, expect.stringContaining('--tls-ca')])
  })

  test.each<[string, string, TlsFiles, readonly string[]]>([
    ['an authority that is not named', 'TRUSTED', {}, ['not signed by an authority', '--tls-ca']],
    [
      'another authority than the named one',
      'TRUSTED',
      { ca: strangers.ca },
      ['not signed by an authority', '--tls-ca'],
    ],
    ['an expired certificate', 'EXPIRED', files, ['has expired', 'renew it']],
    ['a certificate of the future', 'EARLY', files, ['not valid yet', 'clock']],
    ['a certificate for another host', 'ELSEWHERE', files, ['another host name', '10.9.8.7', 'advertised.listeners']],
    ['a missing client certificate', 'MUTUAL', files, ['--tls-cert', '--tls-key']],
    ["a stranger's client certificate", 'MUTUAL', { ...strangers, ca }, ['that it trusts', '--tls-cert']],
  ])('says what is wrong with %s, at the first connection', async (_, listener, tls, parts) => {
    const way = await counted(broker!.addresses[listener]!)
    try {
      await refuses(openLog(`kafka://${way.address}/p?ssl=true`, { tls }), 'DENIED', ...parts)
      // One to fail, and one to look closer where the broker only hung up.
      expect(way.connections()).toBeLessThanOrEqual(2)
    } finally {
      way.close()
    }
  })

  test('says so when TLS meets a plain port or plain a port with TLS, at the first connection', async () => {
    for (const [at, query, parts] of [
      [broker!.brokers, '?ssl=true', ['does not speak TLS', 'take ssl=true out']],
      [broker!.addresses.TRUSTED!, '', ['speaks TLS', 'add ssl=true']],
      [broker!.addresses.MUTUAL!, '', ['speaks TLS', 'add ssl=true']],
      [broker!.addresses.SCRAM!, '', ['speaks TLS', 'add ssl=true']],
    ] as const) {
      const way = await counted(at)
      try {
        await refuses(openLog(`kafka://${way.address}/p${query}`), 'DENIED', ...parts)
        expect(way.connections()).toBeLessThanOrEqual(3)
      } finally {
        way.close()
      }
    }
  })

  test('which is one of several seeds is not hidden by another that is away', async () => {
    const seeds = `${broker!.addresses.EXPIRED},127.0.0.1:1`
    await refuses(openLog(`kafka://${seeds}/p?ssl=true`, { tls: files }), 'DENIED', 'has expired')
  })
})

describe.skipIf(broker === undefined)('a broker with SCRAM that wants the password again and again', () => {
  const prefix = broker === undefined ? '' : freshPrefix()
  const log = `kafka://${broker?.addresses.SCRAM}/${prefix}?ssl=true&sasl=scram-sha-512`
  const env = { KAFKA_USERNAME: 'alice', KAFKA_PASSWORD: 'wonder/land', KAFKA_TLS_CA: ca }

  beforeAll(() => Object.assign(process.env, env))
  afterAll(() => {
    for (const name of Object.keys(env)) delete process.env[name]
  })

  test('is DENIED to a wrong password, which nobody is told', async () => {
    const call = openLog(`${log}&username=alice&password=no-such-secret`)
    await refuses(call, 'DENIED', 'credentials')
    await call.catch((error: Error) => expect(`${error.message}${error.stack}`).not.toContain('no-such-secret'))
  })

  test('is served over many deadlines by one worker that loses neither task nor membership', {
    timeout: 120_000,
  }, async () => {
    const feeder = await openLog(log)
    const topic = `${prefix}.chunks`
    await json('topics', 'apply', '--log', log)
    const worker = start(['run', '--log', log, '--model', MODEL, '--group', prefix, '--log-level', 'info'])
    await worker.saw(/running/)
    const send = (event: object) => feeder.append(topic, [record(JSON.stringify(event), 'session')], 0)
    await send({ type: 'text', text: 'The tide was high at ' })
    const began = performance.now()
    let rounds = 0
    // A deadline is a matter of time: work goes on until many of them have passed.
    for (; performance.now() - began < 6 * REAUTHENTICATE; rounds += 1) {
      await send({ type: 'generate', requestId: `r${rounds}`, maxTokens: 3, seed: rounds })
      const { begin } = await feeder.bounds(`${prefix}.tokens`, 0)
      const patience = AbortSignal.timeout(60_000)
      let finished = 0
      for await (const { records } of feeder.read(`${prefix}.tokens`, 0, begin, { follow: true, signal: patience })) {
        finished += records.filter(({ value }) => JSON.parse(Buffer.from(value!).toString()).finish !== null).length
        if (finished > rounds) break
      }
      expect(finished).toBe(rounds + 1)
    }
    worker.child.kill('SIGTERM')
    const { code, err } = await worker.done
    await feeder.close()
    expect(code, err).toBe(0)
    expect(err).not.toMatch(/Trying again|"level":(40|50)/)
    expect(err.match(/partition 0 claiming/g)?.length, err).toBe(1)
    const verified = await continuo(['verify', '--log', log, '--model', MODEL])
    expect(verified.code, verified.out).toBe(0)
  })
})
