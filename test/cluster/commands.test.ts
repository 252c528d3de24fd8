/**
 * Every command over TLS with SCRAM, each by a user who has the rights that docs/kafka.md lists for it and no others.
 */
import { join } from 'node:path'
import { type AclEntry, AclOperationTypes as Operation, AclResourceTypes as Resource } from 'kafkajs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { topicNames } from '../../topics/index.ts'
import { continuo, DOCUMENT, type Done, MODEL, temporary } from '../cli/helpers.ts'
import { eventually } from '../streams/helpers.ts'
import { type Cluster, PATIENCE, startCluster } from './cluster.ts'
import { readRights } from './rights.ts'

const PREFIX = 'secure'
const GROUP = 'readers'
const names = topicNames(PREFIX)
const folder = temporary()
const embedded = `file:${join(folder, 'judge.db')}?prefix=${PREFIX}`
let cluster: Cluster
let secure = ''

beforeAll(async () => {
  cluster = await startCluster()
  secure = cluster.secure(PREFIX)
  for (const command of readRights().keys()) await cluster.grant(userOf(command), command, PREFIX, GROUP)
})
afterAll(() => cluster?.close())

const userOf = (command: string): string => command.replaceAll(' ', '-')
/** A command by its own user. */
const as = (user: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Done> =>
  continuo([...args, '--log', secure], { env: { ...cluster.as(user), ...env } })
const good = ({ code, out, err }: Done): string => {
  expect(code, `${out}\n${err}`).toBe(0)
  return out
}
/** Ends with 1 and a sentence; no password is in it. */
const denied = ({ code, out, err }: Done, ...parts: readonly string[]): void => {
  expect(code, `${out}\n${err}`).toBe(1)
  expect(err).toMatch(/^[A-Z].* .*\.?\n$/m)
  for (const part of parts) expect(err).toContain(part)
}

const run = ['run', '--model', MODEL, '--group', GROUP, '--until-idle', '300', '--log-level', 'warn'] as const
const feed = ['feed', DOCUMENT, '--session', 'book', '--generate', '60', '--request-id', 'r', '--seed', '7'] as const
const tail = ['tail', '--from-beginning', '--until-idle', '1000', '--json'] as const
const exported = join(folder, 'book.safetensors')

describe('a secured cluster', () => {
  test('creates the topics for who may create them', async () => {
    // A right reaches every broker a moment after it was given.
    await eventually(async () => good(await as('topics-apply', ['topics', 'apply', '--partitions', '3'])), PATIENCE)
    expect(good(await as('topics-list', ['topics', 'list']))).toContain(names.snapshots)
    expect(good(await as('doctor', ['doctor']))).toContain('7 topics of 3 partitions, settings as needed')
    await cluster.whole()
  })

  test('serves feed, run and tail, each by its user; what comes out is what the embedded log has', async () => {
    good(await continuo(['topics', 'apply', '--partitions', '3', '--log', embedded]))
    good(await as('feed', feed))
    good(await continuo([...feed, '--log', embedded]))
    good(await as('run', run))
    good(await continuo([...run, '--log', embedded]))
    for (const topic of ['tokens', 'observations']) {
      const values = (text: string): unknown[] =>
        text
          .trim()
          .split('\n')
          .map((line) => (JSON.parse(line) as { value: unknown }).value)
      const judged = values(good(await continuo([...tail, '--topic', topic, '--log', embedded])))
      expect(values(good(await as('tail', [...tail, '--topic', topic])))).toEqual(judged)
      expect(judged.length).toBeGreaterThan(1)
    }
  })

  test('shows, verifies, exports and imports', async () => {
    const chain = (text: string): unknown => (JSON.parse(text) as { chain: unknown }).chain
    const shown = good(await as('sessions', ['sessions', '--json', '--health']))
    expect(chain(shown)).toBe(chain(good(await continuo(['sessions', '--json', '--log', embedded]))))
    expect(good(await as('verify', ['verify', '--model', MODEL]))).toContain('Everything agrees.')
    good(await as('export', ['export', exported, '--session', 'book', '--model', MODEL]))
    good(await as('import', ['import', exported, '--session', 'copy', '--model', MODEL, '--group', GROUP]))
    good(await as('feed', ['feed', '--session', 'copy', '--generate', '20']))
    good(await as('run', run))
    expect(good(await as('verify', ['verify', '--model', MODEL]))).toContain('Everything agrees.')
  })

  test('refuses a wrong password, an unknown user and another mechanism, and says so without the password', async () => {
    const wrong = { KAFKA_PASSWORD: 'guessed-Secret-1' }
    for (const answer of [
      await as('feed', feed, wrong),
      await as('feed', feed, { KAFKA_USERNAME: 'stranger', ...wrong }),
      await as('run', run, wrong),
      await as('tail', tail, wrong),
    ]) {
      denied(answer, 'Kafka refused the credentials')
      expect(answer.err + answer.out).not.toContain(wrong.KAFKA_PASSWORD)
    }
    for (const mechanism of ['scram-sha-256', 'plain']) {
      const url = secure.replace('scram-sha-512', mechanism)
      denied(await continuo(['feed', ...feed.slice(1), '--log', url], { env: cluster.as('feed') }), 'sasl in the URL')
    }
  })

  test('refuses what a user has no right to, by name', async () => {
    const permission = 'This user may not do that: ask for the permission'
    denied(await as('feed', ['sessions']), permission, names.state)
    denied(await as('feed', tail), permission, names.tokens)
    denied(await as('tail', feed), permission, `to write to ${names.chunks}`)
    denied(await as('tail', ['sessions']), permission, names.state)
    denied(await as('verify', run), permission)
    denied(await as('tail', ['export', join(folder, 'none'), '--session', 'book']), permission, names.state)
    denied(
      await as('export', ['import', exported, '--session', 'more', '--model', MODEL, '--group', GROUP]),
      permission,
    )
    denied(await as('run', [...run.slice(0, 3), '--group', 'strangers', '--until-idle', '1']), permission, 'strangers')
    for (const args of [feed, tail, run, ['sessions']]) denied(await as('nobody', args), 'permission')
  })

  const topic = Resource.TOPIC
  const needed = [
    { command: 'feed', args: feed, what: 'to write to the input', on: [topic, names.chunks], right: Operation.WRITE },
    { command: 'feed', args: feed, what: 'its settings', on: [topic, names.chunks], right: Operation.DESCRIBE_CONFIGS },
    { command: 'tail', args: tail, what: 'to read tokens', on: [topic, names.tokens], right: Operation.READ },
    { command: 'tail', args: tail, what: 'to see the input', on: [topic, names.chunks], right: Operation.DESCRIBE },
    { command: 'run', args: run, what: 'to read the input', on: [topic, names.chunks], right: Operation.READ },
    { command: 'run', args: run, what: 'to read state', on: [topic, names.state], right: Operation.READ },
    { command: 'run', args: run, what: 'to write state', on: [topic, names.state], right: Operation.WRITE },
    { command: 'run', args: run, what: 'to join the group', on: [Resource.GROUP, GROUP], right: Operation.READ },
    {
      command: 'run',
      args: run,
      what: 'its transactional ids',
      on: [Resource.TRANSACTIONAL_ID, `${GROUP}-${names.chunks}-`],
      right: Operation.WRITE,
    },
  ] as const
  test.each(needed)('needs, as the table says, for $command the right $what', async ({ command, args, on, right }) => {
    const [type, name] = on
    // Any right on a topic implies describe, so without describe there is none.
    const taken = (acl: AclEntry): boolean =>
      acl.resourceType === type &&
      acl.resourceName === name &&
      (acl.operation === right || right === Operation.DESCRIBE)
    await cluster.revoke('nobody')
    await cluster.grant('nobody', command, PREFIX, GROUP, taken)
    // What a run has to commit.
    good(await as('feed', ['feed', '--session', 'book', '--boundary']))
    await eventually(async () => {
      const answer = await as('nobody', args)
      expect(answer.code, answer.out).not.toBe(0)
      expect(answer.err).toContain('permission')
      expect(answer.err).toContain(name)
    }, 60_000)
    await cluster.revoke('nobody')
  })

  test('tells who does not know its authority that it is not trusted', async () => {
    denied(await as('feed', feed, { KAFKA_TLS_CA: '' }), '--tls-ca')
  })
})
