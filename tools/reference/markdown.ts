/** Text of others as Markdown that GitHub and the site read alike. */

const PAGE = /\bdocs\/([\w-]+\.md)\b/g

/** A sentence: its pages become links, and nothing else of it is markup but what stands between backticks. */
export const prose = (text: string): string =>
  text
    .split(/(`[^`]*`)/)
    .map((part, at) => (at % 2 === 1 ? part : part.replace(/[\\<>*_[\]]/g, '\\$&').replace(PAGE, '[$1]($1)')))
    .join('')

export const code = (text: string): string => `\`${text}\``

const cell = (text: string): string => text.replaceAll('|', '\\|')

export const table = (head: readonly string[], rows: readonly (readonly string[])[]): readonly string[] =>
  [head, head.map(() => '---'), ...rows].map((row) => `| ${row.map(cell).join(' | ')} |`)

export const fenced = (language: string, lines: readonly string[]): readonly string[] => [
  `\`\`\`${language}`,
  ...lines,
  '```',
]

/** Blocks with an empty line between each two. */
export const page = (blocks: readonly (string | readonly string[])[]): string =>
  `${blocks.map((block) => (typeof block === 'string' ? block : block.join('\n'))).join('\n\n')}\n`
