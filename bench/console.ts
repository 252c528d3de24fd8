/**
 * How smoothly the console runs before many sessions: pictures a second while nothing but the log moves, and while
 * somebody scrolls through all rows.
 *
 *   node bench/console.ts [--sessions 10000] [--live 64] [--seconds 10]
 *
 * A worker makes the sessions; then `--live` of them read and write without a pause, and Chromium (headless, so without
 * a GPU: it draws in software) shows the page. Measured inside the page: the times between two calls of
 * requestAnimationFrame, and tasks that held the page for more than 50 ms. Worker, gateway and browser share the
 * machine, so each takes time from the others; --live 0 shows the page alone.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { openBrowser, openPage } from '../test/console/browser.ts'
import { feedMany, idOf } from '../test/console/many.ts'
import { parseArgs } from './options.ts'
import { modelDir, quantile, servedAt } from './support.ts'

const { values } = parseArgs({
  options: {
    sessions: { type: 'string', default: '10000' },
    live: { type: 'string', default: '64' },
    seconds: { type: 'string', default: '10' },
  },
})
const [sessions, live, seconds] = [values.sessions, values.live, values.seconds].map(Number) as [number, number, number]
const main = join(import.meta.dirname, '..', 'src', 'cli', 'main.ts')
const folder = mkdtempSync(join(tmpdir(), 'continuo-console-'))
const log = `file:${join(folder, 'log.db')}`

const run = async (...args: readonly string[]): Promise<void> => {
  const child = spawn(process.execPath, [main, ...args], { stdio: 'ignore' })
  const [code] = (await once(child, 'exit')) as [number]
  if (code !== 0) throw new Error(`continuo ${args[0]} ended with ${code}`)
}

interface Measured {
  readonly gaps: readonly number[]
  readonly long: readonly number[]
}

/** Frames for so long; `scrolls`: through all rows and back, a bit with each picture. */
const measure = (page: Page, scrolls: boolean): Promise<Measured> =>
  page.evaluate<Measured>(
    `new Promise((resolve) => {
    const grid = document.querySelector('.grid')
    const gaps = [], long = []
    const watch = new PerformanceObserver((list) => long.push(...list.getEntries().map(({ duration }) => duration)))
    watch.observe({ entryTypes: ['longtask'] })
    const began = performance.now()
    let last = began, step = 61
    const look = (now) => {
      gaps.push(now - last)
      last = now
      if (${scrolls}) {
        if (grid.scrollTop + grid.clientHeight >= grid.scrollHeight - 1) step = -Math.abs(step) * 7
        if (grid.scrollTop === 0) step = Math.abs(step)
        grid.scrollTop += step * 8
      }
      if (now - began < ${seconds * 1000}) requestAnimationFrame(look)
      else { watch.disconnect(); resolve({ gaps: gaps.slice(1), long }) }
    }
    requestAnimationFrame(look)
  })` as never,
  )

const line = (name: string, { gaps, long }: Measured): string => {
  const total = gaps.reduce((sum, gap) => sum + gap, 0)
  const rate = (gaps.length / total) * 1000
  const slow = gaps.filter((gap) => gap > 25).length
  return `${name.padEnd(22)} ${rate.toFixed(1).padStart(6)} frames/s  median ${quantile(gaps, 0.5).toFixed(1)} ms  95% ${quantile(gaps, 0.95).toFixed(1)} ms  99% ${quantile(gaps, 0.99).toFixed(1)} ms  over 25 ms: ${((100 * slow) / gaps.length).toFixed(1)}%  tasks over 50 ms: ${long.length}`
}

await feedMany(log, sessions)
await run('run', '--log', log, '--model', modelDir, '--until-idle', '100', '--log-level', 'silent')
const { serving, url } = await servedAt(log, '--threads', '1')
const browser = await openBrowser()
try {
  const { page } = await openPage(browser, url)
  await page.locator(`.grid[aria-rowcount="${sessions + 1}"]`).waitFor({ timeout: 120_000 })
  console.log(
    `${cpus().length} CPUs, ${cpus()[0]!.model}; Chromium ${browser.version()}, headless; ${sessions} sessions`,
  )
  console.log(line('at rest', await measure(page, false)))
  console.log(line('at rest, scrolling', await measure(page, true)))
  const rows = 'document.querySelectorAll(".grid [data-id]").length'
  console.log(`rows that exist: ${await page.evaluate(rows)}`)
  for (let at = 0; at < live; at += 1)
    await fetch(`${url}/v1/sessions/${idOf(at * Math.floor(sessions / live))}/chunks`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify([
        { type: 'text', text: 'The harbour master ' },
        { type: 'generate', maxTokens: 100_000, seed: at },
      ]),
    })
  if (live > 0) {
    console.log(line(`${live} live`, await measure(page, false)))
    console.log(line(`${live} live, scrolling`, await measure(page, true)))
  }
} finally {
  await browser.close()
  serving.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
}
