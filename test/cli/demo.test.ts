import { existsSync, mkdtempSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { continuo, json, ROOT, temporary } from './helpers.ts'

const folder = temporary()

interface Told {
  readonly run: number
  readonly resumedAt: number
  readonly pulse: number
  readonly chain: string
  readonly tokens: number
  readonly text: string
}
interface Watched {
  readonly stoodOut: readonly number[]
  readonly chain: string
}
/** The lines that train/stream/harbour.ts hides. */
const ODD = [812, 1378, 1905, 2291, 2747]

const demo = async (log: string): Promise<Told> => (await json<Told>('demo', '--log', log))[0]!

describe('continuo demo', () => {
  it('reads the document, generates, and resumes where it stood with each further run', { tags: 'slow' }, async () => {
    const log = `file:${join(folder, 'the whole.db')}`
    const first = await demo(log)
    expect(first).toMatchObject({ run: 1, resumedAt: 0, pulse: 13_254, tokens: 400 })
    // On every machine, with every kernel: one broken bit is another chain. README.md shows its beginning.
    expect(first.chain).toMatch(/^726f430d8145/)
    expect(readFileSync(join(ROOT, 'README.md'), 'utf8')).toContain(`chain ${first.chain.slice(0, 12)}…`)
    const second = await demo(log)
    expect(second).toMatchObject({ run: 2, resumedAt: 13_254, pulse: 13_654, tokens: 400 })
    expect(second.text).not.toBe(first.text)
    const third = await continuo(['demo', '--log', log])
    expect(third).toMatchObject({ code: 0, err: '' })
    expect(third.out).toContain('resuming at pulse 13,654 from the snapshot of pulse 13,654')
    expect(third.out).toContain(`npm run continuo -- verify --log '${log}' --model models/demo`)
    expect(third.out).toContain(`\n  npm start -- --log '${log}'   go on where this run stopped`)
  })

  it('goes on after a kill anywhere, to the same text and the same chain', { tags: 'slow' }, async () => {
    const whole = await demo(`file:${join(folder, 'reference.db')}`)
    const log = `file:${join(folder, 'killed.db')}`
    for (const failpoint of ['claim.done', 'commit.prepared', 'commit.noted', 'restore.replay', 'commit.ended']) {
      const killed = await continuo(['demo', '--log', log], { env: { CONTINUO_FAILPOINT: failpoint } })
      expect(killed.signal, failpoint).toBe('SIGKILL')
    }
    const rest = await continuo(['demo', '--log', log])
    expect(rest).toMatchObject({ code: 0 })
    expect(rest.out).toContain('The last run was interrupted; going on at pulse')
    expect(rest.out).toContain(whole.text)
    expect(rest.out).toContain(whole.chain.slice(0, 12))
    expect(await demo(log)).toMatchObject({ run: 2, resumedAt: 13_254 })
  })

  it('without flags reads the log of a harbour first, and finds the lines that do not belong there', async () => {
    const cwd = mkdtempSync(join(folder, 'usual-'))
    const run = async (): Promise<readonly Watched[]> => {
      const { code, out } = await continuo(['demo', '--json'], { cwd })
      expect(code).toBe(0)
      return out
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as Watched)
    }
    const [watched, told] = await run()
    expect(watched).toMatchObject({ watched: 'harbour-system', lines: 3000, ended: 'idle' })
    expect(watched!.stoodOut).toEqual(expect.arrayContaining(ODD))
    expect(watched!.stoodOut.length).toBeLessThan(10)
    expect(readFileSync(join(ROOT, 'README.md'), 'utf8')).toContain(`chain ${watched!.chain.slice(0, 12)}…`)
    expect(told).toMatchObject({ run: 1, pulse: 13_254 })
    const again = await continuo(['demo'], { cwd })
    expect(again.out).toContain('harbour-day.txt was read before: npm run continuo -- watch --log')
    const shown = await continuo(
      ['watch', '--log', 'file:.continuo/watch.db', '--from-beginning', '--until-idle', '50'],
      { cwd },
    )
    expect(shown.out).toMatch(/ 812 {2}structure 1\.000 {2}harbour-system\n {11}06:34:33 lamp: mantle cracked/)
    expect(shown.err).toBe(`3,000 lines; ${watched!.stoodOut.length} stood out.\n`)
  })

  it('finds the same lines after kills anywhere', { tags: 'slow' }, async () => {
    const cwd = mkdtempSync(join(folder, 'killed-'))
    for (const failpoint of [
      'claim.done',
      'commit.prepared',
      'commit.noted',
      'snapshot.written',
      'restore.replay',
      'commit.ended',
    ]) {
      const killed = await continuo(['demo'], { cwd, env: { CONTINUO_FAILPOINT: failpoint } })
      expect(killed.signal, failpoint).toBe('SIGKILL')
    }
    const { code, out } = await continuo(['demo'], { cwd })
    expect(code).toBe(0)
    expect(out).toMatch(/^Going on with .* behind line [\d,]+, read by /)
    for (const line of ODD)
      expect(out).toMatch(new RegExp(`^ +${line.toLocaleString('en-US')}  (structure|values) 1\\.000$`, 'm'))
    expect(out).toContain('chain 453cba69de77…')
  })

  it('makes no log for a model that is not there', async () => {
    const path = join(folder, 'nothing.db')
    const done = await continuo(['demo', '--log', `file:${path}`, '--model', 'models/dmeo'])
    expect(done).toMatchObject({ code: 1, out: '' })
    expect(done.err).toContain('models/dmeo is not a model package')
    expect(existsSync(path)).toBe(false)
  })
})
