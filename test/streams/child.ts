/**
 * Another process at the same log, started by the contract suite: `child.ts ROLE URL GROUP PREFIX SESSION_TIMEOUT`.
 *
 * - committer: claims partition 0 and commits transactions without end, each to two topics and the offset; reports
 *   each;
 * - member: joins the group and reports its assignments; claims and commits when told.
 */
import { codeOf } from '../../src/errors.ts'
import type { PartitionWriter } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'

const [role, url = '', group = '', prefix = '', sessionTimeout = ''] = process.argv.slice(2)
const tell = (message: object): void => void process.send?.(message)
const log = await openLog(url, { sessionTimeout: Number(sessionTimeout) })
const input = `${prefix}.in`

/** Big enough that a kill often meets a transaction half done. */
const COPIES = 20
const FILLER = 'x'.repeat(2000)

const commitForEver = async (): Promise<void> => {
  const writer = await log.claim(group, input, 0)
  for (let n = ((await log.committed(group, input, 0)) ?? 0) + 1; ; n++) {
    const value = new TextEncoder().encode(`${n} ${FILLER}`)
    const outs = Array.from({ length: COPIES }, () =>
      ['a', 'b'].map((name) => ({ topic: `${prefix}.${name}`, key: null, value })),
    ).flat()
    await writer.commit(outs, n)
    tell({ committed: n })
  }
}

const beMember = async (): Promise<void> => {
  const writers = new Map<number, PartitionWriter>()
  const membership = await log.join(group, input)
  membership.assignments.subscribe((assignment) => tell({ assignment }))
  process.on('message', async (message: { claim?: number; commit?: number }) => {
    try {
      if (message.claim !== undefined) writers.set(message.claim, await log.claim(group, input, message.claim))
      if (message.commit !== undefined)
        await writers
          .get(message.commit)!
          .commit([{ topic: `${prefix}.a`, key: null, value: new TextEncoder().encode('from the child') }], 1)
      tell({ done: message, code: 'OK' })
    } catch (error) {
      tell({ done: message, code: codeOf(error) })
    }
  })
}

process.on('disconnect', () => process.exit())
await (role === 'committer' ? commitForEver() : beMember())
