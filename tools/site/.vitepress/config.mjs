// The site of `npm run docs`. Its pages lie where they are read without it, and are not copied; ../pages.ts lists them.
import { existsSync, globSync } from 'node:fs'
import { join, relative } from 'node:path'
import { defineConfig } from 'vitepress'
import { anchorOf, FILES, PARTS, placeOf, targetOf } from '../pages.ts'

const site = join(import.meta.dirname, '..')
const root = join(site, '..', '..')

/**
 * A link to a page becomes one of the site, and a link to another file of the repository, which the site does not have,
 * becomes text that names it. Anything else fails the build.
 */
const lead = (file, token) => {
  const link = token.attrGet('href')
  const target = targetOf(file, link)
  if (target === null) return
  const { path, anchor } = target
  if (FILES.includes(path)) {
    token.attrSet('href', path === file && anchor !== '' ? anchor : `/${placeOf(path)}${anchor}`)
    return
  }
  if (!existsSync(join(root, path))) throw new Error(`${file}: the link ${link} leads to no file.`)
  token.attrs = [['title', `${path}, in the repository`]]
}

const links = (md) => {
  md.core.ruler.push('repository_links', ({ tokens, env }) => {
    const file = relative(root, env.realPath ?? env.path)
    for (const { children } of tokens)
      for (const token of children ?? []) if (token.type === 'link_open') lead(file, token)
  })
}

/** Pages and VitePress lie in different folders, so neither finds the other's packages where it looks for them. */
const packages = {
  name: 'packages-of-the-site',
  enforce: 'post',
  // Named from the folder of the pages; without being bundled first they are served as they are.
  config: ({ optimizeDeps }) => {
    optimizeDeps.include = optimizeDeps.include?.filter((name) => !name.startsWith('vitepress >'))
  },
}
const vueOfTheBuild = {
  name: 'vue-of-the-build',
  enforce: 'pre',
  // Node resolves it when it renders the pages; for the browser VitePress does.
  resolveId: (id, _, { ssr }) => (ssr && /^vue(\/|$)/.test(id) ? { id, external: true } : null),
}

const linkOf = ([, file]) => `/${placeOf(file).replace(/(index)?\.md$/, '')}`

export default defineConfig({
  title: 'Continuo',
  description: 'Endless streams, read by a language model that learns while it reads.',
  head: [['link', { rel: 'icon', href: 'data:,' }]],
  srcDir: root,
  srcExclude: globSync('**/*.md', { cwd: root, exclude: ['**/node_modules', '.git'] }).filter(
    (file) => !FILES.includes(file),
  ),
  rewrites: placeOf,
  outDir: join(site, 'dist'),
  cacheDir: join(site, 'node_modules', '.cache'),
  markdown: { config: links, anchor: { slugify: anchorOf } },
  vite: {
    plugins: [vueOfTheBuild, packages],
    publicDir: false,
    // The folder of the pages is the whole repository: other HTML in it is no page, and only edits of pages are of
    // interest.
    optimizeDeps: { entries: [] },
    server: {
      watch: {
        ignored: (path, stats) =>
          /[/](node_modules|\.git|\.continuo|native|dist|data)([/]|$)/.test(path) ||
          (stats?.isFile() === true && !/\.(md|png)$/.test(path)),
      },
    },
    // The index of the search is one file.
    build: { chunkSizeWarningLimit: 8192 },
  },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: PARTS.map((part) => ({ text: part.title, link: linkOf(part.sections[0].pages[0]) })),
    sidebar: PARTS.map(({ title, sections }) => ({
      text: title,
      items: sections.map((section) => ({
        text: section.title,
        collapsed: section.isFolded ?? false,
        items: section.pages.map((page) => ({ text: page[0], link: linkOf(page) })),
      })),
    })),
  },
})
