/**
 * Which pages the site has, and where each stands. `test/tools/site.test.ts` holds this list to the repository: every
 * page of docs/ stands in the sidebar once, and nothing else does that is not there.
 */
import { posix } from 'node:path'

/** A page: its title in the sidebar, and its file, relative to the root of the repository. */
export type Page = readonly [title: string, file: string]

export interface Section {
  readonly title: string
  /** Folded until one of its pages is open, so that the three parts are seen at one look. */
  readonly isFolded?: true
  readonly pages: readonly Page[]
}

export interface Part {
  readonly title: string
  readonly sections: readonly Section[]
}

export const HOME = 'README.md'

export const PARTS: readonly Part[] = [
  {
    title: 'Guide',
    sections: [
      {
        title: 'Begin',
        pages: [
          ['What it does', HOME],
          ['Install', 'docs/install.md'],
          ['First stream', 'docs/first-stream.md'],
          ['Lines that stand out', 'docs/watch.md'],
          ['Words', 'docs/glossary.md'],
        ],
      },
      {
        title: 'Use',
        pages: [
          ['Kafka', 'docs/kafka.md'],
          ['Feeding and reading topics', 'docs/streams.md'],
          ['HTTP: clients and agents', 'docs/clients.md'],
          ['The console', 'docs/console.md'],
          ['Models', 'docs/models.md'],
          ['A log in your program', 'docs/library.md'],
          ['Sessions in your program', 'docs/sessions.md'],
          ['Examples', 'examples/README.md'],
        ],
      },
      {
        title: 'Shipped models',
        isFolded: true,
        pages: [
          ['models/watch', 'models/watch/README.md'],
          ['models/watch-small', 'models/watch-small/README.md'],
          ['models/stream', 'models/stream/README.md'],
          ['models/demo', 'models/demo/README.md'],
          ['models/demo-draft', 'models/demo-draft/README.md'],
          ['models/recall', 'models/recall/README.md'],
          ['models/perspective', 'models/perspective/README.md'],
        ],
      },
      {
        title: 'Operate',
        pages: [
          ['Operations', 'docs/operations.md'],
          ['Managing a log', 'docs/manage.md'],
          ['Containers and monitoring', 'docs/deployment.md'],
          ['Security', 'SECURITY.md'],
          ['Upgrade', 'docs/upgrade.md'],
          ['Changes', 'CHANGELOG.md'],
        ],
      },
      {
        title: 'Size',
        pages: [
          ['What a session costs', 'docs/size.md'],
          ['Workers, partitions, brokers', 'docs/scale.md'],
          ['CUDA devices', 'docs/gpu.md'],
        ],
      },
    ],
  },
  {
    title: 'Reference',
    sections: [
      {
        title: 'Interfaces',
        pages: [
          ['Commands', 'docs/commands.md'],
          ['Settings', 'docs/settings.md'],
          ['Topics and events', 'docs/events.md'],
          ['HTTP', 'docs/serve.md'],
          ['Formats, byte by byte', 'docs/formats.md'],
        ],
      },
      {
        title: 'What is promised',
        pages: [
          ['Guarantees', 'docs/guarantees.md'],
          ['Arithmetic', 'docs/arithmetic.md'],
        ],
      },
      {
        title: 'Text',
        pages: [
          ['Tokenizers', 'docs/tokenizers.md'],
          ['Grammars', 'docs/grammars.md'],
        ],
      },
    ],
  },
  {
    title: 'Internals',
    sections: [
      {
        title: 'The code',
        isFolded: true,
        pages: [
          ['One token', 'docs/one-token.md'],
          ['Architecture', 'docs/architecture.md'],
          ['Graphs of models', 'docs/graph.md'],
          ['Speculation', 'docs/speculation.md'],
          ['Experts on disk', 'docs/experts.md'],
        ],
      },
      {
        title: 'Families of models',
        isFolded: true,
        pages: [
          ['ngram', 'docs/ngram.md'],
          ['Decoders', 'docs/decoders.md'],
          ['Infinite context', 'docs/infinite-context.md'],
          ['Hybrids', 'docs/hybrids.md'],
          ['Titans', 'docs/titans.md'],
          ['perspective', 'docs/perspective.md'],
        ],
      },
      {
        title: 'Work on it',
        isFolded: true,
        pages: [
          ['Contributing', 'CONTRIBUTING.md'],
          ['Tests', 'docs/testing.md'],
          ['Training', 'train/README.md'],
          ['Stand-ins for images', 'tools/containers/stand-ins/README.md'],
          ['Performance', 'docs/performance.md'],
          ['Beside llama.cpp', 'bench/peers/README.md'],
          ['The package', 'docs/packaging.md'],
          ['Texts of the models', 'docs/data.md'],
        ],
      },
    ],
  },
]

export const pagesOf = ({ sections }: Part): readonly Page[] => sections.flatMap(({ pages }) => pages)

/** Every file that is a page of the site. */
export const FILES: readonly string[] = PARTS.flatMap(pagesOf).map(([, file]) => file)

/** Where a page lies in the site: those of docs/ at its root, a README under the name of its folder. */
export const placeOf = (file: string): string => {
  if (file === HOME) return 'index.md'
  if (file.startsWith('docs/')) return file.slice('docs/'.length)
  return file.endsWith('/README.md') ? `${posix.dirname(file)}.md` : file
}

/**
 * The path that a link of a page leads to, relative to the root of the repository, and what follows it (`#heading`);
 * null for other hosts.
 */
export const targetOf = (file: string, link: string): { readonly path: string; readonly anchor: string } | null => {
  if (/^[a-z]+:/i.test(link)) return null
  const [, path = '', anchor = ''] = /^([^#]*)(#.*)?$/.exec(link) ?? []
  return { path: path === '' ? file : posix.join(posix.dirname(file), path), anchor }
}

/** The anchor that GitHub gives a heading; the site gives the same, so that links with one lead to it in both. */
export const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')
