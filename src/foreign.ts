/**
 * What a file is that was taken for another: told by its first bytes, before anything that it says of sizes is
 * believed.
 */

/** Bytes of a beginning that tell. */
export const LOOKED = 512

const starts = (bytes: Uint8Array, ...first: readonly number[]): boolean =>
  first.every((byte, at) => bytes[at] === byte)

const UNPACK = 'Unpack it, and name what was in it.'
/** By the first bytes of each format, as libmagic lists them. */
const PACKED: readonly (readonly [first: readonly number[], what: string])[] = [
  [[0x1f, 0x8b], 'gzip'],
  [[0x28, 0xb5, 0x2f, 0xfd], 'Zstandard'],
  [[0xfd, 0x37, 0x7a, 0x58, 0x5a], 'xz'],
  [[0x42, 0x5a, 0x68], 'bzip2'],
  [[0x37, 0x7a, 0xbc, 0xaf], '7-Zip'],
]

/**
 * The end of a sentence that begins with the name of a file of which these are the first bytes, and what to do; null:
 * it is none of what people find in the place of models and their files. A zip archive may be a file of torch.save, and
 * text JSON: neither is told here.
 */
export const foreign = (bytes: Uint8Array): string | null => {
  if (bytes.length === 0) return 'is empty (0 bytes). Fetch it again.'
  if (bytes.length >= 8 && bytes.subarray(0, LOOKED).every((byte) => byte === 0))
    return 'begins with zeros alone: a download that did not end, perhaps. Fetch it again.'
  const packed = PACKED.find(([first]) => starts(bytes, ...first))
  if (packed !== undefined) return `is a ${packed[1]} archive. ${UNPACK}`
  if (starts(bytes, 0x25, 0x50, 0x44, 0x46)) return 'is a PDF document. Fetch the file again.'
  if (starts(bytes, 0xff, 0xfe) || starts(bytes, 0xfe, 0xff))
    return 'is text in UTF-16, expected UTF-8. Save it as UTF-8, or fetch it again.'
  const text = Buffer.from(bytes.subarray(0, LOOKED))
    .toString('latin1')
    .replace(/^\xef\xbb\xbf/, '')
    .trimStart()
  if (text.startsWith('version https://git-lfs.github.com/spec/'))
    return 'is a pointer of Git LFS: the repository was cloned without the files that it points to. Run "git lfs pull" there, or download the file.'
  if (/^<(!doctype html|html|head|\?xml|!--)/i.test(text))
    return 'is a page of HTML or XML: the download brought an answer of the site (to sign in, or an error). Fetch the file again, signed in if the model asks for it.'
  return null
}
