/**
 * docs/commands.md: every command with its flags, from the tables that parse them. `--help` and the manual page come
 * from the same ones.
 */
import type { Command, Entry, Group } from '../../src/cli/command.ts'
import { COMMANDS } from '../../src/cli/commands/index.ts'
import type { Flag } from '../../src/cli/flags.ts'
import { code, fenced, page, prose, table } from './markdown.ts'

const TITLES: Readonly<Record<Group, string>> = {
  run: 'Run',
  ask: 'Ask a model',
  look: 'Look at what there is',
  models: 'Make models',
  manage: 'Manage a log',
}

/** In every table, and said once at the top. */
const EVERYWHERE = new Set(['help', 'json'])

const flagRow = ([name, { hint, help, kind, required, fallback }]: readonly [string, Flag<unknown>]) => [
  code(`--${name}${hint === '' ? '' : ` ${hint}`}`),
  `${prose(help)}${kind === 'list' ? '; may repeat' : ''}`,
  required ? 'required' : fallback === undefined ? '' : code(fallback),
]

const sectionOf = ({ name, page: { about, args, notes, examples }, flags }: Command) => {
  const operands = args.map((arg) => (arg.required ? ` ${arg.name}` : ` [${arg.name}]`)).join('')
  const rows = Object.entries(flags).filter(([flag]) => !EVERYWHERE.has(flag))
  return [
    `### continuo ${name}`,
    prose(about),
    fenced('', [`continuo ${name}${operands} [flags]`]),
    ...(args.length === 0
      ? []
      : [
          table(
            ['argument', ''],
            args.map((arg) => [code(arg.name), prose(arg.help)]),
          ),
        ]),
    ...(rows.length === 0 ? [] : [table(['flag', '', 'default'], rows.map(flagRow))]),
    ...(notes === undefined ? [] : [prose(notes)]),
    examples.length > 1 ? 'Examples:' : 'Example:',
    fenced(
      '',
      examples.map((example) => `continuo ${example}`),
    ),
  ]
}

const groupOf = async (group: Group, entries: readonly Entry[]) => {
  const commands = await Promise.all(entries.map(({ load }) => load()))
  const links = entries.map(({ name, summary }) => [`[${name}](#continuo-${name})`, summary])
  return [`## ${TITLES[group]}`, table(['command', ''], links), ...commands.flatMap(sectionOf)]
}

export const commandsPage = async (): Promise<string> => {
  const groups = [...Map.groupBy(COMMANDS, ({ group }) => group)]
  return page([
    '# Commands',
    'Made by `node tools/reference.ts` from the tables that the commands read their flags by; an edit of this page is lost.',
    [
      'In a checkout `npm run continuo --` stands for `continuo`, in a project that installed the package `npx continuo`. Each command also takes `--help`',
      'and `--json`, with which it prints JSON alone. Flags can stand in `continuo.json` and in the environment ([settings.md](settings.md)). A pulse is one token',
      'read or written.',
    ],
    'Exit codes: 0 ok, 1 failed, 2 called wrongly, 3 refused to resume; 129, 130 or 143 cut short by SIGHUP, SIGINT or SIGTERM.',
    ...(await Promise.all(groups.map(([group, entries]) => groupOf(group, entries)))).flat(),
  ])
}
