/**
 * A worker is killed while the page looks on, and another one takes its place: the page shows the loss and the resume,
 * at the pulse that the log had, and what it shows of the text is whole.
 *
 * @module-tag slow
 */

import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Generated } from '../../topics/tokens.ts'
import { json, MODEL, type Running, recordsOf, start, temporary, valuesOf } from '../cli/helpers.ts'
import { ask, freePort, logIn, type Serving, serving } from '../gateway/helpers.ts'
import { chromiumPath, openBrowser, openPage, until } from './browser.ts'

let browser: Browser | undefined
beforeAll(async () => {
  if (chromiumPath !== null) browser = await openBrowser()
})
afterAll(() => browser?.close())

const kill = async (child: ChildProcess): Promise<void> => {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill('SIGKILL')
  await once(child, 'exit')
}

/** Each is committed by itself (`run: 1`): seconds of work on any machine, so that the kill falls into it. */
const TOKENS = 2500

describe.skipIf(chromiumPath === null)('a worker that is killed', () => {
  test('is seen to go, and its successor to resume with nothing lost', async () => {
    const log = logIn(temporary())
    await json('topics', 'apply', '--log', log)
    const port = String(await freePort())
    const running: (Running | Serving)[] = []
    onTestFinished(async () => {
      for (const { child } of running) await kill(child)
    })
    const startWorker = async (): Promise<Running> => {
      const worker = start([
        ...['run', '--log', log, '--model', MODEL, '--threads', '1', '--commit-interval', '20'],
        ...['--snapshot-every', '256', '--metrics-port', port],
      ])
      running.push(worker)
      await worker.saw(/"state":"running"/)
      return worker
    }
    const worker = await startWorker()
    const gateway = await serving(log, '--worker-metrics', `http://127.0.0.1:${port}`)
    running.push(gateway)
    const { page, complaints } = await openPage(browser!, gateway.url)
    const events = page.locator('#timeline-events')
    await page.getByText('Live', { exact: true }).waitFor()
    await until(() => page.locator('#workers-table tbody').textContent()).toContain('ready, cpu')

    await ask(`${gateway.url}/v1/sessions/story/chunks`, [
      { type: 'open', surprisal: true },
      { type: 'text', text: 'The harbour master ' },
      { type: 'generate', maxTokens: TOKENS, seed: 3, run: 1 },
    ])
    const row = page.locator('.grid [data-id="story"]')
    await until(async () => /writing([\d,]+)/.test((await row.textContent()) ?? '')).toBe(true)
    await kill(worker.child)
    await until(() => events.textContent()).toContain('stopped answering; the log has partition 0 at pulse')
    await until(() => page.locator('#workers-table tbody').textContent()).toContain('does not answer')
    const left = Number(/partition 0 at pulse ([\d,]+)/.exec((await events.textContent())!)![1]!.replaceAll(',', ''))
    expect(left).toBeLessThan(19 + TOKENS)

    await startWorker()
    const resume = events.locator('.resumed', { hasText: 'nothing lost' }).first()
    await resume.waitFor({ timeout: 30_000 })
    const [, at] = /resumed at pulse ([\d,]+), nothing lost/.exec((await resume.textContent())!)!
    expect(Number(at!.replaceAll(',', ''))).toBeGreaterThanOrEqual(left)
    await until(() => row.textContent()).toContain(`at rest${(19 + TOKENS).toLocaleString('en-US')}`)
    // What the page wrote down while it happened has each token once: the end of what the topic has.
    const runs = valuesOf<Generated>(await recordsOf(log, 'continuo.tokens'))
    const whole = `The harbour master ${runs.map(({ text }) => text).join('')}`
    await until(() => page.locator('#text .ink-written').count()).toBeGreaterThan(600)
    await until(async () => {
      const shown = (await page.locator('#text').textContent())!.replace(' opened ', '')
      return whole.slice(-shown.length) === shown
    }).toBe(true)
    expect(complaints).toEqual([])
  })

  test('together with its gateway comes back under the same page, which says that nothing is lost, and its EventSource has every token once', async () => {
    const log = logIn(temporary())
    const port = String(await freePort())
    const serve = () => serving(log, '--with-worker', '--threads', '1', '--commit-interval', '20', '--port', port)
    const first = await serve()
    const all = [first]
    onTestFinished(async () => {
      for (const { child } of all) await kill(child)
    })
    const { page } = await openPage(browser!, first.url)
    // The browser's own client of streams, which comes again by itself with the id of the last event.
    await page.evaluate(() => {
      const seen: string[] = []
      Object.assign(globalThis, { seen })
      const stream = new EventSource('/v1/sessions/tale/tokens?from=beginning')
      stream.addEventListener('message', ({ data }) => seen.push(data))
    })
    const taken = async () =>
      (await page.evaluate(() => (globalThis as unknown as { seen: string[] }).seen)).map(
        (data) => JSON.parse(data) as Generated,
      )
    await ask(`${first.url}/v1/sessions/tale/chunks`, [
      { type: 'text', text: 'Once' },
      { type: 'generate', maxTokens: TOKENS, seed: 3, run: 1 },
    ])
    const row = page.locator('.grid [data-id="tale"]')
    await until(async () => /writing([\d,]+)/.test((await row.textContent()) ?? '')).toBe(true)
    await kill(first.child)
    await page.getByText('The gateway does not answer.').waitFor()
    all.push(await serve())
    await page.getByText('Live', { exact: true }).waitFor({ timeout: 30_000 })
    await page.locator('#timeline-events .resumed', { hasText: 'All that this page had seen is in the log' }).waitFor()
    await page.locator('#timeline-events .resumed', { hasText: 'Partition 0 resumed at pulse' }).waitFor()
    await until(() => row.textContent()).toContain(`at rest${(4 + TOKENS).toLocaleString('en-US')}`)
    // Every token once, as the topic has them.
    await until(async () => (await taken()).at(-1)?.finish).toBe('length')
    const whole = valuesOf<Generated>(await recordsOf(log, 'continuo.tokens'))
    expect(await taken()).toEqual(whole)
  })
})
