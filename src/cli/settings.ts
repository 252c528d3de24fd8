/**
 * Values of flags that do not stand on the command line. Each source overrules the ones before it:
 *
 *   the default of the flag
 *   continuo.json       { "log": "kafka://…", "threads": 4, "run": { "metrics-port": 9464 } }: of every command, and of one command
 *   CONTINUO_LOG, …     the name of the flag in capitals, with _ for -
 *   --log, …
 *
 * The file is that of the folder in which the command runs, or the one that CONTINUO_CONFIG names. A value from here
 * never makes a command refuse another flag: who wrote it did not write it for this call.
 */
import { readFileSync, statSync } from 'node:fs'
import { messageOf } from '../errors.ts'
import { parseJson } from '../json.ts'
import { type Flag, type Flags, isUsage, nearest, type Setting, usage } from './flags.ts'

const FILE = 'continuo.json'
const MOST_BYTES = 1 << 20

/**
 * Flags that are for one call alone, or whose names in the environment are older than this: CONTINUO_SEAL_KEY is a key,
 * not its file.
 */
const NEVER = new Set(['help'])
const NOT_IN_ENVIRONMENT = new Set([...NEVER, 'seal-key'])

type Table = Readonly<Record<string, unknown>>

export interface Settings {
  /**
   * Reads the value of a flag of a command; undefined where none is set. Throws a usage error for a value that no flag
   * can have.
   */
  of(command: string, name: string, flag: Flag<unknown>): Setting | undefined
  /** Throws a usage error for a name in the command's own part of the file that is no flag of it. */
  check(command: string, flags: Flags): void
  /** The file, whether it is there or not. */
  readonly path: string
  /** Names in the file that are meant for every command. */
  readonly shared: readonly string[]
  /** All values as text: an error message may quote one, and hides those that are URLs. */
  readonly words: readonly string[]
}

export const NO_SETTINGS: Settings = { of: () => undefined, check: () => {}, path: FILE, shared: [], words: [] }

const isTable = (value: unknown): value is Table => typeof value === 'object' && value !== null && !Array.isArray(value)

/** No file is no settings, unless somebody named it. */
const readTable = (path: string, named: boolean): Table => {
  let text: string
  try {
    const { size } = statSync(path)
    if (size > MOST_BYTES) throw usage(`${path} has ${size} bytes; a file of settings has ${MOST_BYTES} at most.`)
    text = readFileSync(path, 'utf8')
  } catch (error) {
    if (isUsage(error)) throw error
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' && !named) return {}
    throw usage(`${path} cannot be read (${code}).`)
  }
  try {
    const table = parseJson(text, path)
    if (isTable(table)) return table
  } catch (error) {
    throw usage(`${path} is no JSON: ${messageOf(error)}`)
  }
  throw usage(`${path} holds no object; expected the names of flags with their values, as in { "log": "file:my.db" }.`)
}

/** What the flag reads, in the words of a command line. */
const wordsOf = (value: unknown, name: string, { kind, hint }: Flag<unknown>, from: string): readonly string[] => {
  if (kind === 'switch') {
    if (typeof value === 'boolean') return value ? [''] : []
    throw usage(`${from}: ${name} is true or false; ${JSON.stringify(value)} is neither.`)
  }
  const isWord = (one: unknown): one is string | number => typeof one === 'string' || typeof one === 'number'
  if (kind === 'list' && Array.isArray(value) && value.every(isWord)) return value.map(String)
  if (isWord(value)) return [String(value)]
  throw usage(
    `${from}: ${name} takes ${kind === 'list' ? `one ${hint} or an array of them` : hint}; this is neither text nor a number.`,
  )
}

const SWITCH: Readonly<Record<string, boolean>> = { 1: true, true: true, 0: false, false: false }

export const variableOf = (name: string): string => `CONTINUO_${name.toUpperCase().replaceAll('-', '_')}`

export const readSettings = (env: NodeJS.ProcessEnv = process.env): Settings => {
  const path = env.CONTINUO_CONFIG || FILE
  const table = readTable(path, Boolean(env.CONTINUO_CONFIG))
  const ownOf = (command: string): Table => (isTable(table[command]) ? table[command] : {})

  const fromEnvironment = (name: string, flag: Flag<unknown>): Setting | undefined => {
    const from = variableOf(name)
    const value = env[from]
    // A variable that is empty is as good as unset, so that a script can switch one off for a call.
    if (value === undefined || value === '' || NOT_IN_ENVIRONMENT.has(name)) return undefined
    return { words: wordsOf(flag.kind === 'switch' ? (SWITCH[value] ?? value) : value, name, flag, from), from }
  }
  const fromFile = (command: string, name: string, flag: Flag<unknown>): Setting | undefined => {
    const value = ownOf(command)[name] ?? (isTable(table[name]) ? undefined : table[name])
    if (value === undefined || value === null || NEVER.has(name)) return undefined
    return { words: wordsOf(value, name, flag, path), from: path }
  }
  const leaves = (value: unknown): readonly unknown[] =>
    typeof value === 'object' && value !== null ? Object.values(value).flatMap(leaves) : [value]

  return {
    of: (command, name, flag) => fromEnvironment(name, flag) ?? fromFile(command, name, flag),
    check: (command, flags) => {
      const wrong = Object.keys(ownOf(command)).find((name) => !Object.hasOwn(flags, name) || NEVER.has(name))
      if (wrong !== undefined) throw unknownSetting(`${path}, in "${command}"`, wrong, Object.keys(flags))
    },
    path,
    shared: Object.keys(table).filter((name) => !isTable(table[name])),
    words: [
      ...leaves(table).map(String),
      ...Object.keys(env)
        .filter((name) => name.startsWith('CONTINUO_'))
        .map((name) => env[name] ?? ''),
    ],
  }
}

export const unknownSetting = (where: string, name: string, known: readonly string[]): Error => {
  const meant = nearest(name, known)
  return usage(`${where}: ${name} is no flag${meant === null ? '' : `; did you mean ${meant}?`}`)
}
