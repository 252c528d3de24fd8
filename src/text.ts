/**
 * The one decoder of keys, ids and our own JSON. A byte order mark is a character like any other: a key that begins
 * with one is another key.
 */
const decoder = new TextDecoder('utf-8', { ignoreBOM: true })

export const textOf = (bytes: Uint8Array): string => decoder.decode(bytes)
