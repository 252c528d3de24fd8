/**
 * The files of the console's page, read once: modules of src/console, and uPlot's from its package. Nothing comes from
 * another host.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, extname, join } from 'node:path'
import type { FastifyInstance } from 'fastify'
import { sha256 } from '../../hash.ts'

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
}

const HEADERS = {
  // No inline script or style, nothing from elsewhere, no frame around the page.
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-cache',
}

/** By path. The page is at /, the other files below /console/. */
const readFiles = (): ReadonlyMap<string, { readonly file: string; readonly bytes: Buffer; readonly tag: string }> => {
  const page = join(import.meta.dirname, '..', '..', 'console')
  const plot = dirname(createRequire(import.meta.url).resolve('uplot/package.json'))
  const own = readdirSync(page).filter((name) => TYPES[extname(name)] !== undefined)
  const files: readonly (readonly [path: string, file: string])[] = [
    ...own.map((name) => [name === 'index.html' ? '/' : `/console/${name}`, join(page, name)] as const),
    ['/console/uplot.js', join(plot, 'dist', 'uPlot.esm.js')],
    ['/console/uplot.css', join(plot, 'dist', 'uPlot.min.css')],
  ]
  return new Map(
    files.map(([path, file]) => {
      const bytes = readFileSync(file)
      return [path, { file, bytes, tag: `"${sha256(bytes).slice(0, 32)}"` }]
    }),
  )
}

/** They need no key: they say nothing of the log. */
export const consoleFiles = (app: FastifyInstance): void => {
  for (const [path, { file, bytes, tag }] of readFiles())
    app.get(path, { config: { open: true, rateLimit: false } }, (request, reply) => {
      reply.headers({ ...HEADERS, etag: tag, 'content-type': TYPES[extname(file)]! })
      return request.headers['if-none-match'] === tag ? reply.code(304).send() : reply.send(bytes)
    })
}
