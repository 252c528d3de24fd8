// `npm run docs:api` makes the reference of the library (src/index.ts) in dist/api/, which is not under version control
// and no part of the package. A name without a doc comment, a type that is not in the reference and a link that leads
// nowhere are errors. Further arguments are TypeDoc's: `-- --out DIR`.
//
// TypeDoc needs a compiler with an API in JavaScript, and that of the project has none. So it has a package of its own,
// with its own compiler.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { fail, node, root } from './addon.mjs'

const home = join(root, 'tools', 'api')
const run = (command, args) => {
  const { status, error } = spawnSync(command, args, { cwd: home, stdio: 'inherit' })
  if (status !== 0) fail(`${command} ${args.join(' ')} failed${error === undefined ? '.' : `: ${error.message}`}`)
}

run('npm', ['ci', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'])
run(node, [join(home, 'node_modules', 'typedoc', 'bin', 'typedoc'), ...process.argv.slice(2)])
