import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { ContinuoError } from '../../errors.ts'
import { copySynced, writeDurably } from '../../files.ts'
import { MOST_CONFIG_BYTES, readJsonFile } from '../../json.ts'
import { addedIn, defaultMemory, MEMORY_FILE, mostSlots, readMemoryJson } from '../../models/families/memory-json.ts'
import {
  asksForNgram,
  LEARNED,
  type NgramMemory,
  readNgramMemory,
  withNgramMemory,
} from '../../models/families/ngram-memory.ts'
import { readPackage } from '../../models/files/package.ts'
import { readText } from '../../models/files/package-text.ts'
import { command } from '../command.ts'
import { nearest, on, optional, refuseIdle, usage, whole } from '../flags.ts'
import { count, print, printJson } from '../output.ts'

/**
 * memory.json of a folder, and what it says already: of the other kind of memory, beside which this one goes. Throws
 * INVALID where it has this kind.
 */
const memoryFile = async (folder: string, kind: 'outer' | 'ngram') => {
  const path = join(folder, 'memory.json')
  if (!existsSync(path)) return { path }
  const { json } = await readJsonFile(path, MOST_CONFIG_BYTES)
  const ngram = asksForNgram(json) ? readNgramMemory(json) : undefined
  const outer = ngram === undefined ? readMemoryJson(json) : undefined
  if (kind === 'ngram' ? ngram !== undefined || outer?.ngram !== undefined : outer !== undefined)
    throw new ContinuoError('INVALID', `${path} is there already; take it away, or change it by hand.`)
  return { path, ngram, outer: outer && (json as object) }
}

/** Contexts that a memory behind a model remembers: more than alone, since it is small beside most models. */
const SLOTS = 262_144

/**
 * The file of what other texts taught the memory of this package. Throws INVALID for one that has nothing of the kind.
 */
const learnedFile = async (dir: string): Promise<string> => {
  const { config, tensors, files } = await readPackage(dir)
  const small = (config as { form?: unknown }).form === 'small'
  if (config.model_type === 'ngram' && !small && tensors.some(({ name }) => name === LEARNED)) return files[0]!
  throw new ContinuoError(
    'INVALID',
    `--learned names ${dir}, ${small ? 'an ngram package of the small form' : `a "${config.model_type}" model without the tensor "${LEARNED}"`}; expected an ngram package of the whole form that has it, such as models/watch.`,
  )
}

/** memory.json of a model that has both memories. */
const both = <Outer extends object>(outer: Outer, { kind: _, ...ngram }: NgramMemory) => ({ ...outer, ngram })

/** memory.json of an ngram memory behind the model of the folder. Throws INVALID for a model that cannot have one. */
const initNgram = async (dir: string, slots: number, learned: string | undefined) => {
  const found = await readPackage(dir)
  const { family, config, tensors } = found
  const { path, outer } = await memoryFile(found.dir, 'ngram')
  const from = learned === undefined ? null : await learnedFile(learned)
  const to = join(found.dir, MEMORY_FILE)
  if (from !== null && existsSync(to))
    throw new ContinuoError('INVALID', `${to} is there already; take it away, or leave --learned out.`)
  const memory = readNgramMemory({ kind: 'ngram', slots, ...(from !== null && { learned: true }) })
  const { graph, vocabSize } = family.build(config, tensors)
  withNgramMemory(graph, memory, config.model_type, vocabSize)
  const { tokenizer } = await readText(found, vocabSize, () => undefined)
  if (tokenizer === null)
    throw new ContinuoError(
      'INVALID',
      `${dir} has no tokenizer, and the memory learns what tokens stand for. Add the tokenizer's file, tokenizer.json for example.`,
    )
  if (from !== null) await copySynced(from, to)
  return { path, memory: outer === undefined ? memory : both(outer, memory) }
}

const init = async (dir: string) => {
  const { family, config, tensors, format, dir: folder } = await readPackage(dir)
  const { path, ngram } = await memoryFile(folder, 'outer')
  if (!family.remembers || format === 'gguf')
    throw new ContinuoError(
      'INVALID',
      `${dir} is a "${config.model_type}" model${format === 'gguf' ? ' in a GGUF file' : ''}; an external memory is for folders of llama, qwen2 and qwen3.`,
    )
  const { vocabSize } = family.build(config, tensors)
  const { max_position_embeddings: positions, num_hidden_layers: layers } = config as Readonly<Record<string, number>>
  const idOf = await addedIn(folder)
  const outer = defaultMemory({ layers: layers!, positions: positions!, vocabulary: vocabSize, idOf })
  return { path, memory: ngram === undefined ? outer : both(outer, ngram), positions: positions! }
}

export const memory = command({
  name: 'memory',
  about:
    'init gives a decoder (llama, qwen2, qwen3) a memory without end: it writes memory.json beside the config.json of its folder, with the defaults that fit the model. Everything that runs the folder from then on keeps its context outside. With --ngram it gives a model of any family a memory that learns the text of each session; beside a GGUF file too. A folder may have both.',
  args: [
    { name: 'ACTION', help: 'init', required: true },
    { name: 'DIR', help: 'folder of a model', required: true },
  ],
  flags: {
    ngram: on('a memory that learns what it reads, behind the model as it is'),
    slots: whole(
      'N',
      'contexts that it remembers at a time, 8 bytes each, or 16 where a token is more than a byte; even',
      SLOTS,
    ),
    learned: optional(
      'DIR',
      'an ngram package: the memory begins with what its votes learned; it is copied into memory.safetensors',
    ),
  },
  notes:
    'docs/infinite-context.md and docs/ngram.md say what the numbers mean. To the log the model is another one than without the file. Take the file away to have the plain decoder again.',
  examples: ['memory init models/my-qwen3', 'memory init models/my-rwkv7 --ngram --learned models/watch'],
  async run(flags, [action, dir], given) {
    if (action !== 'init') {
      const hint = nearest(action!, ['init']) === null ? '' : ' Did you mean init?'
      throw usage(`continuo memory takes init, not "${action}".${hint}`)
    }
    if (!flags.ngram) refuseIdle(given, ['slots', 'learned'], '--ngram')
    if (flags.ngram) {
      const { path, memory } = await initNgram(dir!, flags.slots, flags.learned)
      await writeDurably(path, Buffer.from(`${JSON.stringify(memory, null, 2)}\n`))
      if (flags.json) printJson({ path, memory })
      else
        print(
          `Wrote ${path}. Each session learns the text that it reads: ${count(flags.slots)} contexts at a time. continuo model show ${dir} says how large a context is.`,
        )
      return 0
    }
    const { path, memory: made, positions } = await init(dir!)
    await writeDurably(path, Buffer.from(`${JSON.stringify(made, null, 2)}\n`))
    if (flags.json) printJson({ path, memory: made })
    else {
      const { window, block_size: tokens, retrieval } = made
      print(`Wrote ${path}.`)
      print(
        `Attention sees ${count(mostSlots(made))} slots at most (the model has ${count(positions)} positions): a window of ${count(window)} tokens, and what is kept or brought back of earlier ones. Blocks have ${tokens} tokens; ${retrieval.blocks} come back at a time, every ${count(retrieval.every)} tokens and whenever they are asked for.`,
      )
    }
    return 0
  },
})
