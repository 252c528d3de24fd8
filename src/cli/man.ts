/**
 * The manual page of the command line, made from the tables of flags: man(7) as groff and mandoc read it. `npm pack`
 * writes it.
 */
import type { Command, Entry } from './command.ts'
import { COMMANDS } from './commands/index.ts'
import { version } from './version.ts'

/**
 * Text that roff takes as it stands: no escapes, hyphens that can be searched for and copied, ASCII alone, no line that
 * is a request.
 */
const roff = (text: string): string =>
  text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(
      /[\u0080-\u{10ffff}]/gu,
      (one) => `\\[u${one.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}]`,
    )
    .replace(/^(?=[.'])/gm, '\\&')

const bold = (text: string): string => `\\fB${roff(text)}\\fR`
const slanted = (text: string): string => (text === '' ? '' : ` \\fI${roff(text)}\\fR`)

const commandOf = ({ name, page, flags }: Command): readonly string[] => {
  const operands = page.args.map((arg) => slanted(arg.required ? arg.name : `[${arg.name}]`)).join('')
  return [
    `.SS ${bold(`continuo ${name}`)}${operands} [flags]`,
    roff(page.about),
    ...page.args.flatMap((arg) => ['.TP', slanted(arg.name).trim(), roff(`${arg.help}.`)]),
    ...Object.entries(flags)
      .filter(([flag]) => flag !== 'help')
      .flatMap(([flag, { hint, help, kind, required, fallback }]) => {
        const extra = required ? ' (required)' : fallback === undefined ? '' : ` (default ${fallback})`
        const more = kind === 'list' ? '; may repeat' : ''
        return ['.TP', `${bold(`--${flag}`)}${slanted(hint)}`, roff(`${help}${more}${extra}`)]
      }),
    ...(page.notes === undefined ? [] : ['.PP', roff(page.notes)]),
    ...['.PP', page.examples.length > 1 ? 'Examples:' : 'Example:', '.PP', '.nf', '.RS'],
    ...page.examples.map((example) => roff(`continuo ${example}`)),
    ...['.RE', '.fi'],
  ]
}

export const manPage = async (entries: readonly Entry[] = COMMANDS): Promise<string> => {
  const commands = await Promise.all(entries.map(({ load }) => load()))
  return [
    `.TH CONTINUO 1 "" "continuo ${version}" "User Commands"`,
    '.SH NAME',
    'continuo \\- language models that keep learning while they read, as an event\\-sourced stream processor',
    '.SH SYNOPSIS',
    `${bold('continuo')} \\fIcommand\\fR [flags]`,
    '.SH DESCRIPTION',
    roff(
      'A pulse is one token read or written: the unit in which a session keeps time. Each command also takes --help. With --json a command prints JSON alone.',
    ),
    '.SH COMMANDS',
    ...commands.flatMap(commandOf),
    '.SH ENVIRONMENT AND FILES',
    roff(
      'A flag that is not on the command line is looked for in the environment (CONTINUO_LOG for --log) and then in continuo.json, in the folder in which the command runs or where CONTINUO_CONFIG says: { "log": "file:my.db", "run": { "threads": 4 } }.',
    ),
    '.SH EXIT STATUS',
    roff(
      '0 ok, 1 failed, 2 called wrongly, 3 refused to resume; 129, 130 or 143 cut short by SIGHUP, SIGINT or SIGTERM.',
    ),
    '',
  ].join('\n')
}
