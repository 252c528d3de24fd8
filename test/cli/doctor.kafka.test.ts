/**
 * What `continuo doctor` says of the topics of a real broker.
 *
 * @module-tag slow
 */
import { join } from 'node:path'
import { ConfigResourceTypes } from 'kafkajs'
import { describe, expect, inject, it } from 'vitest'
import { TOPICS } from '../../topics/index.ts'
import { plainKafka } from '../kafka/helpers.ts'
import { continuo, DOCUMENT, json, MODEL, runUntilIdle, temporary, withLog } from './helpers.ts'

const { brokers, missing } = inject('kafka')
const freshLog = (name: string): string => `kafka://${brokers}/doctor-${name}-${Date.now().toString(36)}`

const setPolicy = async (topic: string, value: string): Promise<void> => {
  const admin = plainKafka(brokers!).admin()
  await admin.connect()
  const configEntries = [{ name: 'cleanup.policy', value }]
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }],
  })
  await admin.disconnect()
}

describe.skipIf(brokers === null)(
  `continuo doctor on Kafka${brokers === null ? ` (none here: ${missing})` : ''}`,
  () => {
    it('finds nothing wrong with the topics that apply created', async () => {
      const log = freshLog('good')
      await json('topics', 'apply', '--log', log)
      const { code, out } = await continuo(['doctor', '--log', log])
      expect(code, out).toBe(0)
      expect(out).toMatch(/^ok {4}topics +7 topics of 1 partition, settings as needed$/m)
    })

    it('judges the retention that a topic inherits from the broker like one of its own, and says what to set', async () => {
      const log = freshLog('inherited')
      await withLog(log, (open) =>
        open.createTopics(TOPICS.map(({ name }) => ({ name: `${open.prefix}.${name}`, partitions: 1, config: {} }))),
      )
      const { code, out } = await continuo(['doctor', '--log', log])
      expect(code).toBe(1)
      const prefix = log.split('/').at(-1)
      for (const name of ['state', 'snapshots']) {
        const topic = `${prefix}.${name}`
        expect(out).toMatch(new RegExp(`^FAIL {2}settings +${topic}: retention\\.ms=604800000; `, 'm'))
        expect(out).toContain(`--entity-name ${topic} --add-config retention.ms=-1`)
      }
      for (const name of ['chunks', 'tokens', 'observations', 'deadletters'])
        expect(out).toMatch(new RegExp(`^warn {2}settings +${prefix}\\.${name}: retention\\.ms=604800000; `, 'm'))
      expect(out).not.toMatch(/: (cleanup\.policy|retention\.bytes|max\.message\.bytes)=/)
    })

    it('names a compacted input, as run and topics apply do; run refuses it', async () => {
      const log = freshLog('compacted')
      const topic = `${log.split('/').at(-1)}.chunks`
      const setTo = (policy: string): Promise<unknown> => setPolicy(topic, policy)
      await json('topics', 'apply', '--log', log)
      await json('feed', DOCUMENT, '--log', log, '--session', 's', '--chunk-bytes', '500')
      const killed = await runUntilIdle(log, '--snapshot-every', '1000')
      expect(killed.code, killed.err).toBe(0)
      await setTo('compact,delete')
      const refused = await runUntilIdle(log)
      expect([refused.code, refused.err]).toEqual([3, expect.stringContaining(`Topic ${topic} is compacted`)])
      const applied = await continuo(['topics', 'apply', '--log', log])
      expect([applied.code, applied.err]).toEqual([0, expect.stringContaining(`Topic ${topic} is compacted`)])
      const { code, out } = await continuo(['doctor', '--log', log])
      expect([code, out]).toEqual([
        1,
        expect.stringContaining(`--entity-name ${topic} --add-config cleanup.policy=delete`),
      ])
      await setTo('delete')
      expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
    })

    it('is given as a possible cause where a replay lacks records', async () => {
      const log = freshLog('lacking')
      const topic = `${log.split('/').at(-1)}.chunks`
      await json('topics', 'apply', '--log', log)
      await json('feed', DOCUMENT, '--log', log, '--session', 's', '--chunk-bytes', '500')
      // The session has a head and no snapshot: whoever wants its state replays it from its first record.
      const killed = await continuo(
        ['run', '--log', log, '--model', MODEL, '--until-idle', '50', '--commit-interval', '1'],
        { env: { CONTINUO_FAILPOINT: 'snapshot.written' } },
      )
      expect(killed.signal).toBe('SIGKILL')
      await setPolicy(topic, 'compact,delete')
      await withLog(log, (open) => open.trim(topic, 0, 2))
      const file = join(temporary(), 'x.safetensors')
      const { code, err } = await continuo(['export', '--log', log, '--session', 's', file, '--model', MODEL])
      expect([code, err]).toEqual([3, expect.stringContaining(`Topic ${topic} is compacted`)])
    })
  },
)
