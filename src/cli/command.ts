/** A command: a name, arguments, a table of flags, help with an example, and the function that it runs. */
import { type Flags, on, parseFlags, usage, type Values } from './flags.ts'
import { print } from './output.ts'
import { NO_SETTINGS, type Settings } from './settings.ts'

/** 0 ok, 1 failed, 2 called wrongly, 3 refused to resume; 129, 130 or 143 cut short by SIGHUP, SIGINT or SIGTERM. */
export type ExitCode = 0 | 1 | 2 | 3 | 129 | 130 | 143

export interface Argument {
  readonly name: string
  readonly help: string
  readonly required: boolean
}

const COMMON = {
  json: on('machine-readable output'),
  help: on('this text'),
} satisfies Flags

export interface CommandSpec<F extends Flags> {
  readonly name: string
  /** One or two sentences. */
  readonly about: string
  readonly args?: readonly Argument[]
  readonly flags: F
  readonly notes?: string
  /** Command lines without the leading "continuo". */
  readonly examples: readonly string[]
  /** Only the command line counts: for commands whose log nobody should name by mistake. */
  readonly unset?: true
  /**
   * `given` names the flags that the user wrote on the command line, `set` also those with a setting: a default is in
   * neither.
   */
  run(
    values: Values<F & typeof COMMON>,
    args: readonly string[],
    given: ReadonlySet<string>,
    set: ReadonlySet<string>,
  ): Promise<ExitCode>
}

export interface Command {
  readonly name: string
  readonly help: string
  readonly flags: Flags
  /** What a manual says beside the flags. */
  readonly page: {
    readonly about: string
    readonly args: readonly Argument[]
    readonly notes: string | undefined
    readonly examples: readonly string[]
  }
  run(argv: readonly string[], settings?: Settings): Promise<ExitCode>
}

/**
 * What a command is for: to have something run, to ask a model, to look at what there is, to make models, to manage a
 * log.
 */
export type Group = 'run' | 'ask' | 'look' | 'models' | 'manage'

/** A command in the list of all: its module is loaded when it is called. */
export interface Entry {
  readonly name: string
  readonly group: Group
  /** At most 25 characters: two commands stand in a row. */
  readonly summary: string
  load(): Promise<Command>
}

const WIDTH = 26

const line = (left: string, right: string): string =>
  left.length > WIDTH ? `  ${left}\n  ${' '.repeat(WIDTH)} ${right}` : `  ${left.padEnd(WIDTH)} ${right}`

/** Narrower than this, words would stand one below the other. */
const NARROWEST = 60

/**
 * A page for a terminal of this width: long lines go on below the text that they belong to. Lines that are commands
 * stay whole.
 */
export const wrapped = (page: string, width: number): string => {
  const most = Math.max(NARROWEST, width)
  return page
    .split('\n')
    .map((row) => {
      if (row.length <= most || row.startsWith('  continuo ')) return row
      const [left = ''] = /^ {2}\S.*? {2,}(?=\S)|^ */.exec(row) ?? []
      const rows = [left]
      for (const word of row.slice(left.length).split(' ')) {
        const last = rows.at(-1)!
        const begins = last.length <= left.length
        if (!begins && last.length + 1 + word.length > most) rows.push(`${' '.repeat(left.length)}${word}`)
        else rows[rows.length - 1] = begins ? `${last}${word}` : `${last} ${word}`
      }
      return rows.join('\n')
    })
    .join('\n')
}

const helpOf = <F extends Flags>({ name, about, args = [], flags, notes, examples }: CommandSpec<F>): string => {
  const operands = args.map((arg) => (arg.required ? arg.name : `[${arg.name}]`)).join(' ')
  const rows = Object.entries({ ...flags, ...COMMON }).map(([flag, { hint, help, required, fallback, kind }]) => {
    const extra = required ? ' (required)' : fallback === undefined ? '' : ` (default ${fallback})`
    return line(`--${flag}${hint === '' ? '' : ` ${hint}`}`, `${help}${kind === 'list' ? '; may repeat' : ''}${extra}`)
  })
  return [
    `continuo ${name}${operands === '' ? '' : ` ${operands}`} [flags]`,
    '',
    about,
    '',
    ...args.map((arg) => line(arg.name, arg.help)),
    ...rows,
    ...(notes === undefined ? [] : ['', notes]),
    '',
    examples.length > 1 ? 'Examples:' : 'Example:',
    ...examples.map((example) => `  continuo ${example}`),
  ].join('\n')
}

/** Where nobody looks at a terminal, lines stay whole: a pipe is searched by lines. */
export const printPage = (
  page: string,
  { isTTY, columns }: Pick<NodeJS.WriteStream, 'isTTY' | 'columns'> = process.stdout,
): void => print(isTTY && columns > 0 ? wrapped(page, columns) : page)

export const command = <F extends Flags>(spec: CommandSpec<F>): Command => {
  const { name, args = [] } = spec
  const flags = { ...spec.flags, ...COMMON }
  const help = helpOf(spec)
  return {
    name,
    help,
    flags,
    page: { about: spec.about, args, notes: spec.notes, examples: spec.examples },
    async run(argv, settings = NO_SETTINGS) {
      if (argv.includes('--help') || argv.includes('-h')) {
        printPage(help)
        return 0
      }
      settings.check(name, flags)
      const parsed = parseFlags(name, flags, argv, (flag, table) =>
        spec.unset ? undefined : settings.of(name, flag, table),
      )
      const least = args.filter(({ required }) => required).length
      if (parsed.args.length < least) {
        const missing = args[parsed.args.length]!
        throw usage(`continuo ${name} needs ${missing.name}: ${missing.help}.`)
      }
      if (parsed.args.length > args.length) {
        const surplus = parsed.args[args.length]
        throw usage(
          `continuo ${name} takes ${args.length === 0 ? 'flags only' : args.map((arg) => arg.name).join(' ')}; "${surplus}" is too much.`,
        )
      }
      return spec.run(parsed.values, parsed.args, parsed.given, parsed.set)
    },
  }
}
