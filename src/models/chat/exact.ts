/** JSON that keeps its numbers as they were written, for arguments that a template shows again. */

/** JSON of the ECMAScript proposal "JSON.parse source text access", which the TypeScript library does not know yet. */
const Raw = JSON as unknown as {
  rawJSON(text: string): { readonly rawJSON: string }
  isRawJSON(value: unknown): value is { readonly rawJSON: string }
  parse(
    text: string,
    reviver: (name: string, value: unknown, context: { readonly source?: string }) => unknown,
  ): unknown
}
/**
 * A number that JavaScript has not as it was written: an integer of many digits, or one that was no integer for its
 * writer (1.0).
 */
export const isRaw = (value: unknown): value is { readonly rawJSON: string } => Raw.isRawJSON(value)
/** JSON whose numbers stay as they were written. Throws a SyntaxError. */
export const parseExact = (text: string): unknown =>
  Raw.parse(text, (_, value, { source }) =>
    typeof value === 'number' && source !== undefined && String(value) !== source ? Raw.rawJSON(source) : value,
  )
