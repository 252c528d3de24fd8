// `npm run docs:api` makes the reference of the library (src/index.ts) in dist/api/, which is not under version control
// and no part of the package. A name without a doc comment, a type that is not in the reference and a link that leads
// nowhere are errors. Further arguments are TypeDoc's: `-- --out DIR`.
//
// TypeDoc needs a compiler with an API in JavaScript, and that of the project has none. So it has a package of its own,
// with its own compiler.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { fail, node, root } from './addon.mjs'
import { installPackages } from './packages.mjs'

const home = join(root, 'tools', 'api')
installPackages(home, 'Installing TypeDoc, for the reference alone …')
const typedoc = join(home, 'node_modules', 'typedoc', 'bin', 'typedoc')
const { status, error } = spawnSync(node, [typedoc, ...process.argv.slice(2)], { cwd: home, stdio: 'inherit' })
if (status !== 0) fail(`TypeDoc failed${error === undefined ? '.' : `: ${error.message}`}`)
