/**
 * The screenshots of docs/console.md and README.md, from a real run: `node tools/console-shots.ts [FOLDER]` (default
 * docs/console).
 *
 * A gateway with a worker reads the shipped tale in sessions that tell their surprisal, a generation is under way, one
 * event is a dead letter, and the process is killed and comes back before the pictures are taken. Further pictures are
 * of a model with an external memory and of one with experts on a torus. Needs Chromium (CHROMIUM, or on PATH).
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { factsFrom, longText, question, told } from '../src/cli/demo/facts.ts'
import { chromiumPath, openBrowser } from '../test/console/browser.ts'

const root = join(import.meta.dirname, '..')
const target = process.argv[2] ?? join(root, 'docs', 'console')
const tale = readFileSync(join(root, 'docs', 'demo', 'harbour-log.txt'), 'utf8')
const folder = mkdtempSync(join(tmpdir(), 'continuo-shots-'))

const NAMES =
  'harbour-log night-watch ledger letters-home tide-table cargo pilot lamp-room winter-1884 crew customs rope-walk weather wreck'.split(
    ' ',
  )

interface Serving {
  readonly child: ChildProcess
  readonly url: string
}

const serve = async (name: string, model: string, ...more: readonly string[]): Promise<Serving> => {
  const child = spawn(
    process.execPath,
    [
      ...[
        join(root, 'src', 'cli', 'main.ts'),
        'serve',
        '--log',
        `file:${name}.db`,
        '--model',
        join(root, 'models', model),
      ],
      ...['--with-worker', '--port', '0', '--json', '--log-level', 'silent', ...more],
    ],
    { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] },
  )
  let out = ''
  for await (const piece of child.stdout!) {
    out += String(piece)
    const [, url] = /"url":"([^"]+)"/.exec(out) ?? []
    if (url !== undefined) return { child, url }
  }
  throw new Error(`The gateway ended before it listened: ${out}`)
}

const kill = async ({ child }: Serving): Promise<void> => {
  child.kill('SIGKILL')
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
}

const post = async ({ url }: Serving, session: string, events: readonly object[]): Promise<void> => {
  const response = await fetch(`${url}/v1/sessions/${session}/chunks`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(events),
  })
  if (!response.ok) throw new Error(await response.text())
}

const pieces = (from: number, to: number, size: number): object[] =>
  Array.from({ length: Math.ceil((to - from) / size) }, (_, i) => ({
    type: 'text',
    text: tale.slice(from + i * size, Math.min(to, from + (i + 1) * size)),
  }))

/** The page on this gateway, with this session chosen. */
const open = async (browser: Browser, { url }: Serving, theme: 'light' | 'dark', session: string): Promise<Page> => {
  const context = await browser.newContext({ viewport: { width: 1360, height: 1000 }, colorScheme: theme })
  const page = await context.newPage()
  await page.goto(url)
  await page.locator(`.grid [data-id="${session}"]`).click()
  await page.locator('#text span').first().waitFor()
  return page
}

const shoot = async (page: Page, name: string, height?: number): Promise<void> => {
  const path = join(target, `${name}.png`)
  await page.evaluate('scrollTo(0, 0)')
  const clip = height === undefined ? {} : { clip: { x: 0, y: 0, width: 1360, height } }
  await page.screenshot({ path, fullPage: true, ...clip })
  console.log(`${name}.png, ${Math.round(statSync(path).size / 1024)} KiB`)
}

const wholePage = async (browser: Browser): Promise<void> => {
  const flags = ['--snapshot-every', '128']
  let serving = await serve('tale', 'demo', ...flags)
  for (const [at, name] of NAMES.entries())
    await post(serving, name, [
      { type: 'open', surprisal: true },
      ...pieces(at * 700, at * 700 + (at === 0 ? 1600 : 500), 125),
      ...(at === 0 ? [] : [{ type: 'generate', maxTokens: 20 * at, seed: at, temperature: 0.8, topP: 0.95 }]),
    ])
  await post(serving, 'nobody', [{ type: 'generate', maxTokens: 20 }])
  await new Promise((resolve) => setTimeout(resolve, 4000))
  await kill(serving)
  serving = await serve('tale', 'demo', ...flags)
  const pages = await Promise.all(
    (['light', 'dark'] as const).map(async (theme) => ({
      theme,
      page: await open(browser, serving, theme, 'harbour-log'),
    })),
  )
  await post(serving, 'harbour-log', [
    ...pieces(1600, 3600, 200),
    { type: 'generate', maxTokens: 288, seed: 11, temperature: 0.8, topP: 0.95 },
  ])
  await post(serving, 'night-watch', [{ type: 'generate', maxTokens: 50_000, seed: 12, temperature: 0.8, topP: 0.95 }])
  for (const { page } of pages) await page.locator('#text .ink-written').nth(17).waitFor({ timeout: 120_000 })
  for (const { theme, page } of pages) {
    await page.mouse.move(0, 0)
    await shoot(page, theme)
    if (theme === 'light') await shoot(page, 'overview', 1230)
  }
  await kill(serving)
}

const memoryPage = async (browser: Browser): Promise<void> => {
  const serving = await serve('memory', 'recall', '--snapshot-every', '4096')
  const [fact] = factsFrom(7, 1)
  const long = told(longText(tale, 60_000, 7), [fact!], 200, 1600)
  await post(serving, 'long-text', [
    { type: 'open', memory: true, surprisal: true },
    ...Array.from({ length: 15 }, (_, i) => ({ type: 'text', text: long.slice(i * 4000, (i + 1) * 4000) })),
    { type: 'text', text: question(fact!) },
    { type: 'generate', maxTokens: 64, temperature: 0, stop: ['\n'] },
  ])
  const page = await open(browser, serving, 'light', 'long-text')
  await page.locator('#blocks-now', { hasText: /brought back: \d/ }).waitFor({ timeout: 240_000 })
  await page.locator('#blocks').screenshot({ path: join(target, 'blocks.png') })
  console.log(await page.locator('#blocks-now').textContent())
  await kill(serving)
}

const torusPage = async (browser: Browser): Promise<void> => {
  const serving = await serve('torus', 'perspective')
  await post(serving, 'views', [
    { type: 'open', perspectives: true, surprisal: true },
    ...pieces(0, 400, 200),
    { type: 'generate', maxTokens: 200, seed: 3, temperature: 0.8 },
  ])
  const page = await open(browser, serving, 'dark', 'views')
  await page.locator('#torus-now', { hasText: /tokens went over/ }).waitFor({ timeout: 120_000 })
  await page.locator('#text .ink-written').nth(10).waitFor({ timeout: 120_000 })
  await page.locator('#torus').screenshot({ path: join(target, 'torus.png') })
  console.log(await page.locator('#torus-now').textContent())
  await kill(serving)
}

if (chromiumPath === null) process.exit(1)
mkdirSync(target, { recursive: true })
const browser = await openBrowser()
try {
  await wholePage(browser)
  await memoryPage(browser)
  await torusPage(browser)
} finally {
  await browser.close()
  rmSync(folder, { recursive: true, force: true })
}
