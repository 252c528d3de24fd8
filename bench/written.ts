/**
 * A model that writes a text that is given: GPT-2 of 0.1B with random weights, but for its position embeddings, each of
 * which points to the embedding of the token that follows in the text. At every position one logit stands so far above
 * the others that it is drawn at any temperature; each layer and the head are computed as in any other model. So a
 * bench sees what a model would cost that writes this very code, or this log. Nothing but the session's own past tells
 * what comes.
 *
 * Tokens are pieces of words (at most six letters), of numbers (three digits) and of marks, as byte-pair vocabularies
 * cut text.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { randomFrom } from '../src/cli/demo/facts.ts'
import type { Format } from './peers/formats.ts'
import { gpt2Config, gpt2Metadata, gpt2Sizes, gpt2Tensors } from './peers/gpt2.ts'
import { uniform } from './peers/tensors.ts'
import { type ModelFiles, writeModel } from './peers/write.ts'
import { root } from './support.ts'

const PIECES = /[ ]?\p{L}{1,6}|[ ]?\d{1,3}|[ ]?[^\s\p{L}\d]{1,4}|\n[ ]*|\s/gu
const piecesOf = (text: string): readonly string[] => text.match(PIECES) ?? []
const read = (path: string): string => readFileSync(join(root, path), 'utf8')

/** `prompt`: how many of the pieces a session reads before it writes the others. */
interface Written {
  readonly pieces: readonly string[]
  readonly prompt: number
}

/** A file goes on. */
const going = (path: string, prompt: number): Written => ({ pieces: piecesOf(read(path)), prompt })

/** A file is read, and written once more with other names. */
const edited = (path: string, prompt: number, names: Readonly<Record<string, string>>): Written => {
  const file = piecesOf(read(path)).slice(0, prompt)
  return { pieces: [...file, ...file.map((piece) => names[piece] ?? piece)], prompt }
}

/** Passages of what was read, each behind a sentence that was not in it. */
const quoted = (path: string, prompt: number): Written => {
  const pieces = piecesOf(read(path))
  const next = randomFrom(5)
  const answer: string[] = []
  for (let own = prompt; own + 24 <= pieces.length; own += 24) {
    const from = next(prompt - 160)
    answer.push(...pieces.slice(own, own + 24), ...pieces.slice(from, from + 160))
  }
  return { pieces: [...pieces.slice(0, prompt), ...answer], prompt }
}

/** Tokens of which none tells the next. */
const chance = (prompt: number, length: number): Written => {
  const next = randomFrom(6)
  return { pieces: Array.from({ length }, () => `${next(gpt2Sizes.vocabulary)}`), prompt }
}

const PROMPT = 900
export const TEXTS: Readonly<Record<string, () => Written>> = {
  edit: () => edited('src/client/feed.ts', PROMPT, { ' feed': ' append', feed: 'append', ' session': ' name' }),
  quoting: () => quoted('docs/demo/harbour-log.txt', PROMPT),
  logs: () => going('models/demo/training-log.csv', PROMPT),
  code: () => going('src/engine/engine.ts', PROMPT),
  prose: () => going('docs/demo/harbour-log.txt', PROMPT),
  chance: () => chance(PROMPT, POSITIONS),
}

export const POSITIONS = 2048

export interface WrittenText {
  /** Ids in the order of their first places. */
  readonly ids: Int32Array
  readonly prompt: number
}

export const idsOf = (name: string): WrittenText => {
  const { pieces, prompt } = TEXTS[name]!()
  const known = new Map<string, number>()
  const ids = pieces.slice(0, POSITIONS).map((piece) => {
    if (!known.has(piece)) known.set(piece, known.size)
    return known.get(piece)!
  })
  return { ids: Int32Array.from(ids), prompt: Math.min(prompt, ids.length >> 1) }
}

/** How much larger than an embedding a position's is: what the random layers add stays far below. */
const STRENGTH = 30

/** node-llama-cpp wants a tokenizer, though it is given ids. */
const NAMES = {
  'tokenizer.ggml.model': 'gpt2',
  'tokenizer.ggml.tokens': Array.from({ length: gpt2Sizes.vocabulary }, (_, id) => `t${id}`),
  'tokenizer.ggml.token_type': { i32s: Array.from({ length: gpt2Sizes.vocabulary }, () => 1) },
  'tokenizer.ggml.merges': ['t 1'],
}

/** Writes the model of a text as a package and as GGUF, the same numbers in both. */
export const writeWritten = ({ ids }: WrittenText, format: Format, files: ModelFiles): void => {
  const { vocabulary, channels } = gpt2Sizes
  const specs = gpt2Tensors(format, POSITIONS)
  const table = specs.find(({ gguf }) => gguf === 'token_embd.weight')!
  const embeddings = uniform(table.seed, table.mean, table.deviation)(vocabulary * channels)
  const given = new Float32Array(POSITIONS * channels)
  for (let at = 0; at + 1 < ids.length; at += 1)
    for (let c = 0; c < channels; c += 1) given[at * channels + c] = STRENGTH * embeddings[ids[at + 1]! * channels + c]!
  writeModel(
    specs.map((spec) => (spec.gguf === 'position_embd.weight' ? { ...spec, given } : spec)),
    format,
    { ...gpt2Metadata(POSITIONS), ...NAMES },
    gpt2Config(format, POSITIONS),
    files,
  )
}
