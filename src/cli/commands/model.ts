import { statSync } from 'node:fs'
import type { BlockPlan } from '../../engine/executor-types.ts'
import { layoutFingerprint } from '../../engine/fingerprint.ts'
import { type Graph, parametersOf } from '../../engine/graph.ts'
import { stateLayout } from '../../engine/layout.ts'
import type { TensorEntry } from '../../engine/native.ts'
import { planGraph } from '../../engine/plan.ts'
import { aligned, persistentSizes, printGraph, storedConstants } from '../../engine/print.ts'
import { fingerprintOf } from '../../engine/weights.ts'
import type { End } from '../../models/ends.ts'
import { type MemorySettings, mostSlots } from '../../models/families/memory-json.ts'
import { fileNames } from '../../models/files/package.ts'
import { describePackage, identityOfText } from '../../models/open.ts'
import { command } from '../command.ts'
import { withModel } from '../common.ts'
import { nearest, on, optionalWhole, usage } from '../flags.ts'
import { bytes, count, print, printJson, say } from '../output.ts'
import { expertLines, expertsOf, type ShownExperts } from '../show/experts.ts'
import { figureLines, planLines } from '../show/plan.ts'
import { type Trace, traceInput, traceLines, traceStep } from '../show/trace.ts'
import { figuresOf } from '../show/unroll.ts'

/** Description of a package, without loading its weights. */
interface Shown {
  readonly dir: string
  readonly type: string
  readonly parameters: number
  readonly fingerprint: string
  readonly layoutFingerprint: string
  /** `null`: token ids only. */
  readonly tokenizer: string | null
  /** Tokens that end a generation, and who says so. */
  readonly ends: readonly (End & { readonly text: string | null })[]
  readonly vocabSize: number
  /** The name of the file of weights, or how many they are. */
  readonly files: string
  readonly fileBytes: number
  /** Of a context that nothing was fed yet. */
  readonly contextBytes: number
  readonly bytesPerPosition: number
  readonly tensors: readonly TensorEntry[]
  readonly graph: Graph
  readonly plans: readonly BlockPlan[]
  /** null: all of its weights are in its files. */
  readonly experts: ShownExperts | null
}

const look = async (path: string): Promise<Shown> => {
  const { found, request, text } = await describePackage(path, {}, say)
  const { graph, vocabSize, paths: files, tensors } = request
  const { tokenizer, source } = text
  const plans = planGraph(graph)
  return {
    dir: path,
    files: fileNames(found),
    type: request.modelType,
    parameters: parametersOf(graph),
    fingerprint: await fingerprintOf(request, identityOfText(text)),
    layoutFingerprint: layoutFingerprint(graph),
    tokenizer: tokenizer === null ? null : (source ?? 'bytes'),
    ends: text.ends.map((end) => ({ ...end, text: text.nameOf(end.id) })),
    vocabSize,
    fileBytes: files.reduce((sum, file) => sum + statSync(file).size, 0),
    contextBytes: stateLayout(graph).first.reduce((sum, entry) => sum + entry.bytes, 0),
    bytesPerPosition: persistentSizes(graph).reduce((sum, size) => sum + size.bytesPerPosition, 0),
    tensors,
    graph,
    plans,
    experts: expertsOf(graph, request.experts),
  }
}

const memoryText = (graph: Graph): string => {
  const memory = graph.memory as unknown as MemorySettings
  const { window, block_size: tokens, retrieval } = memory
  const cold = persistentSizes(graph).find(({ name }) => name === 'cold')!.bytesPerPosition
  return `the list has ${count(mostSlots(memory))} slots at most, ${count(window)} of them its window; blocks of ${tokens} tokens and ${count(cold)} B, ${retrieval.blocks} brought back at a time (${retrieval.policy})`
}

const endText = ({ id, text, from }: Shown['ends'][number]): string =>
  `${text === null ? id : `${JSON.stringify(text)} ${id}`} (${from})`

const headLines = (shown: Shown): readonly string[] => {
  const { tokenizer, vocabSize, bytesPerPosition, graph } = shown
  return aligned([
    ['model', `${shown.dir}: ${shown.type}`],
    [
      'parameters',
      `${count(shown.parameters)}; ${shown.files} ${shown.files.endsWith(' files') ? 'have' : 'has'} ${bytes(shown.fileBytes)}`,
    ],
    ['fingerprint', shown.fingerprint],
    ['layout', shown.layoutFingerprint],
    ['tokenizer', `${tokenizer ?? 'none: token ids only'}; ${count(vocabSize)} tokens`],
    ['ends', shown.ends.length === 0 ? 'none: a request ends by its length' : shown.ends.map(endText).join(', ')],
    [
      'context',
      `${count(shown.contextBytes)} B${bytesPerPosition > 0 && graph.memory === undefined ? `, and ${count(bytesPerPosition)} B a position` : ''}`,
    ],
    ...(graph.memory === undefined ? [] : [['external memory', memoryText(graph)]]),
  ])
}

const textOf = (shown: Shown, withPlan: boolean, trace: Trace | undefined): readonly string[] => {
  const { graph, plans, tensors } = shown
  return [
    ...headLines(shown),
    ...(shown.experts === null ? [] : ['', ...expertLines(shown.experts)]),
    '',
    ...printGraph(graph, {
      tensors,
      after: (block) => {
        const plan = plans.find(({ name }) => name === block.name)!
        return ['', ...figureLines(figuresOf(graph, block, plan)), ...(withPlan ? planLines(graph, block, plan) : [])]
      },
    }),
    ...(trace === undefined ? [] : ['', ...traceLines(trace)]),
  ]
}

const jsonOf = ({ tensors, plans, ...shown }: Shown, withPlan: boolean, trace: Trace | undefined): object => ({
  ...shown,
  constants: storedConstants(shown.graph, tensors),
  persistents: persistentSizes(shown.graph),
  blocks: shown.graph.blocks.map((block, i) => figuresOf(shown.graph, block, plans[i]!)),
  ...(withPlan ? { plans } : {}),
  ...(trace === undefined ? {} : { trace }),
})

export const model = command({
  name: 'model',
  about:
    'show prints the graph of a model so that it can be read beside the paper: its memory by kind, its blocks as code, and how the engine will run them. Weights are not loaded for that.',
  args: [
    { name: 'ACTION', help: 'show', required: true },
    { name: 'DIR', help: 'folder of a model, or a .gguf or .pth file', required: true },
  ],
  flags: {
    plan: on('also where each volatile lies and while which lines it is alive'),
    trace: optionalWhole('TOKENS', 'also load the model, step that many tokens and print where the time goes', {
      min: 1,
      max: 128,
    }),
  },
  notes:
    'docs/graph.md says what each operation computes. With --json the member "graph" is the graph as the engine takes it. A trace times nodes one by one, so that those which otherwise run together take a little longer.',
  examples: ['model show models/demo', 'model show models/demo --trace 64'],
  async run(flags, [action, dir]) {
    if (action !== 'show') {
      const hint = nearest(action!, ['show']) === null ? '' : ' Did you mean show?'
      throw usage(`continuo model takes show, not "${action}".${hint}`)
    }
    const shown = await look(dir!)
    let trace: Trace | undefined
    if (flags.trace !== undefined) {
      const tokens = flags.trace
      const input = traceInput(shown.graph, shown.plans, tokens)
      await withModel(dir!, {}, async (loaded) => {
        trace = await traceStep(loaded.model, input, tokens)
        return 0
      })
    }
    if (flags.json) printJson(jsonOf(shown, flags.plan, trace))
    else for (const line of textOf(shown, flags.plan, trace)) print(line)
    return 0
  },
})
