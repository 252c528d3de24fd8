/**
 * docs/first-stream.md: each of its commands, as it stands there, prints what stands below it.
 *
 * @module-tag slow
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { continuo, ROOT, temporary } from './helpers.ts'

interface Shown {
  /** Standard input, where the command has `echo "…" |` in front. */
  readonly input: string | undefined
  readonly args: readonly string[]
  readonly lines: readonly string[]
}

/** The commands of a page's blocks, each with the lines below it. */
const commandsIn = (page: string): readonly Shown[] =>
  [...page.matchAll(/^```\n(.*?)^```$/gms)].flatMap(([, block = '']) =>
    block
      .split(/^\$ /m)
      .slice(1)
      .map((shown) => {
        const [command = '', ...lines] = shown.trimEnd().split('\n')
        const [, input, line] = /^(?:echo "([^"]*)" \| )?continuo (.*)$/.exec(command) ?? []
        if (line === undefined) throw new Error(`This test runs no such command: ${command}`)
        return { input: input === undefined ? undefined : `${input}\n`, args: line.split(' '), lines }
      }),
  )

/** Ids of requests are drawn, and speeds are those of a machine. */
const withoutOwn = (text: string): string =>
  text.replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, 'ID').replaceAll(/[\d,]+ tokens\/s/g, 'N tokens/s')

test('what docs/first-stream.md shows is what its commands print', async () => {
  const log = `file:${join(temporary(), 'first.db')}`
  const inPlace = (text: string): string => text.replaceAll('file:.continuo/first.db', log)
  const commands = commandsIn(readFileSync(join(ROOT, 'docs', 'first-stream.md'), 'utf8'))
  expect(commands.length).toBeGreaterThan(5)
  for (const { input, args, lines } of commands) {
    const { code, out, err } = await continuo(args.map(inPlace), { cwd: ROOT, ...(input !== undefined && { input }) })
    expect([code, err], args.join(' ')).toEqual([0, expect.anything()])
    const printed = withoutOwn(`${out}\n${err}`)
      .split('\n')
      .map((line) => line.trimEnd())
    for (const line of lines) if (line !== '…') expect(printed, args.join(' ')).toContain(withoutOwn(inPlace(line)))
  }
})
