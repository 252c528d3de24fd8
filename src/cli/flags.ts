/**
 * The flags of a command as one table: parsing, defaults, `--help` and the sentences about misspelt flags come from it.
 */
import { parseArgs } from 'node:util'
import { ContinuoError } from '../errors.ts'

export interface Flag<T> {
  readonly kind: 'value' | 'list' | 'switch'
  /** Stands for the value in the help: `URL`, `N`, `json|text`. */
  readonly hint: string
  readonly help: string
  /** The default, as the help shows it. */
  readonly fallback?: string
  readonly required?: boolean
  /** A former name, which is still accepted. */
  readonly formerly?: string
  /** `given` holds the values in the order they came. Throws what is wrong with them. */
  read(given: readonly string[], name: string): T
}

export type Flags = Readonly<Record<string, Flag<unknown>>>
export type Values<F extends Flags> = { readonly [Name in keyof F]: F[Name] extends Flag<infer T> ? T : never }

const USAGE = Symbol('usage')

/** The command was called wrongly: exit code 2. */
export const usage = (message: string): ContinuoError => new ContinuoError('INVALID', message, { cause: USAGE })
export const isUsage = (error: unknown): boolean => error instanceof ContinuoError && error.cause === USAGE

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i

export interface Range {
  readonly min?: number
  readonly max?: number
}

const inRange = (value: number, { min = -Infinity, max = Infinity }: Range): boolean => value >= min && value <= max

/** A whole number has a bound even where the table names none: beyond it, neighbours are one and the same double. */
const rangeText = ({ min, max }: Range, whole: boolean): string => {
  if (whole && max === undefined) return ` from ${min ?? '-(2^53-1)'} to 2^53-1`
  if (min !== undefined && max !== undefined) return ` from ${min} to ${max}`
  if (min !== undefined) return ` from ${min} on`
  return max === undefined ? '' : ` up to ${max}`
}

const numberOf = (text: string, name: string, whole: boolean, range: Range): number => {
  const value = NUMBER.test(text) ? Number(text) : Number.NaN
  if (Number.isFinite(value) && inRange(value, range) && (!whole || Number.isSafeInteger(value))) return value
  throw usage(`--${name} takes a ${whole ? 'whole number' : 'number'}${rangeText(range, whole)}; "${text}" is none.`)
}

const notEmpty = (text: string, name: string): string => {
  if (text === '') throw usage(`--${name} needs a value, this one is empty.`)
  return text
}

export const needed = (hint: string, help: string): Flag<string> => ({
  kind: 'value',
  hint,
  help,
  required: true,
  read: (given, name) => notEmpty(given.at(-1)!, name),
})

export const optional = (hint: string, help: string): Flag<string | undefined> => ({
  kind: 'value',
  hint,
  help,
  read: (given, name) => (given.length === 0 ? undefined : notEmpty(given.at(-1)!, name)),
})

export const text = (hint: string, help: string, fallback: string): Flag<string> => ({
  kind: 'value',
  hint,
  help,
  fallback,
  read: (given, name) => notEmpty(given.at(-1) ?? fallback, name),
})

export const list = (hint: string, help: string): Flag<readonly string[]> => ({
  kind: 'list',
  hint,
  help,
  read: (given) => given,
})

export const on = (help: string): Flag<boolean> => ({
  kind: 'switch',
  hint: '',
  help,
  read: (given) => given.length > 0,
})

const oneOf = <T extends string>(options: readonly T[], value: string, name: string): T => {
  const known = options.find((option) => option === value)
  if (known === undefined) throw usage(`--${name} is one of ${options.join(', ')}; "${value}" is none of them.`)
  return known
}

export const choice = <const T extends string>(options: readonly T[], help: string, fallback: NoInfer<T>): Flag<T> => ({
  kind: 'value',
  hint: options.join('|'),
  help,
  fallback,
  read: (given, name) => oneOf(options, given.at(-1) ?? fallback, name),
})

export const optionalChoice = <const T extends string>(options: readonly T[], help: string): Flag<T | undefined> => ({
  kind: 'value',
  hint: options.join('|'),
  help,
  read: (given, name) => (given.length === 0 ? undefined : oneOf(options, given.at(-1)!, name)),
})

const number =
  (whole: boolean) =>
  (hint: string, help: string, fallback: number, range: Range = {}): Flag<number> => ({
    kind: 'value',
    hint,
    help,
    fallback: String(fallback),
    read: (given, name) => (given.length === 0 ? fallback : numberOf(given.at(-1)!, name, whole, range)),
  })

export const whole = number(true)
export const real = number(false)

export const neededWhole = (hint: string, help: string, range: Range = {}): Flag<number> => ({
  kind: 'value',
  hint,
  help,
  required: true,
  read: (given, name) => numberOf(given.at(-1)!, name, true, range),
})

const optionalNumber =
  (whole: boolean) =>
  (hint: string, help: string, range: Range = {}): Flag<number | undefined> => ({
    kind: 'value',
    hint,
    help,
    read: (given, name) => (given.length === 0 ? undefined : numberOf(given.at(-1)!, name, whole, range)),
  })

export const optionalWhole = optionalNumber(true)
export const optionalReal = optionalNumber(false)

/** The flag under a new name; the former one goes on to work. */
export const formerly = <T>(name: string, flag: Flag<T>): Flag<T> => ({ ...flag, formerly: name })

/** Edits between two names, a swap of neighbours counting one (optimal string alignment). */
const distance = (a: string, b: string): number => {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)]
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i]
    for (let j = 1; j <= b.length; j += 1) {
      const change = a[i - 1] === b[j - 1] ? 0 : 1
      let best = Math.min(rows[i - 1]![j]! + 1, row[j - 1]! + 1, rows[i - 1]![j - 1]! + change)
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        best = Math.min(best, rows[i - 2]![j - 2]! + 1)
      row.push(best)
    }
    rows.push(row)
  }
  return rows[a.length]![b.length]!
}

/** The known name that was probably meant, or null. */
export const nearest = (name: string, known: readonly string[]): string | null => {
  const plain = (text: string): string => text.toLowerCase().replace(/[-_]/g, '')
  let best: string | null = null
  let least = Math.max(2, Math.floor(name.length / 3)) + 1
  for (const candidate of known) {
    const edits = distance(plain(name), plain(candidate))
    if (edits < least) {
      least = edits
      best = candidate
    }
  }
  return best ?? known.find((candidate) => name.length > 2 && candidate.startsWith(name)) ?? null
}

const unknown = (written: string, known: readonly string[], command: string): ContinuoError => {
  const name = written.replace(/^-+/, '')
  const meant = nearest(name, known)
  const hint = meant === null ? `"continuo ${command} --help" lists the flags.` : `did you mean --${meant}?`
  return usage(`Unknown flag ${written}; ${hint}`)
}

/** A value of a flag from elsewhere than the command line (settings.ts), and where it stands, for error messages. */
export interface Setting {
  readonly words: readonly string[]
  readonly from: string
}

export interface Parsed<F extends Flags> {
  readonly values: Values<F>
  readonly args: readonly string[]
  /** Names of the flags that stood on the command line. */
  readonly given: ReadonlySet<string>
  /** Those, and the ones that have a setting: everything that is not a default. */
  readonly set: ReadonlySet<string>
}

/** Reads a value; where it is a setting, an error says so. */
const readFlag = (flag: Flag<unknown>, name: string, words: readonly string[], from: string | undefined): unknown => {
  try {
    return flag.read(words, name)
  } catch (error) {
    throw from !== undefined && isUsage(error)
      ? usage(`${(error as Error).message} The value is that of ${from}.`)
      : error
  }
}

/**
 * Reads a command line by the table. Throws a usage error whose sentence says what to write instead. `settingOf`: the
 * values of flags that are not there.
 */
export const parseFlags = <F extends Flags>(
  command: string,
  flags: F,
  argv: readonly string[],
  settingOf: (name: string, flag: Flag<unknown>) => Setting | undefined = () => undefined,
): Parsed<F> => {
  const names = Object.keys(flags)
  const renamed = new Map(
    names.flatMap((name) => (flags[name]!.formerly === undefined ? [] : [[flags[name]!.formerly, name]])),
  )
  const options = Object.fromEntries(
    [...names.map((name) => [name, name] as const), ...renamed].map(([written, name]) => [
      written,
      { type: flags[name]!.kind === 'switch' ? 'boolean' : 'string', multiple: true } as const,
    ]),
  )
  const { tokens } = parseArgs({
    args: [...argv],
    options: { ...options, h: { type: 'boolean', multiple: true } },
    allowPositionals: true,
    strict: false,
    tokens: true,
  })
  const given = new Map<string, string[]>()
  const args: string[] = []
  for (const token of tokens) {
    if (token.kind === 'positional') args.push(token.value)
    if (token.kind !== 'option') continue
    const { value, inlineValue, rawName } = token
    const name = renamed.get(token.name) ?? token.name
    const flag = Object.hasOwn(flags, name) ? flags[name] : undefined
    if (flag === undefined || !rawName.startsWith('--')) throw unknown(rawName, names, command)
    if (flag.kind === 'switch') {
      if (value !== undefined) throw usage(`--${name} takes no value; "${value}" was given.`)
    } else if (value === undefined) {
      throw usage(`--${name} needs a value: --${name} ${flag.hint}.`)
    } else if (inlineValue === false && /^-./.test(value) && !NUMBER.test(value)) {
      throw usage(
        `--${name} needs a value and is followed by ${value}. If that is the value, write --${name}=${value}.`,
      )
    }
    const values = given.get(name) ?? []
    if (values.length > 0 && flag.kind === 'value') throw usage(`--${name} was given twice; say it once.`)
    given.set(name, [...values, value ?? ''])
  }
  const values: Record<string, unknown> = {}
  const set = new Set(given.keys())
  for (const name of names) {
    const flag = flags[name]!
    const setting = given.has(name) ? undefined : settingOf(name, flag)
    if (setting !== undefined) set.add(name)
    const found = given.get(name) ?? setting?.words ?? []
    if (flag.required && found.length === 0)
      throw usage(`continuo ${command} needs --${name} ${flag.hint}: ${flag.help}.`)
    values[name] = readFlag(flag, name, found, setting?.from)
  }
  return { values: values as Values<F>, args, given: new Set(given.keys()), set }
}

/**
 * For flags that mean something only beside `partner`, where that is missing: given all the same, they are a usage
 * error.
 */
export const refuseIdle = (given: ReadonlySet<string>, names: readonly string[], partner: string): void => {
  const idle = names.find((name) => given.has(name))
  if (idle !== undefined) throw usage(`--${idle} goes with ${partner}; here it would do nothing.`)
}
