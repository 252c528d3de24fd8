/**
 * The options of a bench, by node:util's parseArgs, and --help: what stands at the head of its file, and its options
 * with their defaults.
 */
import { readFileSync } from 'node:fs'
import { type ParseArgsConfig, parseArgs as parse } from 'node:util'

/** The comment at the head of the script, without its stars. */
const aboutOf = (script: string): string => {
  const [, comment = ''] = /\/\*\*([\s\S]*?)\*\//.exec(readFileSync(script, 'utf8')) ?? []
  return comment.replace(/^ ?\*? ?/gm, '').trim()
}

const optionLine = ([name, { type, default: fallback }]: [
  string,
  { readonly type: 'string' | 'boolean'; readonly default?: unknown },
]): string => `  --${name}${type === 'string' ? ` (default: ${fallback ?? 'none'})` : ''}`

/**
 * As parseArgs of node:util. With --help it prints and ends the process; what it does not take ends it with a sentence
 * and code 2.
 */
export const parseArgs = <T extends ParseArgsConfig>(config: T = {} as T): ReturnType<typeof parse<T>> => {
  const script = process.argv[1] ?? ''
  const { options = {} } = config
  if ((config.args ?? process.argv.slice(2)).some((word) => word === '--help' || word === '-h')) {
    console.log([aboutOf(script), '', 'Options:', ...Object.entries(options).map(optionLine)].join('\n'))
    process.exit(0)
  }
  try {
    return parse(config)
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : error}. --help lists the options.`)
    process.exit(2)
  }
}
