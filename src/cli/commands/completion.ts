/** Scripts that complete commands, flags and their choices in a shell, made from the tables of flags. */
import { type Command, command, type Entry } from '../command.ts'
import { type Flag, usage } from '../flags.ts'
import { print } from '../output.ts'

const SHELLS = ['bash', 'zsh', 'fish'] as const
type Shell = (typeof SHELLS)[number]

interface Known {
  readonly name: string
  readonly summary: string
  readonly flags: readonly (readonly [string, Flag<unknown>])[]
}

/** What a flag can be, where it is one of a few words. */
const choicesOf = ({ kind, hint }: Flag<unknown>): readonly string[] =>
  kind !== 'switch' && /^[\w-]+(\|[\w-]+)+$/.test(hint) ? hint.split('|') : []

/** A word of a script in single quotes. bash and zsh have no escape in them, fish has. */
const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`
const quoteFish = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`

const bash = (commands: readonly Known[]): string => {
  const words = (list: readonly string[]): string => `COMPREPLY=($(compgen -W ${quote(list.join(' '))} -- "$word"))`
  return [
    '# bash completion of continuo: source <(continuo completion bash)',
    '_continuo() {',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: variables of the shell.
    '  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} name=${COMP_WORDS[1]}',
    '  COMPREPLY=()',
    `  if [ "$COMP_CWORD" -eq 1 ]; then ${words([...commands.map(({ name }) => name), '--help', '--version'])}; return; fi`,
    '  case "$name $before" in',
    ...commands.flatMap(({ name, flags }) =>
      flags
        .filter(([, flag]) => choicesOf(flag).length > 0)
        .map(([flag, table]) => `    '${name} --${flag}') ${words(choicesOf(table))}; return ;;`),
    ),
    '  esac',
    // Anything else than a flag is a file, which bash completes by itself.
    '  case "$word" in -*) ;; *) return ;; esac',
    '  case "$name" in',
    ...commands.map(({ name, flags }) => `    ${name}) ${words(flags.map(([flag]) => `--${flag}`))} ;;`),
    '  esac',
    '}',
    'complete -o default -F _continuo continuo',
  ].join('\n')
}

const zsh = (commands: readonly Known[]): string => {
  const plain = (text: string): string => text.replace(/[[\]:\\]/g, '\\$&')
  const values = (flag: Flag<unknown>): string => {
    if (flag.kind === 'switch') return ''
    const choices = choicesOf(flag)
    const among = choices.length > 0 ? `(${choices.join(' ')})` : /FILE|DIR/.test(flag.hint) ? '_files' : ''
    return `:${plain(flag.hint)}:${among}`
  }
  const spec = ([name, flag]: readonly [string, Flag<unknown>]): string =>
    quote(
      `${flag.kind === 'list' ? '*' : ''}--${name}${flag.kind === 'switch' ? '' : '='}[${plain(flag.help)}]${values(flag)}`,
    )
  return [
    '#compdef continuo',
    '# zsh completion of continuo: source <(continuo completion zsh), or the file _continuo in a folder of $fpath',
    '_continuo() {',
    '  local -a commands',
    `  commands=(${commands.map(({ name, summary }) => quote(`${name}:${summary}`)).join(' ')})`,
    '  if (( CURRENT == 2 )); then _describe command commands; return; fi',
    '  local name=$words[2]',
    '  shift words',
    '  (( CURRENT -= 1 ))',
    '  case $name in',
    ...commands.map(({ name, flags }) => `    ${name}) _arguments ${flags.map(spec).join(' ')} '*:file:_files' ;;`),
    '  esac',
    '}',
    'if [ "$funcstack[1]" = _continuo ]; then _continuo "$@"; else compdef _continuo continuo; fi',
  ].join('\n')
}

const fish = (commands: readonly Known[]): string => {
  const values = (flag: Flag<unknown>): string => {
    const choices = choicesOf(flag)
    if (flag.kind === 'switch') return ''
    return choices.length > 0 ? ` -x -a ${quoteFish(choices.join(' '))}` : ' -r'
  }
  return [
    '# fish completion of continuo: continuo completion fish | source',
    ...commands.flatMap(({ name, summary, flags }) => [
      `complete -c continuo -f -n __fish_use_subcommand -a ${name} -d ${quoteFish(summary)}`,
      ...flags.map(
        ([flag, table]) =>
          `complete -c continuo -n '__fish_seen_subcommand_from ${name}' -l ${flag}${values(table)} -d ${quoteFish(table.help)}`,
      ),
    ]),
  ].join('\n')
}

const WRITERS: Readonly<Record<Shell, (commands: readonly Known[]) => string>> = { bash, zsh, fish }

/** `entries`: all commands. They are handed in, because their list has this command, too. */
export const completionOf = (entries: readonly Entry[]): Command =>
  command({
    name: 'completion',
    about: 'Prints a script that completes commands, flags and their choices in a shell.',
    args: [{ name: 'SHELL', help: SHELLS.join(', '), required: true }],
    flags: {},
    notes:
      'bash and zsh: source <(continuo completion bash) in the file that the shell reads when it starts. fish: continuo completion fish | source.',
    examples: ['completion bash', 'completion zsh', 'completion fish'],
    async run({ json }, [name]) {
      if (json) throw usage('continuo completion prints a script and has no --json.')
      const shell = SHELLS.find((one) => one === name)
      if (shell === undefined) throw usage(`Scripts are written for ${SHELLS.join(', ')}; "${name}" is none of them.`)
      const commands = await Promise.all(
        entries.map(async ({ name, summary, load }) => ({
          name,
          summary,
          flags: Object.entries((await load()).flags),
        })),
      )
      print(WRITERS[shell](commands))
      return 0
    },
  })
