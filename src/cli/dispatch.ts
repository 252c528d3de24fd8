/** A command line: finds the command, runs it, and turns what it throws into one sentence and an exit code. */
import { codeOf, messageOf } from '../errors.ts'
import { CALL } from '../places.ts'
import { withoutUrls } from '../streams/shown.ts'
import { type Command, type ExitCode, printPage } from './command.ts'
import { COMMANDS } from './commands/index.ts'
import { isUsage, nearest, usage } from './flags.ts'
import { print, say } from './output.ts'
import { readSettings, type Settings, unknownSetting } from './settings.ts'
import { version } from './version.ts'

const VERSION_FLAGS = ['--version', '-V', 'version']

/** All commands by group, two a row: a terminal of 24 rows and 80 columns shows them all. */
const overview = (): string => {
  const groups = Map.groupBy(COMMANDS, ({ group }) => group)
  const rows = [...groups].flatMap(([group, entries]) => {
    const cells = entries.map(({ name, summary }) => `${name.padEnd(11)} ${summary}`)
    const half = Math.ceil(cells.length / 2)
    return cells
      .slice(0, half)
      .map((cell, at) => `${(at === 0 ? group : '').padEnd(7)}${cell.padEnd(37)}${cells[half + at] ?? ''}`.trimEnd())
  })
  return [
    'Models that learn while they read. A pulse is one token read or written.',
    `continuo <command> [flags]; not in PATH: ${CALL} <command> [flags]`,
    '',
    ...rows,
    '',
    'continuo <command> --help says more. Flags also stand in continuo.json, and in',
    'CONTINUO_LOG for --log. Exit: 0 ok, 1 failed, 2 called wrong, 3 not resumed.',
  ].join('\n')
}

const find = async (name: string): Promise<Command> => {
  const found = COMMANDS.find((entry) => entry.name === name)
  if (found !== undefined) return found.load()
  const meant = nearest(
    name,
    COMMANDS.map((entry) => entry.name),
  )
  const hint = meant === null ? '"continuo --help" lists them.' : `did you mean ${meant}?`
  throw usage(`Unknown command ${name}; ${hint}`)
}

/** Throws a usage error for a name in the file of settings that is a flag of no command. */
const checkShared = async ({ path, shared }: Settings, command: Command): Promise<void> => {
  if (shared.every((name) => Object.hasOwn(command.flags, name))) return
  const all = await Promise.all(COMMANDS.map(({ load }) => load()))
  const known = new Set(all.flatMap(({ flags }) => Object.keys(flags)))
  const wrong = shared.find((name) => !known.has(name))
  if (wrong !== undefined) throw unknownSetting(path, wrong, [...known])
}

/** `read` hears the words of settings once they are read. */
const dispatch = async (
  [name, ...argv]: readonly string[],
  read: (words: readonly string[]) => void,
): Promise<ExitCode> => {
  if (name === undefined || name === '--help' || name === '-h' || (name === 'help' && argv.length === 0)) {
    if (name === undefined) say(overview())
    else printPage(overview())
    return name === undefined ? 2 : 0
  }
  if (VERSION_FLAGS.includes(name)) {
    print(version)
    return 0
  }
  if (name === 'help') return (await find(argv[0]!)).run(['--help'])
  const command = await find(name)
  if (argv.includes('--help') || argv.includes('-h')) return command.run(['--help'])
  const settings = readSettings()
  read(settings.words)
  await checkShared(settings, command)
  return command.run(argv, settings)
}

const exitCodeOf = (error: unknown): ExitCode => {
  if (isUsage(error)) return 2
  return codeOf(error) === 'REFUSED' ? 3 : 1
}

/** Runs a command line, without the program's name, and says in one sentence what went wrong. */
export const runLine = async (line: readonly string[]): Promise<ExitCode> => {
  // What error messages must not show of URLs: words of the command line, and settings once they are read.
  const words = [...line]
  try {
    return await dispatch(line, (read) => words.push(...read))
  } catch (error) {
    say(withoutUrls(messageOf(error), words))
    if (process.env.CONTINUO_DEBUG === '1' && error instanceof Error) say(withoutUrls(error.stack ?? '', words))
    else if (codeOf(error) === 'INTERNAL') say('This is a fault of Continuo. CONTINUO_DEBUG=1 shows where it happened.')
    return exitCodeOf(error)
  }
}
