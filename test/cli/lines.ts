/**
 * Runs command lines one after the other in this process, which a start of its own for each would outlast many times. A
 * message is one line with its environment; behind all that it writes to standard output and standard error stands a
 * mark, on standard output with the exit code.
 */
import { runLine } from '../../src/cli/dispatch.ts'
import { hideSqliteWarning } from '../../src/streams/embedded/quiet.ts'

export interface Line {
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string | undefined>>
  readonly mark: string
}

/** Commands leave listeners, because a process of their own ends with them. */
const SIGNALS = ['SIGHUP', 'SIGINT', 'SIGTERM']

hideSqliteWarning()
process.on('disconnect', () => process.exit())
process.on('message', async ({ args, env, mark }: Line) => {
  for (const name of Object.keys(process.env)) if (!(name in env)) delete process.env[name]
  Object.assign(process.env, env)
  const code = await runLine(args)
  for (const signal of SIGNALS) process.removeAllListeners(signal)
  process.stderr.write(mark)
  process.stdout.write(`${mark}${code}\n`)
})
