/**
 * Where a text gives no place to cut, it is cut after so many UTF-16 units, counted from where the piece in hand began and so
 * independent of chunks. It bounds every part of what is held back. Part of the state format.
 */
export const MOST_HELD = 4096

/** `at`, or one less where that would halve a surrogate pair. */
export const wholeAt = (text: string, at: number): number => {
  if (at >= text.length) return text.length
  const unit = text.charCodeAt(at)
  const before = text.charCodeAt(at - 1)
  return unit >= 0xdc00 && unit < 0xe000 && before >= 0xd800 && before < 0xdc00 ? at - 1 : at
}
