import { spawnSync } from 'node:child_process'
import { expect, it } from 'vitest'
import { COMMANDS } from '../../src/cli/commands/index.ts'
import { manPage } from '../../src/cli/man.ts'

const groff = spawnSync('groff', ['--version']).status === 0

it('the manual page names every command and flag, and groff finds no fault in it', async () => {
  const page = await manPage()
  const commands = await Promise.all(COMMANDS.map(({ load }) => load()))
  for (const { name, flags } of commands) {
    expect(page).toContain(`.SS \\fBcontinuo ${name}\\fR`)
    for (const flag of Object.keys(flags))
      if (flag !== 'help') expect(page).toContain(`--${flag}`.replaceAll('-', '\\-'))
  }
  // Requests begin a line; nothing else may.
  const requests = page.split('\n').filter((line) => /^[.']/.test(line))
  for (const line of requests) expect(line).toMatch(/^\.(TH|SH|SS|TP|PP|nf|fi|RS|RE)\b/)
  if (!groff) return
  const shown = spawnSync('groff', ['-man', '-Tutf8', '-ww'], { input: page, encoding: 'utf8' })
  expect({ status: shown.status, stderr: shown.stderr }).toEqual({ status: 0, stderr: '' })
})
