/** Vocabularies whose tokens stand for bytes, any number of them, and packages that have one and an ngram memory. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { randomRwkv7, safetensors } from '../../engine/packages.ts'
import { writePackageTo } from '../../engine/safetensors.ts'

/** Words of the lines of `logLines`, some with a blank before; digits go by threes, as in many vocabularies. */
const WORDS = [
  ...[
    '2026-02-0',
    ' INFO',
    ' WARN',
    ' [worker-',
    'request id=',
    ' took ',
    ' ms\n',
    'disk',
    ' /dev/sd',
    '%, ',
    ' blocks left\n',
  ],
  ...[
    'job=',
    ',step=',
    'state="done"; ',
    'next (',
    'GET /index.html',
    ' HTTP/1.1 200\n',
    'The quick',
    ' brown fox',
    ' jumps',
  ],
  ...[
    ' over the',
    ' lazy dog',
    ', and',
    ' nobody counts',
    ' the dogs',
    '.\n',
    'größe: ',
    'µs',
    ' — ',
    'naïve',
    ' café',
    ' №',
    'sum ',
  ],
  ...[
    'word ',
    ' 42 ',
    'xxxx',
    'xxxxxxxx',
    '    ',
    ')\n',
    '00',
    '000',
    '12',
    '345',
    '678',
    '90',
    '117',
    '100',
    '99',
    '7',
    ' ',
  ],
]

/**
 * What tokens stand for: none for token 0, then each byte, then words. A multiple of nothing, so that vectors have a
 * rest.
 */
export const TEXTS: readonly Uint8Array[] = [
  new Uint8Array(),
  ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
  ...[...new Set(WORDS)]
    .filter((word) => Buffer.byteLength(word) > 1)
    .map((word) => Uint8Array.from(Buffer.from(word))),
]

/** The longest token first, as RWKV's tokenizer takes them. */
export const tokensOf = (text: Uint8Array): number[] => {
  const bytes = Buffer.from(text)
  const byLength = TEXTS.map((token, id) => ({ token, id })).sort((a, b) => b.token.length - a.token.length)
  const out: number[] = []
  for (let at = 0; at < bytes.length; ) {
    const { token, id } = byLength.find(
      (one) => one.token.length > 0 && bytes.subarray(at, at + one.token.length).equals(one.token),
    )!
    out.push(id)
    at += token.length
  }
  return out
}

/** A small RWKV-7 with random weights and such a vocabulary, and a memory behind it. */
export const writeSubwords = (folder: string, slots: number, memory = true): string => {
  mkdirSync(folder, { recursive: true })
  const sizes = { L: 1, H: 2, N: 18, F: 40, V: TEXTS.length, D: { w: 5, a: 7, v: 3, g: 11 } }
  writePackageTo(folder, { model_type: 'rwkv7' }, safetensors(randomRwkv7(5, sizes), 'BF16'))
  const literal = (bytes: Uint8Array): string =>
    `b'${Array.from(bytes, (byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('')}'`
  const lines = TEXTS.slice(1).map((bytes, i) => `${i + 1} ${literal(bytes)} ${bytes.length}\n`)
  writeFileSync(join(folder, 'rwkv_vocab_test.txt'), lines.join(''))
  if (memory) writeFileSync(join(folder, 'memory.json'), JSON.stringify({ kind: 'ngram', slots }))
  return folder
}
