/**
 * What the schemas of Anthropic's protocol share: objects whose kind stands in one of their members, hints, and texts
 * in blocks.
 */
import { z } from 'zod'

/** A value as a sentence shows it. */
export const shown = (value: unknown): string => (JSON.stringify(value) ?? 'nothing').slice(0, 64)

/** The kinds of what `byMember` made, for whoever describes the schema: the check itself is a function. */
export const kindsOf = new WeakMap<z.core.$ZodType, readonly z.ZodType[]>()

/** Objects of several kinds. `member` says which, and `fault` what is wrong with another value of it. */
export const byMember = <T>(
  member: string,
  kinds: Readonly<Record<string, z.ZodType<T>>>,
  fault: (expected: string, received: unknown) => string,
): z.ZodType<T> => {
  const names = Object.keys(kinds)
  const expected = names.map((name) => JSON.stringify(name)).join(' or ')
  const kind = z.enum(names, { error: ({ input }) => fault(`expected ${expected}, received ${shown(input)}`, input) })
  const schema = z.looseObject({ [member]: kind }).transform((given, context): T => {
    const parsed = kinds[given[member] as string]!.safeParse(given)
    if (parsed.success) return parsed.data
    for (const issue of parsed.error.issues) context.issues.push({ ...issue, input: given } as z.core.$ZodRawIssue)
    return z.NEVER
  })
  kindsOf.set(schema, Object.values(kinds))
  return schema
}

/** Of the client's books: sessions are what keeps a context here. */
export const cache_control = z.strictObject({ type: z.literal('ephemeral'), ttl: z.string().optional() }).nullish()

export interface TextBlock {
  readonly type: 'text'
  readonly text: string
}
export const textBlock = z
  .strictObject({
    type: z.literal('text'),
    text: z.string(),
    cache_control,
    /** Notes of the maker of an earlier answer. */
    citations: z.array(z.unknown()).nullish(),
  })
  .transform(({ type, text }): TextBlock => ({ type, text }))

/** Content of such blocks. */
export const blocks = <T>(kinds: Readonly<Record<string, z.ZodType<T>>>): z.ZodType<readonly T[]> =>
  z.array(byMember('type', kinds, (fault) => `${fault}: the model reads text alone`))

/** A text, or blocks of it that stand one behind the other. */
export const texts = z.union([
  z.string(),
  blocks({ text: textBlock }).transform((all) => all.map(({ text }) => text).join('')),
])
