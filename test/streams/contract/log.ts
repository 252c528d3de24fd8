import { describe, expect, test } from 'vitest'
import { readAll, record, refuses } from '../helpers.ts'
import type { Fixture } from './fixture.ts'

export const asAWhole = ({ fresh }: Fixture): void => {
  describe('as a whole', () => {
    test('answers a ping, and says what it is', async () => {
      const { log } = await fresh()
      await log.ping()
      expect(log.kind).toMatch(/^(embedded|kafka)$/)
      expect(log.url).toContain(log.prefix)
    })

    test('is of no use when closed: MISUSE; closing again does nothing', async () => {
      const { log, input, a, group } = await fresh()
      const waiting = readAll(log, a, 0, { follow: true })
      await log.bounds(a, 0)
      await Promise.all([log.close(), refuses(waiting, 'MISUSE')])
      await log.close()
      await refuses(log.append(a, [record('x')], 0), 'MISUSE')
      await refuses(log.bounds(a, 0), 'MISUSE')
      await refuses(readAll(log, a, 0, { from: 0 }), 'MISUSE')
      await refuses(log.claim(group, input, 0), 'MISUSE')
      await refuses(log.join(group, input), 'MISUSE')
      await refuses(log.ping(), 'MISUSE')
    })
  })
}
