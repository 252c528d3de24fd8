/**
 * Vocabularies in every container there is: tokenizer.json, vocab.json with merges.txt, RWKV's list of tokens and the
 * metadata of a GGUF file. Opened, and made to read short texts; the kind `tokenizer` has hostile patterns and long
 * texts.
 */
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ContinuoError } from '../../../src/errors.ts'
import {
  openGgufTokenizer,
  openTokenizer,
  openTrie,
  openVocabMerges,
  type Tokenizer,
} from '../../../src/models/tokenizer/index.ts'
import { byteLevel, fallback } from '../../models/tokenizer/fixtures.ts'
import type { OpenKind } from '../kind.ts'
import { damagedBytes, damagedText } from '../mutate.ts'
import { writeFiles } from '../packages.ts'

const VOCABULARY = 2000
const TEXTS = ["The harbour's 12 </s> ünï 😀 \ud800\r\n  x", '\u0000ÿ<0x41>▁the\u0301']

type Json = { readonly [key: string]: unknown }
interface Bpe {
  readonly vocab: Readonly<Record<string, number>>
  readonly merges: readonly string[]
}

/** The tokens of a byte-level BPE by their ids, as a GGUF file has them. */
const ggufBpe = ({ vocab, merges }: Bpe): Json => ({
  'tokenizer.ggml.model': 'gpt2',
  'tokenizer.ggml.pre': 'llama-bpe',
  'tokenizer.ggml.tokens': Object.keys(vocab),
  'tokenizer.ggml.token_type': Object.keys(vocab).map(() => 1),
  'tokenizer.ggml.merges': merges,
  'tokenizer.ggml.eos_token_id': 0,
  'tokenizer.ggml.add_bos_token': false,
})
const bytePieces = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`)
const pieces = ['<unk>', '<s>', '</s>', ...bytePieces, '▁', 't', 'h', 'e', 'th', '▁the', 'ü']
const ggufPieces: Json = {
  'tokenizer.ggml.model': 'llama',
  'tokenizer.ggml.tokens': pieces,
  'tokenizer.ggml.scores': pieces.map((_, id) => -id),
  'tokenizer.ggml.token_type': pieces.map((piece, id) => (id === 0 ? 2 : id < 3 ? 3 : piece.startsWith('<0x') ? 6 : 1)),
  'tokenizer.ggml.bos_token_id': 1,
  'tokenizer.ggml.eos_token_id': 2,
  'tokenizer.ggml.unknown_token_id': 0,
}
const python = (byte: number): string => `\\x${byte.toString(16).padStart(2, '0')}`
const ggufTrie: Json = {
  'tokenizer.ggml.model': 'rwkv',
  'tokenizer.ggml.tokens': ['<s>', ...Array.from({ length: 256 }, (_, byte) => python(byte)), 'the', ' the'],
  'tokenizer.ggml.token_type': [3, ...Array(258).fill(1)],
}
const trieLines = [
  ...Array.from({ length: 256 }, (_, byte) => `${byte + 1} b'${python(byte)}' 1`),
  "257 ' the' 4",
  "258 'ü' 2",
  `259 b'\\xe4\\xb8' 2`,
]

/**
 * Arrays within arrays that the reader of a GGUF file gives out (max_gguf_nesting in native/weights/gguf.h); it refuses
 * more.
 */
const GGUF_NESTING = 4
const depthOf = (value: unknown): number => {
  let depth = -1
  for (let level = [value]; level.length > 0; depth += 1)
    level = level.flatMap((one) => (typeof one === 'object' && one !== null ? Object.values(one) : []))
  return depth
}

const read = (tokenizer: Tokenizer, text: string): void => {
  const { ids, held } = tokenizer.push('', text)
  for (const id of [...ids, ...tokenizer.flush(held)]) {
    if (!Number.isInteger(id) || id < 0 || id >= tokenizer.vocabSize)
      throw new Error(`The id ${id}, outside of 0 to ${tokenizer.vocabSize - 1}.`)
    tokenizer.bytesOf(id)
  }
}

export const open: OpenKind = async (folder) => {
  const bpe = byteLevel().model as unknown as Bpe
  const merges = `#version: 0.2\n${bpe.merges.join('\n')}\n`
  const dir = join(folder, 'vocabulary')
  writeFiles(dir, {})
  const put = (name: string, content: string | Uint8Array): void => writeFileSync(join(dir, name), content)
  const options = { vocabSize: VOCABULARY, config: {}, warn: () => {} }
  const json = (value: unknown, file: string) => ({
    text: JSON.stringify(value),
    open: async (input: Uint8Array): Promise<Tokenizer> => {
      put(file, input)
      return (await openTokenizer(dir, options)).tokenizer
    },
  })
  const gguf = (metadata: Json) => ({
    text: JSON.stringify(metadata),
    open: async (input: Uint8Array): Promise<Tokenizer> => {
      let values: unknown
      try {
        values = JSON.parse(Buffer.from(input).toString())
      } catch {
        throw new ContinuoError('INVALID', 'This is no list of entries at all.')
      }
      if (depthOf(values) > 1 + GGUF_NESTING) throw new ContinuoError('INVALID', 'The arrays are nested too deep.')
      const found = openGgufTokenizer(new Map(Object.entries(Object(values))) as never, {
        vocabSize: VOCABULARY,
        path: 'x.gguf',
      })
      if (found === null) throw new ContinuoError('INVALID', 'The entries name no tokenizer.')
      return found.tokenizer
    },
  })
  const kinds: Readonly<
    Record<string, { readonly text: string; readonly lines?: true; open(input: Uint8Array): Promise<Tokenizer> }>
  > = {
    'byte-level': json(byteLevel(), 'tokenizer.json'),
    fallback: json(fallback(), 'tokenizer.json'),
    vocab: {
      text: JSON.stringify(bpe.vocab),
      open: async (input) => {
        put('vocab.json', input)
        put('merges.txt', merges)
        return (await openVocabMerges(dir, options)).tokenizer
      },
    },
    merges: {
      text: merges,
      lines: true,
      open: async (input) => {
        put('vocab.json', JSON.stringify(bpe.vocab))
        put('merges.txt', input)
        return (await openVocabMerges(dir, options)).tokenizer
      },
    },
    trie: {
      text: `${trieLines.join('\n')}\n`,
      lines: true,
      open: async (input) => {
        put('rwkv_vocab_x.txt', input)
        return (await openTrie(join(dir, 'rwkv_vocab_x.txt'), options)).tokenizer
      },
    },
    'gguf-bpe': gguf(ggufBpe(bpe)),
    'gguf-pieces': gguf(ggufPieces),
    'gguf-trie': gguf(ggufTrie),
  }
  return {
    bases: Object.keys(kinds),
    make: (base, random) => {
      const { text, lines } = kinds[base]!
      return lines ? damagedBytes(Buffer.from(text), random) : damagedText(text, random)
    },
    run: async (base, input) => {
      const tokenizer = await kinds[base]!.open(input)
      try {
        for (const text of TEXTS) read(tokenizer, text)
        return 'read'
      } catch (error) {
        if (error instanceof ContinuoError && error.code !== 'INTERNAL') return `opened, then ${error.code}`
        throw error
      }
    },
    close: async () => rmSync(dir, { recursive: true, force: true }),
  }
}
