// `npm run docs` serves the pages as a site on this machine and shows an edit at once; with `-- --build` it builds the
// site in tools/site/dist/, which is not under version control and no part of the package, and fails where a link leads
// nowhere. `-- --port N` takes another port.
//
// VitePress is a package of its own, so that set-up need not install it; it is installed here, where its lock file
// changed.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { fail, root } from './addon.mjs'

const site = join(root, 'tools', 'site')
const at = (...names) => join(site, 'node_modules', ...names)

const install = () => {
  const lock = createHash('sha256')
    .update(readFileSync(join(site, 'package-lock.json')))
    .digest('hex')
  const stamp = at('.continuo-lock')
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === lock) return
  console.log('Installing VitePress, 103 MB, for the site alone …')
  const flags = ['--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error']
  const { status, error } = spawnSync('npm', ['ci', ...flags], { cwd: site, stdio: 'inherit' })
  if (status !== 0) fail(`npm ci in tools/site failed${error === undefined ? '.' : `: ${error.message}`}`)
  writeFileSync(stamp, lock)
}

const { values } = (() => {
  try {
    return parseArgs({ options: { build: { type: 'boolean', default: false }, port: { type: 'string' } } })
  } catch (error) {
    return fail(`${error.message}: npm run docs takes --build or --port N.`)
  }
})()
install()
const { build, createServer } = await import(pathToFileURL(at('vitepress', 'dist', 'node', 'index.js')))
if (values.build) {
  await build(site).catch(({ message }) => fail(message))
  console.log('The site is in tools/site/dist.')
} else {
  const server = await createServer(site, { host: '127.0.0.1', port: Number(values.port ?? 5173) })
  await server.listen()
  server.printUrls()
}
