// `npm run docs` serves the pages as a site on this machine and shows an edit at once; with `-- --build` it builds the
// site in tools/site/dist/, which is not under version control and no part of the package, and fails where a link leads
// nowhere. `-- --port N` takes another port.
//
// VitePress is a package of its own, so that set-up need not install it; it is installed here, where its lock file
// changed.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { fail, root } from './addon.mjs'
import { installPackages } from './packages.mjs'

const site = join(root, 'tools', 'site')

const { values } = (() => {
  try {
    return parseArgs({ options: { build: { type: 'boolean', default: false }, port: { type: 'string' } } })
  } catch (error) {
    return fail(`${error.message}: npm run docs takes --build or --port N.`)
  }
})()
installPackages(site, 'Installing VitePress, 103 MB, for the site alone …')
const { build, createServer } = await import(
  pathToFileURL(join(site, 'node_modules', 'vitepress', 'dist', 'node', 'index.js'))
)
if (values.build) {
  await build(site).catch(({ message }) => fail(message))
  console.log('The site is in tools/site/dist.')
} else {
  const server = await createServer(site, { host: '127.0.0.1', port: Number(values.port ?? 5173) })
  await server.listen()
  server.printUrls()
}
