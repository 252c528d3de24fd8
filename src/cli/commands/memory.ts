import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { ContinuoError } from '../../errors.ts'
import { writeDurably } from '../../files.ts'
import { addedIn, defaultMemory, mostSlots } from '../../models/memory-json.ts'
import { readPackage } from '../../models/package.ts'
import { command } from '../command.ts'
import { nearest, usage } from '../flags.ts'
import { count, print, printJson } from '../output.ts'

const init = async (dir: string) => {
  const { family, config, tensors, format, dir: folder } = await readPackage(dir)
  const path = join(folder, 'memory.json')
  if (existsSync(path))
    throw new ContinuoError('INVALID', `${path} is there already; take it away, or change it by hand.`)
  if (!family.remembers || format === 'gguf')
    throw new ContinuoError(
      'INVALID',
      `${dir} is a "${config.model_type}" model${format === 'gguf' ? ' in a GGUF file' : ''}; a memory outside of the context is for folders of llama, qwen2 and qwen3.`,
    )
  const { vocabSize } = family.build(config, tensors)
  const { max_position_embeddings: positions, num_hidden_layers: layers } = config as Readonly<Record<string, number>>
  const idOf = await addedIn(folder)
  const memory = defaultMemory({ layers: layers!, positions: positions!, vocabulary: vocabSize, idOf })
  return { path, memory, positions: positions! }
}

export const memory = command({
  name: 'memory',
  about:
    'init gives a decoder (llama, qwen2, qwen3) a memory without end: it writes memory.json beside the config.json of its folder, with the defaults that fit the model. Everything that runs the folder from then on keeps its context outside.',
  args: [
    { name: 'ACTION', help: 'init', required: true },
    { name: 'DIR', help: 'folder of a model', required: true },
  ],
  flags: {},
  notes:
    'docs/infinite-context.md says what the numbers mean. To the log the model is another one than without the file. Take the file away to have the plain decoder again.',
  examples: ['memory init models/my-qwen3'],
  async run(flags, [action, dir]) {
    if (action !== 'init') {
      const hint = nearest(action!, ['init']) === null ? '' : ' Did you mean init?'
      throw usage(`continuo memory takes init, not "${action}".${hint}`)
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
