/** What `continuo doctor` says of the topics of a real broker. */
import { describe, expect, inject, it } from 'vitest'
import { TOPICS } from '../../topics/index.ts'
import { continuo, json, withLog } from './helpers.ts'

const { brokers, missing } = inject('kafka')
const freshLog = (name: string): string => `kafka://${brokers}/doctor-${name}-${Date.now().toString(36)}`

describe.skipIf(brokers === null)(
  `continuo doctor on Kafka${brokers === null ? ` (none here: ${missing})` : ''}`,
  () => {
    it('finds nothing wrong with the topics that apply created', async () => {
      const log = freshLog('good')
      await json('topics', 'apply', '--log', log)
      const { code, out } = await continuo(['doctor', '--log', log])
      expect(code, out).toBe(0)
      expect(out).toMatch(/^ok {4}topics +6 topics of 1 partition, settings as needed$/m)
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
  },
)
