/**
 * What zod found wrong with a value, for a sentence: the place, and what may stand there. Of a union it says only
 * "Invalid input".
 */
import type { z } from 'zod'

export interface SchemaFault {
  /** Where it stands in the value. */
  readonly path: readonly PropertyKey[]
  /** What was expected there, without a full stop. */
  readonly message: string
  /** Members that the schema does not know. */
  readonly unknown: readonly string[]
}

/** Kinds of values as JSON has them. */
const NAMES: Readonly<Record<string, string>> = { int: 'whole number', record: 'object' }
const named = (kind: string): string => NAMES[kind] ?? kind

/**
 * What a branch of a union would have taken in the place of the union; null: the kind fits, and something else of it
 * does not.
 */
const wantedBy = (issue: z.core.$ZodIssue | undefined): string | null => {
  if (issue === undefined || issue.path.length > 0) return null
  if (issue.code === 'invalid_type') return named(issue.expected)
  if (issue.code === 'invalid_value') return issue.values.map((value) => JSON.stringify(value)).join(' or ')
  return null
}

/** How far a value is from what a branch takes: tags that differ, and faults in all. */
type Distance = readonly [tags: number, faults: number]
const nearer = ([a, b]: Distance, [c, d]: Distance): number => a - c || b - d

const distanceOf = (branch: readonly z.core.$ZodIssue[]): Distance => {
  const each = branch.map((issue): Distance => {
    if (issue.code === 'invalid_union') {
      const [nearest] = issue.errors.map(distanceOf).sort(nearer)
      return nearest ?? [1, 1]
    }
    // A literal in a member is what tells one form from another.
    const isTag = issue.code === 'invalid_value' && issue.values.length === 1 && issue.path.length > 0
    return [isTag ? 1 : 0, 1]
  })
  return [each.reduce((sum, [tags]) => sum + tags, 0), each.reduce((sum, [, faults]) => sum + faults, 0)]
}

/** The fault of the branch that was meant: the nearest one whose kind fits; where none fits, the kinds that would. */
const unionFault = (issue: z.core.$ZodIssueInvalidUnion): SchemaFault => {
  if ('options' in issue && issue.options !== undefined)
    return {
      path: issue.path,
      message: `expected ${issue.options.map((option) => JSON.stringify(option)).join(' or ')}`,
      unknown: [],
    }
  const branches = issue.errors.filter((branch) => branch.length > 0)
  const kinds = [...new Set(branches.map(([first]) => wantedBy(first)).filter((kind) => kind !== null))]
  const [meant] = branches
    .filter(([first]) => wantedBy(first) === null)
    .sort((a, b) => nearer(distanceOf(a), distanceOf(b)))
  if (meant === undefined)
    return {
      path: issue.path,
      message: `expected ${kinds.length === 0 ? 'another value' : kinds.join(' or ')}`,
      unknown: [],
    }
  const inner = faultIn(meant[0]!)
  const others = inner.path.length === 0 && inner.unknown.length === 0 && kinds.length > 0
  return {
    path: [...issue.path, ...inner.path],
    message: others ? `${inner.message}, or ${kinds.join(' or ')}` : inner.message,
    unknown: inner.unknown,
  }
}

const faultIn = (issue: z.core.$ZodIssue): SchemaFault => {
  if (issue.code === 'invalid_union') return unionFault(issue as z.core.$ZodIssueInvalidUnion)
  // What is wrong with a name or a member of a map stands inside.
  if ((issue.code === 'invalid_key' || issue.code === 'invalid_element') && issue.issues.length > 0) {
    const inner = faultIn(issue.issues[0]!)
    return { ...inner, path: [...issue.path, ...inner.path] }
  }
  const message = issue.message === 'Invalid input' ? `${issue.message} (${issue.code})` : issue.message
  return { path: issue.path, message, unknown: issue.code === 'unrecognized_keys' ? issue.keys : [] }
}

/** The first fault of a value that a schema refused. */
export const schemaFault = (error: z.core.$ZodError): SchemaFault => faultIn(error.issues[0]!)
