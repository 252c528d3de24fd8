/** Which tokens end a generation, and who says so (docs/tokenizers.md). */
import type { Tokenizer } from './tokenizer/index.ts'

export interface End {
  readonly id: number
  /** The key and the file that name the token; "its text" where it counts by what it is called. */
  readonly from: string
}

/** Where an end comes from that no file names. */
const BY_TEXT = 'its text'

/**
 * Control tokens that end an answer in the conversations of published models, by their text: those of llama.cpp
 * (release 0.5.0), which ends at them whatever a file says. Some files of chat models name the token that ends a
 * document, and not the one that ends an answer.
 */
const TEXTS: ReadonlySet<string> = new Set([
  ...['</s>', '<eos>', '[EOS]', '<|endoftext|>', '<|end_of_text|>', '<\uff5cend\u2581of\u2581sentence\uff5c>'],
  ...['<|eot_id|>', '<|eom_id|>', '<EOT>', '_<EOT>', '[EOT]', '<|im_end|>', '<|end|>', '<end_of_turn>', '<turn|>'],
  ...['<end_of_utterance>', '<|return|>', '<|call|>', '<|calls|>', '<|flush|>', '<|tool_response>', '[e~['],
])
/** These end a part of an answer, and the answer goes on, where the tokenizer has all of the others. */
const PARTS: readonly (readonly [part: string, others: readonly string[]])[] = [
  ['<|end|>', ['<|return|>', '<|call|>']],
  ['<|end|>', ['<|flush|>', '<|call|>']],
  ['<|end|>', ['<|flush|>', '<|calls|>']],
  ['</s>', ['<|tool_response>']],
]

/** `controls`: the control tokens of a tokenizer, by their text. */
const byText = (controls: ReadonlyMap<string, number>): readonly End[] => {
  const parts = PARTS.filter(([, others]) => others.every((text) => controls.has(text))).map(([part]) => part)
  return [...controls]
    .filter(([text]) => TEXTS.has(text) && !parts.includes(text))
    .map(([, id]) => ({ id, from: BY_TEXT }))
}

export interface EndSources {
  /** What a file names, whole: generation_config.json, or the keys of a GGUF file; null: none does. */
  readonly named: readonly End[] | null
  /** Whether these are all, or the control tokens count besides by their text. */
  readonly whole: boolean
  /** The list of config.json; empty where that names none, or one. */
  readonly listed: readonly number[]
  readonly tokenizer: Tokenizer | null
  readonly controls: ReadonlyMap<string, number>
}

/**
 * All ends, in ascending order of their ids: those that a file names for generations; else the list of config.json, if
 * the tokenizer's end of text is in it; else that one. Where no file has a list of them, control tokens count by their
 * text as well.
 */
export const endsFrom = ({ named, whole, listed, tokenizer, controls }: EndSources): readonly End[] => {
  const own = tokenizer?.eos ?? null
  const isListed = own !== null && listed.includes(own)
  const told =
    named ??
    (isListed
      ? listed.map((id) => ({ id, from: 'eos_token_id of config.json' }))
      : own === null
        ? []
        : [{ id: own, from: "the tokenizer's end of text" }])
  const hasList = named === null ? isListed : whole
  const all = hasList ? told : [...told, ...byText(controls)]
  const first = new Map<number, End>()
  for (const end of all) if (!first.has(end.id)) first.set(end.id, end)
  return [...first.values()].sort((a, b) => a.id - b.id)
}
