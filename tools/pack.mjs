// `npm pack` runs this first (script "prepack"): it makes what an installed package has instead of the sources.
//
//   dist/                          src/ and topics/ as JavaScript and types, the console's page as it is, and the manual page
//   prebuilds/linux-x64/           the addon, where this machine is a Linux x64; docs/packaging.md says which systems load it
//
// Prints to stderr, because `npm pack --json` prints JSON.
import { spawnSync } from 'node:child_process'
import { copyFileSync, cpSync, existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { buildAddon, fail, node, root } from './addon.mjs'
import { buildNative } from './build-native.mjs'
import { wantedSets } from './build-tools.mjs'

/**
 * The newest glibc that the packed addon may ask for: that of RHEL 9, Ubuntu 22.04, Debian 12 and Amazon Linux 2023,
 * and theirs after.
 */
const NEWEST_GLIBC = '2.34'
const TARGET = 'linux-x64'

const say = (line) => console.error(line)
const at = (...names) => join(root, ...names)

const run = (command, args) => {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd: root, encoding: 'utf8' })
  if (status !== 0) fail(`${command} ${args.join(' ')} failed:\n${error?.message ?? ''}${stdout ?? ''}${stderr ?? ''}`)
  return stdout
}

/**
 * Relative imports in types. The compiler rewrites their endings in JavaScript only, and TypeScript before 5.0 does not
 * know .ts there.
 */
const TYPE_IMPORT = /(\bfrom |\bimport\()(["'])(\.[^"'\n]*)\.ts\2/g

const compile = () => {
  rmSync(at('dist'), { recursive: true, force: true })
  run(node, [at('node_modules', 'typescript', 'bin', 'tsc'), '-p', at('tools', 'package.tsconfig.json')])
  const types = globSync('dist/**/*.d.ts', { cwd: root })
  for (const path of types) writeFileSync(at(path), readFileSync(at(path), 'utf8').replace(TYPE_IMPORT, '$1$2$3.js$2'))
  cpSync(at('src', 'console'), at('dist', 'src', 'console'), {
    recursive: true,
    filter: (path) => !path.endsWith('.json'),
  })
  // A process of its own, because npm may have started this one with a Node that is too old for the modules.
  const print = "import { manPage } from './dist/src/cli/man.js'; process.stdout.write(await manPage())"
  mkdirSync(at('dist', 'man'))
  writeFileSync(at('dist', 'man', 'continuo.1'), run(node, ['--input-type=module', '--eval', print]))
  return `dist: ${types.length} modules and the manual page`
}

/** An addon without CUDA: the one of `npm run setup` where it has none, otherwise one of its own. */
const portableAddon = () => {
  buildNative(wantedSets('all'))
  const withCuda = readFileSync(at('native', 'build', '.cuda'), 'utf8') !== 'off'
  if (!withCuda) return at('native', 'build', 'Release', 'continuo.node')
  return buildAddon('build-package', ['CONTINUO_CUDA=off'], 'the addon of the package')
}

const newer = (a, b) => a.localeCompare(b, 'en', { numeric: true }) > 0

/**
 * The newest glibc among the symbols that the addon asks for. Throws where it needs another library that a system may
 * not have.
 */
const neededGlibc = (addon) => {
  const libraries = [...run('objdump', ['-p', addon]).matchAll(/NEEDED +(\S+)/g)].map(([, name]) => name)
  const shared = libraries.find(
    (name) => !/^(libm|libgcc_s|libc|ld-linux-x86-64|libpthread|libdl|librt)\.so/.test(name),
  )
  if (shared !== undefined) fail(`The addon needs ${shared}; a packed one has libstdc++ inside. Build it with g++.`)
  return [...run('objdump', ['-T', addon]).matchAll(/\(?GLIBC_([\d.]+)\)?/g)]
    .map(([, version]) => version)
    .reduce((a, b) => (newer(b, a) ? b : a), '2.0')
}

const prebuild = () => {
  rmSync(at('prebuilds'), { recursive: true, force: true })
  if (`${process.platform}-${process.arch}` !== TARGET)
    return `prebuilds: none, this is ${process.platform} ${process.arch}`
  const addon = at('prebuilds', TARGET, 'continuo.node')
  mkdirSync(at('prebuilds', TARGET), { recursive: true })
  copyFileSync(portableAddon(), addon)
  run('strip', ['--strip-unneeded', addon])
  const glibc = neededGlibc(addon)
  if (newer(glibc, NEWEST_GLIBC))
    fail(`The addon needs glibc ${glibc}, newer than ${NEWEST_GLIBC}: pack on an older system, such as Debian 12.`)
  return `prebuilds: ${TARGET}, glibc ${glibc}`
}

if (!existsSync(node)) fail('Run `npm run setup` first: it installs the compiler of TypeScript.')
say(compile())
say(prebuild())
