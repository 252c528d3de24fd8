/** continuo blobs gc: refused while a worker runs, unless it is told otherwise; what it says, in both forms. */
import { copyFileSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, inject, test } from 'vitest'
import { openFamily } from '../families.ts'
import { freshPrefix } from '../kafka/broker.ts'
import { continuo, DOCUMENT, json, start, temporary } from './helpers.ts'

const TEXT = readFileSync(DOCUMENT, 'utf8').slice(0, 900)

const blobsIn = (store: string): readonly string[] =>
  readdirSync(store, { recursive: true })
    .map((name) => join(store, String(name)))
    .filter((path) => /[0-9a-f]{64}\.[0-9a-f]{16}$/.test(path))

test('removes what no head names', { tags: 'slow' }, async () => {
  const folder = temporary()
  const { dir: model } = await openFamily('qwen3', folder)
  const log = `file:${join(folder, 'log.db')}`
  const store = join(folder, 'store')
  const place = ['--log', log, '--blob-store', store]
  expect((await continuo(['feed', '-', '--log', log, '--session', 's'], { input: TEXT })).code).toBe(0)
  const run = ['run', ...place, '--model', model, '--log-level', 'warn']
  expect(await continuo([...run, '--until-idle', '50'])).toMatchObject({ code: 0 })
  const [own, ...more] = blobsIn(store)
  const living = 1 + more.length
  const garbage = join(dirname(own!), `${'ab'.repeat(32)}.${'0'.repeat(16)}`)
  const orphan = join(store, 'f'.repeat(32), '3')
  mkdirSync(orphan, { recursive: true })
  for (const path of [garbage, join(orphan, `${'ab'.repeat(32)}.${'1'.repeat(16)}`)]) copyFileSync(own!, path)

  const worker = start([...run, '--json'])
  await worker.saw(/"type":"started"/)
  const refused = await continuo(['blobs', 'gc', ...place])
  expect(refused).toMatchObject({ code: 1, out: '' })
  expect(refused.err).toMatch(
    /A worker of group "continuo" reads continuo\.chunks .* Nothing was changed\. Stop the workers, or add --force\./,
  )
  expect(blobsIn(store)).toHaveLength(living + 2)
  const [dry] = await json('blobs', 'gc', ...place, '--dry-run')
  expect(dry).toMatchObject({ ok: true, dry: true, failed: [], trials: 0 })
  expect(blobsIn(store)).toHaveLength(living + 2)
  const forced = await continuo(['blobs', 'gc', ...place, '--force'])
  expect(forced).toMatchObject({ code: 0, err: '' })
  expect(forced.out).toMatch(
    /^Partition 0, [0-9a-f]{32}\/0: kept \d blobs \(.* kB\), removed 1 blob \(.* kB\)\.\nPartition 0, the topic: kept 0 blobs \(0 B\), removed 0 records of 0\.\n$/,
  )
  expect(blobsIn(store)).toHaveLength(living + 1)
  worker.child.kill('SIGTERM')
  expect(await worker.done).toMatchObject({ code: 0 })

  const listed = await continuo(['blobs', 'gc', ...place, '--orphans'])
  expect(listed.out).toMatch(
    /^f{32}\/3: no mark, 1 blob \(.* kB\)\.\n1 folder in .* is none of file:.*--remove NAME removes one\.\n$/,
  )
  const wrong = await continuo(['blobs', 'gc', ...place, '--orphans', '--remove', 'x/0'])
  expect(wrong).toMatchObject({ code: 1, err: expect.stringContaining('"x/0" is no folder of a partition') })
  expect(await json('blobs', 'gc', ...place, '--orphans', '--remove', `${'f'.repeat(32)}/3`)).toMatchObject([
    { orphans: [{ mark: null, blobs: 1, removed: true }] },
  ])
  expect(blobsIn(store)).toHaveLength(living)
  expect(await continuo(['verify', ...place, '--model', model, '--blobs'])).toMatchObject({
    code: 0,
    out: expect.stringContaining(`Read ${living} blobs that are right.`),
  })
})

const { brokers, missing } = inject('kafka')
test.skipIf(brokers === null)(
  `a folder beside a log that other machines reach is said to be one, once (Kafka: ${missing ?? 'there'})`,
  async () => {
    const folder = temporary()
    const { dir: model } = await openFamily('qwen3', folder)
    const store = `file:${join(folder, 'store')}`
    const run = (log: string) =>
      continuo([
        'run',
        '--log',
        log,
        '--model',
        model,
        '--blob-store',
        store,
        '--until-idle',
        '50',
        '--log-level',
        'warn',
      ])
    const { code, err } = await run(`kafka://${brokers}/${freshPrefix()}`)
    expect(code).toBe(0)
    expect(
      err.match(/The blob store is a folder of this machine, .*store: every worker of the log must reach it/g),
    ).toHaveLength(1)
    expect(await run(`file:${join(folder, 'log.db')}`)).toMatchObject({ code: 0, err: '' })
  },
)

test.each([
  [['blobs', 'sweep', '--log', 'file:x'], /takes gc, not "sweep"/],
  [['blobs', 'gc', '--log', 'file:x', '--remove', 'a/0'], /--remove .* --orphans/],
  [['blobs', 'gc', '--log', 'file:x', '--orphans', '--force'], /--force and --dry-run have nothing to do there/],
])('%j is called wrongly', async (args, message) => {
  const { code, err } = await continuo(args)
  expect(err).toMatch(message)
  expect(code).toBe(2)
})
