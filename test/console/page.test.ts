/**
 * The page in a real browser, before a gateway with a worker: what it shows, what it does, and for whom.
 *
 * @module-tag slow
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { continuo, DOCUMENT, temporary } from '../cli/helpers.ts'
import { ask, endWithTest, logIn, type Serving, serving, servingAll } from '../gateway/helpers.ts'
import { chromiumPath, type Opened, openBrowser, openPage, stageOf, until, violationsOf } from './browser.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
let browser: Browser
beforeAll(async () => {
  if (chromiumPath === null) return
  gateway = await servingAll((end) => ends.push(end), '--snapshot-every', '256')
  browser = await openBrowser()
  ends.push(() => browser.close())
})
afterAll(() => Promise.all(ends.map((end) => end())))

const post = (session: string, events: unknown) =>
  ask<{ error?: { message: string } }>(`${gateway.url}/v1/sessions/${encodeURIComponent(session)}/chunks`, events)
const text = readFileSync(DOCUMENT, 'utf8')

const opened = async (options = {}): Promise<Opened> => {
  const found = await openPage(browser, gateway.url, options)
  onTestFinished(async () => {
    await found.page.context().close()
    expect(found.complaints).toEqual([])
  })
  await found.page.getByText('Live', { exact: true }).waitFor()
  return found
}
const rowOf = (page: Page, id: string) => page.locator(`.grid [data-id="${id}"]`)

describe.skipIf(chromiumPath === null)('the page', () => {
  test('shows the pipeline at work: numbers that grow, rates on its arrows', async () => {
    const { page } = await opened()
    const before = Number((await stageOf(page, 'commit')).inside)
    await post('numbers', [
      { type: 'text', text: text.slice(0, 3000) },
      { type: 'generate', maxTokens: 600, seed: 1 },
    ])
    await until(async () => Number((await stageOf(page, 'commit')).inside)).toBeGreaterThan(before)
    // A rate is that of the last moment, so there is work until it was seen.
    await post('busy', [
      { type: 'text', text: 'On and on ' },
      { type: 'generate', maxTokens: 1_000_000, ignoreEnd: true, requestId: 'endless' },
    ])
    await until(async () => Number.parseFloat((await stageOf(page, 'tokenize · infer')).rate)).toBeGreaterThan(0)
    await post('busy', [{ type: 'cancel', requestId: 'endless' }, { type: 'delete' }])
    await until(() => rowOf(page, 'numbers').textContent()).toContain(
      (Buffer.byteLength(text.slice(0, 3000)) + 600).toLocaleString('en-US'),
    )
    await until(() => rowOf(page, 'numbers').locator('path').getAttribute('d')).toMatch(/^M.+L/)
    await until(() => page.locator('#partitions-table tbody').textContent()).toMatch(/^0running/)
    expect(await page.locator('#workers-table tbody').textContent()).toContain('this process')
    expect(await page.locator('#timeline-last').textContent()).toMatch(/commits? in two minutes/)
  })

  test('shades each token by its surprisal in two inks, and offers it to a session that does not tell', async () => {
    const { page } = await opened()
    await post('shaded', [
      { type: 'open', surprisal: true },
      { type: 'text', text: 'It was high water — über Ω xqzj' },
      { type: 'generate', maxTokens: 40, seed: 1 },
    ])
    await rowOf(page, 'shaded').click()
    const shown = page.locator('#text')
    await until(() => shown.textContent()).toContain('It was high water — über Ω xqzj')
    const read = shown.locator('.ink-read')
    expect(await read.locator('.s4, .s5').count()).toBeGreaterThan(0)
    await until(async () => (await shown.locator('.ink-written').allTextContents()).join('').length).toBe(40)

    await post('plain', { type: 'text', text: 'Nothing is told of this.' })
    await rowOf(page, 'plain').click()
    await until(() => shown.textContent()).toBe(' opened Nothing is told of this.')
    expect(await shown.locator('.s1, .s2, .s3, .s4, .s5').count()).toBe(0)
    await page.getByRole('button', { name: 'Shade it from now on' }).click()
    await until(() => page.locator('#session-note').isHidden()).toBe(true)
    await post('plain', { type: 'text', text: ' But of this: qzxj' })
    await until(() => shown.locator('.s4, .s5').count()).toBeGreaterThan(0)
  })

  test('draws a level line of a session that one commit has read', async () => {
    const { page } = await opened()
    await post('level', { type: 'text', text: text.slice(0, 70) })
    await until(() => rowOf(page, 'level').locator('path').getAttribute('d')).toMatch(/^M0\.0 ([\d.]+)L84\.0 \1$/)
  })

  test('shows the lines that stand out of a session that tells of them, and where they stand in its text', async () => {
    const { page } = await opened()
    await post('hosts', { type: 'text', text: 'Nothing is told of lines here.\n' })
    await rowOf(page, 'hosts').click()
    await until(() => page.locator('#text').textContent()).toContain('Nothing is told')
    expect(await page.locator('#lines').isHidden()).toBe(true)

    const usual = (at: number): string => `lamp ${at % 7} is lit, wick ${at % 5} trimmed\n`
    // A kind of line that comes every five and stops.
    const before = Array.from({ length: 150 }, (_, at) =>
      at < 110 && at % 5 === 0 ? `tide ${at} is told\n` : usual(at),
    ).join('')
    const odd = 'the harbour chain parted at both ends\n'
    await post('lamps', [
      { type: 'open', novelty: true, surprisal: true },
      { type: 'text', text: before },
      { type: 'text', text: odd },
      { type: 'text', text: usual(1) + odd },
    ])
    await until(() => rowOf(page, 'lamps').count()).toBe(1)
    await rowOf(page, 'lamps').click()
    const row = page.locator('#lines-list li', { hasText: odd.trim() }).last()
    await page.getByLabel('Stands out').selectOption('0.02')
    await until(() => row.textContent()).toMatch(/^151[\d:]+the harbour chain.*structure \d/)
    await until(() => page.locator('#lines-count').textContent()).toMatch(/of 153 stand out/)
    const missing = page.locator('#lines-list li', { hasText: 'where one came every 5' })
    expect(await missing.textContent()).toMatch(
      /none for \d\d lines, where one came every 5: tide <\*> is toldsilence \d/,
    )
    expect(await row.locator('.s1, .s2, .s3, .s4, .s5').count()).toBeGreaterThan(0)
    expect(await violationsOf(page)).toEqual([])
    await row.getByRole('button', { name: 'Line 151 in the text' }).click()
    await page.getByText('Line 151 is marked in the text of the session.').waitFor()
    expect((await page.locator('#text .shown').allTextContents()).join('')).toContain(odd.trim())
    // The rarer lines must be, the fewer stand out.
    const standing = async (): Promise<number> =>
      Number(/^(\d+) of 153/.exec((await page.locator('#lines-count').textContent()) ?? '')?.[1])
    await page.getByLabel('Stands out').selectOption('0.05')
    await until(standing).toBeGreaterThan(2)
    const many = await standing()
    await page.getByLabel('Stands out').selectOption('0.001')
    await until(standing).toBeLessThan(many)
  })

  test('asks for shades beside what a session tells already', async () => {
    const { page } = await opened()
    const lines = (count: number): string => 'the wick is trimmed\n'.repeat(count)
    await post('wicks', [
      { type: 'open', novelty: true },
      { type: 'text', text: lines(6) },
    ])
    await until(() => rowOf(page, 'wicks').count()).toBe(1)
    await rowOf(page, 'wicks').click()
    await until(() => page.locator('#lines-count').textContent()).toMatch(/of 6 stand out/)
    await page.getByRole('button', { name: 'Shade it from now on' }).click()
    await until(() => page.locator('#session-note').isHidden()).toBe(true)
    await post('wicks', { type: 'text', text: lines(2) })
    await until(() => page.locator('#lines-count').textContent()).toMatch(/of 8 stand out/)
  })

  test('orders sessions by what is new in them now', async () => {
    const { page } = await opened()
    const calm = 'The lamp is lit and the wick is trimmed. '.repeat(8)
    for (const [id, last] of [
      ['new-odd', 'q7#zX%k@9!vW&p$3^'.repeat(6)],
      ['new-calm', calm.slice(0, 96)],
    ] as const) {
      for (let at = 0; at < 4; at += 1) {
        await post(id, { type: 'text', text: calm.slice(at * 80, at * 80 + 80) })
        await until(() => rowOf(page, id).textContent()).toContain(`${80 * (at + 1)}`)
      }
      await post(id, { type: 'text', text: last })
    }
    await until(() => rowOf(page, 'new-odd').locator('.news').textContent()).toMatch(/^\+[1-9]/)
    await page.getByLabel('Find').fill('new-')
    await page.getByRole('button', { name: 'New', exact: true }).click()
    await until(() => page.locator('.grid [data-id]').first().getAttribute('data-id')).toBe('new-odd')
    await until(() => rowOf(page, 'new-odd').locator('.range').textContent()).toMatch(/^[\d.]+–[\d.]+$/)
  })

  test('is whole on a telephone, sessions first', async () => {
    const { page } = await opened({ viewport: { width: 390, height: 844 } })
    await post('phone', { type: 'text', text: text.slice(0, 1234) })
    await until(() => rowOf(page, 'phone').textContent()).toMatch(/1,2\d\d/)
    const cut = await page.evaluate<string[]>(`(() => {
      const texts = document.querySelectorAll('[data-id="phone"] .cell, .box .number, .box .unit, .box .note, .box h3, .grid-head .cell')
      return [...texts].filter((e) => e.clientWidth > 0 && e.scrollWidth > e.clientWidth).map((e) => e.textContent)
    })()`)
    expect(cut).toEqual([])
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390)
    const top = async (id: string): Promise<number> => (await page.locator(id).boundingBox())!.y
    expect(await top('#sessions')).toBeLessThan(await top('#pipeline'))
    expect(await violationsOf(page)).toEqual([])
  })

  test('draws the norms of the memory with each snapshot', async () => {
    const { page } = await opened()
    await post('norms', { type: 'text', text: text.slice(0, 2000) })
    await rowOf(page, 'norms').click()
    await until(() => page.locator('#heat-now').textContent()).toMatch(/^Pulse [\d,]+: \d+ norms, the largest \d/)
    const inks = await page.evaluate(`(() => {
      const canvas = document.getElementById('heat')
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
      return new Set(new Uint32Array(data.buffer)).size
    })()`)
    expect(inks).toBeGreaterThan(2)
  })

  test('asks, and follows the answer', async () => {
    const { page } = await opened()
    await page.getByLabel('Session', { exact: true }).fill('asked')
    await page.getByLabel('Text', { exact: true }).fill('The harbour master ')
    await page.getByLabel('Tokens', { exact: true }).fill('40')
    await page.getByRole('button', { name: 'Send' }).click()
    await page.getByText('The answer has 40 tokens (length).').waitFor()
    // A token is a byte here, and a character may take several.
    const answer = (await page.locator('#ask-answer').textContent())!
    expect(answer.length).toBeGreaterThan(0)
    expect(answer.length).toBeLessThanOrEqual(40)
    expect(await page.locator('#session-id').textContent()).toBe('asked')
  })

  test('lists dead letters and sends one again, which works once its cause is gone', async () => {
    const { page } = await opened()
    await post('late', { type: 'generate', requestId: 'r', maxTokens: 4 })
    const letter = page.locator('#letters-table tr', { hasText: 'late' })
    await letter.getByText('nothing to continue').waitFor()
    await post('late', { type: 'text', text: 'Now there is something' })
    await until(() => rowOf(page, 'late').count()).toBe(1)
    await letter.getByRole('button', { name: /Replay/ }).click()
    await page.getByText(/The event went into the input again, at partition 0, offset \d+\./).waitFor()
    await rowOf(page, 'late').click()
    await until(async () => (await page.locator('#text .ink-written').allTextContents()).join('').length).toBe(4)
    await until(() => page.locator('#timeline-events').textContent()).toContain('went into the input again')
  })

  test('names of any length and direction leave the rest of the page in its place', async () => {
    const { page } = await opened()
    const id = `long-\u202e${'x'.repeat(480)}-end`
    await post(id, { type: 'generate', requestId: 'r', maxTokens: 4 })
    const letter = page.locator('#letters-table tbody tr', { hasText: '-end' })
    await letter.getByText('nothing to continue').waitFor()
    const name = letter.locator('td').nth(1).locator('bdi')
    expect([...(await name.textContent())!]).toHaveLength(47)
    expect(await name.getAttribute('title')).toBe(id)
    const reason = letter.locator('td').nth(3)
    const { width } = page.viewportSize()!
    const box = (await reason.boundingBox())!
    expect(box.x + box.width).toBeLessThanOrEqual(width)
    // Of a session that long, too.
    await post(id, { type: 'text', text: 'Now there is something' })
    await rowOf(page, id).click()
    await until(() => page.locator('#session-id').getAttribute('title')).toBe(id)
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width)
  })

  test('verifies a log at rest', async () => {
    const { page } = await opened()
    await post('read', [
      { type: 'text', text: 'Once' },
      { type: 'generate', maxTokens: 100, seed: 1 },
    ])
    await until(() => rowOf(page, 'read').textContent()).toContain('at rest104')
    await page.getByRole('button', { name: 'Verify', exact: true }).click()
    await page.locator('#verify-status', { hasText: 'Everything agrees.' }).waitFor({ timeout: 90_000 })
    await until(() => page.locator('#timeline-events').textContent()).toContain('everything agrees')
  })

  test('says why it verifies nothing where events are not read yet', async () => {
    const log = logIn(temporary())
    await continuo(['feed', '--log', log, '--session', 's', DOCUMENT])
    const alone = await serving(log)
    endWithTest(alone)
    const { page } = await openPage(browser, alone.url)
    onTestFinished(() => page.context().close())
    await page.getByText('Live', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Verify', exact: true }).click()
    await page.getByText('verify needs a log at rest').waitFor()
  })

  test.each(['light', 'dark'] as const)('axe finds nothing wrong with it, %s', async (colorScheme) => {
    const { page } = await opened({ colorScheme })
    await post('axe', [
      { type: 'open', surprisal: true },
      { type: 'text', text: text.slice(0, 800) },
      { type: 'generate', maxTokens: 64, seed: 1 },
    ])
    await rowOf(page, 'axe').click()
    await until(() => page.locator('#text .ink-written').count()).toBeGreaterThan(0)
    expect(await violationsOf(page)).toEqual([])
  })

  test('can be used with a keyboard alone', async () => {
    const { page } = await opened()
    await post('key-1', { type: 'text', text: 'a' })
    await post('key-2', { type: 'text', text: 'b' })
    await until(() => rowOf(page, 'key-2').count()).toBe(1)
    await page.keyboard.press('Tab')
    expect(await page.evaluate('document.activeElement.textContent')).toBe('Skip to the sessions')
    await page.keyboard.press('Enter')
    await page.keyboard.press('Tab')
    expect(await page.evaluate('document.activeElement.id')).toBe('sessions-find')
    await page.keyboard.type('key-')
    await until(() => page.locator('.grid').getAttribute('aria-rowcount')).toBe('3')
    await page.keyboard.press('Tab')
    expect(await page.evaluate('document.activeElement.getAttribute("role")')).toBe('grid')
    // The first head that sorts: by session.
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    await until(() => page.locator('[role=columnheader]').first().getAttribute('aria-sort')).toBe('ascending')
    await page.keyboard.press('Shift+Tab')
    await page.keyboard.press('End')
    const active = await page.locator('.grid').getAttribute('aria-activedescendant')
    expect(await page.locator(`#${active}`).getAttribute('data-id')).toBe('key-2')
    await page.keyboard.press('ArrowUp')
    await page.keyboard.press('Enter')
    await until(() => page.locator('#session-id').textContent()).toBe('key-1')
  })

  test('asks for a key where the gateway does, and keeps it for its tab', async () => {
    const keys = join(temporary(), 'keys.json')
    const [key] = /ck_\S+/.exec((await continuo(['keys', 'add', 'me', '--keys', keys])).out)!
    const guarded = await servingAll((end) => ends.push(end), '--keys', keys)
    const { page, complaints } = await openPage(browser, guarded.url)
    onTestFinished(() => page.context().close())
    const field = page.getByLabel('Key', { exact: true })
    await field.fill('ck_wrong')
    await page.keyboard.press('Enter')
    await page.getByText('This key is not known here.').waitFor()
    expect(await violationsOf(page)).toEqual([])
    await field.fill(key!)
    await page.getByRole('button', { name: 'Use it' }).click()
    await page.getByText('Live', { exact: true }).waitFor()
    await page.reload()
    await page.getByText('Live', { exact: true }).waitFor()
    expect(await page.evaluate('localStorage.getItem("continuo-key")')).toBeNull()
    expect(complaints).toEqual([])
  })

  test('keeps still for those who ask for it, and remembers the theme', async () => {
    const { page } = await opened({ reducedMotion: 'reduce' })
    expect(await page.evaluate('getComputedStyle(document.querySelector(".arrow .run")).animationName')).toBe('none')
    await page.getByRole('button', { name: 'Theme: system' }).click()
    await page.getByRole('button', { name: 'Theme: light' }).click()
    await page.reload()
    await page.getByRole('button', { name: 'Theme: dark' }).waitFor()
    expect(await page.evaluate('document.documentElement.dataset.theme')).toBe('dark')
  })
})
