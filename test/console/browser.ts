/**
 * A real Chromium for the tests of the console's page; without one they are skipped, and the report says what to
 * install.
 */
import { accessSync, constants, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { delimiter, join } from 'node:path'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { expect } from 'vitest'

const NAMES = ['chromium', 'chromium-browser', 'google-chrome']

const canRun = (file: string): boolean => {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}

const found = (): string | null => {
  const { CHROMIUM: given, PATH = '' } = process.env
  if (given !== undefined && given !== '') return given
  const files = PATH.split(delimiter).flatMap((folder) => NAMES.map((name) => join(folder, name)))
  return files.find(canRun) ?? null
}

/** The path of a Chromium: CHROMIUM, or one on PATH; null: there is none. */
export const chromiumPath = found()
if (chromiumPath === null)
  console.warn(
    'There is no Chromium, so the page of the console is not tested: apt-get install chromium, or set CHROMIUM.',
  )

export const openBrowser = (): Promise<Browser> =>
  chromium.launch({
    executablePath: chromiumPath!,
    // Chromium's sandbox refuses root.
    args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
  })

/** `expect.poll` with the patience that a browser on a busy machine needs. */
export const until = <T>(read: () => T | Promise<T>) => expect.poll(read, { timeout: 100_000 })

export interface Opened {
  readonly page: Page
  /** What the page complained of: uncaught errors, errors on its console, refusals of the content security policy. */
  readonly complaints: string[]
}

/** The page at this address, in a context of its own. */
export const openPage = async (browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Opened> => {
  const context = await browser.newContext({ viewport: { width: 1440, height: 1000 }, ...options })
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('pageerror', (error) => complaints.push(error.message))
  page.on('console', (message) => {
    // The browser notes each answer that is no success here; what the page makes of it, the tests look at.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      complaints.push(message.text())
  })
  await page.goto(url)
  return { page, complaints }
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** What axe finds wrong with the page: all of its rules, those for good practice too. */
export const violationsOf = async (page: Page): Promise<string[]> => {
  // By the debugger's protocol, as the policy of the page lets in no script from elsewhere.
  await page.evaluate(axe)
  return page.evaluate(async () => {
    const run = (globalThis as unknown as { axe: { run(): Promise<{ violations: Violation[] }> } }).axe.run
    const { violations } = await run()
    return violations.flatMap(({ id, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')}: ${failureSummary}`),
    )
  })
}

interface Violation {
  readonly id: string
  readonly nodes: readonly { readonly target: readonly string[]; readonly failureSummary?: string }[]
}

/** The number in the box of a stage of the pipeline, and the rate on the arrow behind it. */
export const stageOf = async (page: Page, name: string): Promise<{ inside: string; rate: string }> => {
  const stage = page.locator('.stage', { has: page.getByRole('heading', { name, exact: true }) })
  return {
    inside: (await stage.locator('.number').textContent()) ?? '',
    rate: (await stage.locator('.rate').first().textContent()) ?? '',
  }
}
