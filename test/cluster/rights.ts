/**
 * The rights of a user, as the table of docs/kafka.md lists them: read from the document itself, so that what the
 * tests give is what an operator would give, and a wrong table fails them.
 */
import { readFileSync } from 'node:fs'
import {
  type AclEntry,
  AclOperationTypes as Operation,
  ResourcePatternTypes as Pattern,
  AclPermissionTypes as Permission,
  AclResourceTypes as Resource,
} from 'kafkajs'
import { topicNames } from '../../topics/index.ts'

/** What `see` abbreviates in the table. */
const WORDS: Readonly<Record<string, readonly Operation[]>> = {
  read: [Operation.READ],
  write: [Operation.WRITE],
  delete: [Operation.DELETE],
  create: [Operation.CREATE],
  describe: [Operation.DESCRIBE],
  see: [Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS],
}

const ROWS = [
  'the input',
  'tokens, observations, dead letters',
  'state',
  'snapshots',
  'blobs',
  'the group',
  'the transactional ids `<group>-<topic>-<partition>`',
] as const
type Row = (typeof ROWS)[number]

export type Rights = Readonly<Record<Row, readonly string[]>>

/** Cells of a line of a table in Markdown. */
const cells = (line: string): string[] =>
  line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim())

/** The rights of each command that the table has a column for. Throws where the table is not as expected. */
export const readRights = (): ReadonlyMap<string, Rights> => {
  const lines = readFileSync(new URL('../../docs/kafka.md', import.meta.url), 'utf8').split('\n')
  const first = lines.findIndex((line) => line.startsWith('| on | `run` |'))
  if (first < 0) throw new Error('docs/kafka.md has no table of rights that begins with "| on | `run` |".')
  const columns = cells(lines[first]!).map((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name!))
  const nothing = (): Record<Row, readonly string[]> => ({
    'the input': [],
    'tokens, observations, dead letters': [],
    state: [],
    snapshots: [],
    blobs: [],
    'the group': [],
    'the transactional ids `<group>-<topic>-<partition>`': [],
  })
  const table = new Map(columns.flat().map((name) => [name, nothing()]))
  const rows: string[] = []
  for (const line of lines.slice(first + 2)) {
    if (!line.startsWith('|')) break
    const [row, ...given] = cells(line)
    rows.push(row!)
    for (const [at, cell] of given.entries()) {
      const words = cell === '' ? [] : cell.split(', ')
      const unknown = words.find((word) => WORDS[word] === undefined)
      if (unknown !== undefined) throw new Error(`The rights table says "${unknown}", which is no right it explains.`)
      for (const name of columns[at + 1]!) table.get(name)![row as Row] = words
    }
  }
  if (rows.join() !== ROWS.join()) throw new Error(`The rights table has the rows ${rows.join('; ')}.`)
  return table
}

/** The table's rights on the topics below a prefix and on a group, as Kafka's access control entries. */
export const aclsOf = (user: string, rights: Rights, prefix: string, group: string): AclEntry[] => {
  const names = topicNames(prefix)
  const topics = (...all: readonly string[]) => all.map((name) => [Resource.TOPIC, name, Pattern.LITERAL] as const)
  const on: Readonly<Record<Row, readonly (readonly [Resource, string, Pattern])[]>> = {
    'the input': topics(names.chunks),
    'tokens, observations, dead letters': topics(names.tokens, names.observations, names.deadletters),
    state: topics(names.state),
    snapshots: topics(names.snapshots),
    blobs: topics(names.blobs),
    'the group': [[Resource.GROUP, group, Pattern.LITERAL]],
    'the transactional ids `<group>-<topic>-<partition>`': [
      [Resource.TRANSACTIONAL_ID, `${group}-${names.chunks}-`, Pattern.PREFIXED],
    ],
  }
  return ROWS.flatMap((row) =>
    rights[row].flatMap((word) =>
      WORDS[word]!.flatMap((operation) =>
        on[row].map(([resourceType, resourceName, resourcePatternType]) => ({
          resourceType,
          resourceName,
          resourcePatternType,
          principal: `User:${user}`,
          host: '*',
          operation,
          permissionType: Permission.ALLOW,
        })),
      ),
    ),
  )
}
