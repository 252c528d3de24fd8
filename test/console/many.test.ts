/**
 * 10,000 sessions before the page: only the rows that are seen exist, and every session can be reached. How many
 * pictures a second that gives is measured by bench/console.ts.
 *
 * @module-tag slow
 */
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { runUntilIdle, temporary } from '../cli/helpers.ts'
import { ask, endWithTest, logIn, serving } from '../gateway/helpers.ts'
import { chromiumPath, openBrowser, openPage, until } from './browser.ts'
import { feedMany, idOf } from './many.ts'

const COUNT = 10_000
/** Rows of a screen and those beyond its edges. */
const MOST_ROWS = 60

let browser: Browser | undefined
beforeAll(async () => {
  if (chromiumPath !== null) browser = await openBrowser()
})
afterAll(() => browser?.close())

test.skipIf(chromiumPath === null)(
  '10,000 sessions are rows of one grid, of which few exist',
  { timeout: 300_000 },
  async () => {
    const log = logIn(temporary())
    await feedMany(log, COUNT)
    await runUntilIdle(log)
    const gateway = await serving(log, '--with-worker', '--threads', '1')
    endWithTest(gateway)
    const { page, complaints } = await openPage(browser!, gateway.url)
    onTestFinished(() => page.context().close())
    const grid = page.locator('.grid')
    await until(() => grid.getAttribute('aria-rowcount')).toBe(String(COUNT + 1))
    const rows = grid.locator('[data-id]')
    await page.locator('button.sort').first().click()
    await until(() => rows.first().getAttribute('data-id')).toBe(idOf(0))
    expect(await rows.count()).toBeLessThan(MOST_ROWS)

    await grid.focus()
    await page.keyboard.press('End')
    await until(() => grid.locator(`[data-id="${idOf(COUNT - 1)}"]`).count()).toBe(1)
    const active = await grid.getAttribute('aria-activedescendant')
    expect(await page.locator(`#${active}`).getAttribute('data-id')).toBe(idOf(COUNT - 1))
    expect(await rows.count()).toBeLessThan(MOST_ROWS)
    await page.keyboard.press('Enter')
    await until(() => page.locator('#session-id').textContent()).toBe(idOf(COUNT - 1))

    // What is seen lives: a session in the middle, found by name, reads.
    const middle = idOf(COUNT / 2)
    await page.locator('#sessions-find').fill(middle)
    await until(() => grid.getAttribute('aria-rowcount')).toBe('2')
    await ask(`${gateway.url}/v1/sessions/${middle}/chunks`, { type: 'text', text: 'It lives.' })
    await until(() => rows.first().textContent()).toMatch(new RegExp(`^${middle}at rest9`))
    await page.locator('#sessions-find').fill('')
    await until(() => grid.getAttribute('aria-rowcount')).toBe(String(COUNT + 1))
    expect(complaints).toEqual([])
  },
)
