/**
 * The programs of docs/clients.md, run as they stand there but for the address.
 *
 * @module-tag slow
 */
import { spawn, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ROOT } from '../../cli/helpers.ts'
import { type Serving, servingAll } from '../helpers.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
beforeAll(async () => {
  gateway = await servingAll((end) => ends.push(end))
})
afterAll(() => Promise.all(ends.map((end) => end())))

const page = readFileSync(join(ROOT, 'docs', 'clients.md'), 'utf8')
const programs = [...page.matchAll(/^## (.+)\n\n```(js|sh)\n([\s\S]*?)^```$/gm)].map(
  ([, title, language, program]) => [title!, language!, program!] as const,
)

/** Modules are looked for from the current folder on. */
const run = (command: string, args: readonly string[], input: string) =>
  new Promise<{ readonly code: number | null; readonly out: string; readonly err: string }>((resolve) => {
    const child = spawn(command, args, { cwd: ROOT })
    let [out, err] = ['', '']
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      out += text
    })
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      err += text
    })
    child.once('close', (code) => resolve({ code, out, err }))
    child.stdin.end(input)
  })
const hasTools = ['curl', 'jq'].every((command) => spawnSync(command, ['--version']).status === 0)

test('the page has a program for each client', () => {
  expect(programs.map(([title]) => title)).toEqual([
    ...["OpenAI's SDK", "Anthropic's SDK", "Vercel's AI SDK", 'LangChain.js', "OpenAI's Agents SDK", 'curl'],
  ])
})

describe.each(programs)('%s', (_title, language, program) => {
  test.skipIf(language === 'sh' && !hasTools)('runs as the page has it', async () => {
    const text = program.replaceAll('http://127.0.0.1:8080', gateway.url)
    expect(text).not.toBe(program)
    const { code, out, err } = await (language === 'js'
      ? run(process.execPath, ['--input-type=module', '-'], text)
      : run('sh', ['-s'], text))
    expect({ code, err }).toEqual({ code: 0, err: '' })
    expect(out).toMatch(/\S/)
  })
})
