/** The commands on a decoder whose context lies outside: events from a file, the list drawn, and memory.json made. */
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { safetensors } from '../engine/packages.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'
import { writePackageTo } from '../engine/safetensors.ts'
import { BASE, randomDecoder } from '../models/decoders.ts'
import { continuo, json, MODEL, temporary } from './helpers.ts'

const folder = temporary()
/** A random llama that reads bytes. */
const writeLlama = (positions: number): string => {
  const config = { ...BASE, vocab_size: 256, max_position_embeddings: positions }
  return writePackageTo(temporary(), config, safetensors(randomDecoder(3, config)))
}
/** The shipped model, which is no decoder, in a folder of its own. */
const writeOther = (): string => {
  const dir = temporary()
  for (const file of ['config.json', 'model.safetensors']) cpSync(join(MODEL, file), join(dir, file))
  return dir
}
const write = (name: string, text: string): string => {
  const path = join(folder, name)
  writeFileSync(path, text)
  return path
}
const lines = (path: string): Record<string, unknown>[] =>
  readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
const floats = (path: string): number[] => {
  const file = readFileSync(path)
  return Array.from({ length: file.length / 4 }, (_, at) => file.readFloatLE(4 * at))
}

describe.skipIf(!hasShared)('continuo eval FILE.jsonl', () => {
  test('runs the events of a session, and writes logits, what was observed, and the state', async () => {
    const model = sharedModel('llama-tiny-memory')
    const read = <T>(file: string): T => JSON.parse(readFileSync(join(model, file), 'utf8')) as T
    const { token_ids: ids } = read<{ token_ids: number[] }>('expected.json')
    const { steps, events, logits, tolerance } = read<{
      steps: { do: string; from: number; to: number; blocks?: number[] }[]
      events: Record<string, unknown>[]
      logits: number[]
      tolerance: { logits: number }
    }>('script.json')
    const script = [
      { type: 'open', memory: true },
      ...steps.map((step) => {
        if (step.do === 'tokens') return { type: 'tokens', tokens: ids.slice(step.from, step.to) }
        if (step.do === 'reset') return { type: 'boundary', reset: true }
        return { type: step.do, ...(step.blocks !== undefined && { blocks: step.blocks }) }
      }),
    ]
    const file = write('events.jsonl', script.map((each) => `${JSON.stringify(each)}\n`).join('\n'))
    const [outs, observed, state] = ['logits', 'observed', 'state'].map((name) => join(folder, name))
    const [result] = await json<{ chain: string; pulse: number }>(
      ...['eval', file, '--model', model, '--logits', outs!, '--observations', observed!, '--state', state!],
    )
    expect(Math.max(...floats(outs!).map((value, i) => Math.abs(value - logits[i]!)))).toBeLessThan(tolerance.logits)
    const told = lines(observed!).flatMap((each) => (each.type === 'remembered' ? (each.events as object[]) : []))
    const plain = (all: readonly object[]) =>
      all.map((each) =>
        Object.fromEntries(Object.entries(each).filter(([name]) => !/^(distance|[kv]_norm)$/.test(name))),
      )
    expect(plain(told)).toEqual(plain(events))
    const snapshot = readFileSync(state!)
    const header = JSON.parse(snapshot.toString('utf8', 8, 8 + Number(snapshot.readBigUInt64LE(0)))) as {
      __metadata__: { head: string }
    }
    expect(JSON.parse(header.__metadata__.head)).toMatchObject({
      chain: result!.chain,
      conductor: { globalStep: result!.pulse },
    })
  })

  const model = () => sharedModel('llama-tiny-memory')
  const EVENTS = '{"type":"tokens","tokens":[1,2,3]}\n\n{"type":"archive"}\n{"type":"tokens","tokens":[4]}\n'

  test('with --events takes them from standard input and under any name, as from a file of theirs', {
    tags: 'slow',
  }, async () => {
    const [known] = await json<{ chain: string }>('eval', write('known.jsonl', EVENTS), '--model', model())
    expect(known).toMatchObject({ pulse: 4 })
    const named = await json<{ chain: string }>('eval', write('events.txt', EVENTS), '--events', '--model', model())
    expect(named[0]).toMatchObject({ chain: known!.chain })
    const piped = await continuo(['eval', '-', '--events', '--model', model(), '--json'], { input: EVENTS })
    expect(piped).toMatchObject({ code: 0, err: '' })
    expect(JSON.parse(piped.out)).toMatchObject({ chain: known!.chain })
    // Without the flag it is a text, whatever it begins with.
    const text = await continuo(['eval', '-', '--model', MODEL, '--json'], { input: EVENTS })
    expect(JSON.parse(text.out)).toMatchObject({ tokens: EVENTS.length })
  })

  test('names the line of an event that cannot be', async () => {
    const bad = '{"type":"tokens","tokens":[1,2,3]}\n\n{"type":"retrieve","blocks":[7]}\n'
    const sentence = 'line 3: A "retrieve" event names block 7, expected one of the 0 blocks that were archived'
    const { code, err } = await continuo(['eval', write('bad.jsonl', bad), '--model', model()])
    expect(code).toBe(1)
    expect(err).toContain(sentence)
    const piped = await continuo(['eval', '-', '--events', '--model', model()], { input: bad })
    expect(piped.code).toBe(1)
    expect(piped.err).toContain(`Standard input, ${sentence}`)
  })

  test('refuses --chunk-tokens, which would change nothing', async () => {
    const file = write('some.jsonl', EVENTS)
    const events = await continuo(['eval', file, '--model', model(), '--chunk-tokens', '7'])
    expect(events).toMatchObject({ code: 2, out: '' })
    expect(events.err).toContain(
      '--chunk-tokens cuts a text into calls, and events are read in the steps of a stream. Leave it out.',
    )
    const state = ['--state', join(folder, 'never.safetensors')]
    const text = await continuo(['eval', write('t.txt', 'abc'), '--model', MODEL, ...state, '--chunk-tokens', '7'])
    expect(text).toMatchObject({ code: 2, out: '' })
    expect(text.err).toContain('and with --state or --observations a text is read in the steps of a stream')
  })
})

describe('continuo memory init', () => {
  test('writes a memory.json that fits the model, once, and the list can be looked at', { tags: 'slow' }, async () => {
    const model = writeLlama(512)
    const made = await continuo(['memory', 'init', model])
    expect(made).toMatchObject({ code: 0, err: '' })
    expect(made.out).toContain('a window of 256 tokens')
    const again = await continuo(['memory', 'init', model])
    expect(again).toMatchObject({ code: 1 })
    expect(again.err).toContain('is there already')

    const url = `file:${join(folder, 'log.db')}`
    const ids = Array.from({ length: 700 }, (_, i) => (i * 7) % 256)
    const text = write('text.txt', Buffer.from(ids.map((id) => 97 + (id % 26))).toString())
    for (const args of [
      ['feed', text, '--log', url, '--session', 's'],
      ['run', '--log', url, '--model', model, '--until-idle', '200'],
    ])
      expect((await continuo(args)).code).toBe(0)
    const shown = await continuo(['sessions', '--log', url, '--memory', 's'])
    expect(shown.code).toBe(0)
    expect(shown.out).toMatch(/^Generating\. 700 tokens, 28 blocks archived of 16 tokens each/m)
    expect(shown.out).toMatch(/^ {2}window: 252 tokens$/m)
    const [view] = await json<{ tokens: number; archived: number; injected: number[] }>(
      ...['sessions', '--log', url, '--memory', 's'],
    )
    expect(view).toMatchObject({ tokens: 700, archived: 28 })
    expect(view!.injected).toHaveLength(3)
    expect((await continuo(['verify', '--log', url, '--model', model])).code).toBe(0)
    const none = await continuo(['sessions', '--log', url, '--memory', 'nobody'])
    expect(none).toMatchObject({ code: 1, out: '' })
    const description = (await continuo(['model', 'show', model])).out
    expect(description).toContain('external memory  the list has')
  })

  test('is no end of a session of the plain decoder: it comes in by export and import', { tags: 'slow' }, async () => {
    const model = writeLlama(512)
    const [before, after] = ['before.db', 'after.db'].map((name) => `file:${join(folder, name)}`)
    const exported = join(folder, 'plain.safetensors')
    const text = (name: string, length: number) =>
      write(name, Buffer.from(Array.from({ length }, (_, i) => 97 + ((i * 7) % 26))).toString())
    const done = async (...args: readonly string[]): Promise<string> => {
      const { code, out, err } = await continuo(args)
      expect({ code, err: code === 0 ? '' : err }).toEqual({ code: 0, err: '' })
      return out
    }
    const run = (log: string) => done('run', '--log', log, '--model', model, '--until-idle', '200')
    await done('feed', text('first.txt', 400), '--log', before!, '--session', 's')
    await run(before!)
    await done('export', '--log', before!, '--model', model, '--session', 's', exported)
    await done('memory', 'init', model)
    const placed = await done('import', exported, '--log', after!, '--model', model, '--session', 's')
    expect(placed).toContain('at pulse 400')
    expect(placed).toContain('The plain decoder read it: 400 tokens were taken over into the external memory')
    // What the plain decoder had no positions for.
    await done('feed', text('second.txt', 300), '--log', after!, '--session', 's')
    await run(after!)
    const [view] = await json('sessions', '--log', after!, '--memory', 's')
    expect(view).toMatchObject({ tokens: 700, archived: 28 })
    expect((await continuo(['verify', '--log', after!, '--model', model])).code).toBe(0)
  })

  test.each([
    ['a model of another family', writeOther, 'an external memory is for folders of llama'],
    ['a model with too few positions', () => writeLlama(60), 'too few for the smallest of the lists'],
  ] as const)('refuses %s', async (_, made, message) => {
    const { code, err } = await continuo(['memory', 'init', made()])
    expect(code).toBe(1)
    expect(err).toContain(message)
  })
})

describe('a memory.json', () => {
  const refusals: readonly (readonly [string, object, string])[] = [
    ['an unknown member', { blocksize: 4 }, 'Unrecognized key'],
    ['another format', { format: 'continuo-memory/2' }, 'format'],
    [
      'a window that is no whole number of blocks',
      { window: 100, block_size: 16 },
      'expected a multiple of block_size 16',
    ],
    [
      'more sinks and anchors than a block has',
      { block_size: 16, window: 64, sinks: 16 },
      'expected at most block_size 16',
    ],
    ['a list that is longer than the positions', { window: 4096 }, 'expected at most max_position_embeddings 512'],
    [
      'a layer that is not there',
      { ...{ block_size: 16, window: 64 }, retrieval: { layers: [7], every: 16 } },
      'ascending numbers of layers from 0 to 1',
    ],
    [
      'modules without their file',
      { block_size: 16, window: 64, trimmer: { width: 4 }, retrieval: { every: 16 } },
      'memory.safetensors is not there',
    ],
    [
      'a token that is not in the vocabulary',
      { block_size: 16, window: 64, retrieval: { every: 16 }, tokens: { retrieve: 'WHERE' } },
      'tokens.retrieve is "WHERE"',
    ],
  ]
  test.each(refusals)('with %s is refused by a sentence', async (_, memory, message) => {
    const model = writeLlama(512)
    const anchors = { tokens: 2, entries: 2 }
    writeFileSync(join(model, 'memory.json'), JSON.stringify({ format: 'continuo-memory/1', anchors, ...memory }))
    const { code, err } = await continuo(['eval', write('short.txt', 'abc'), '--model', model])
    expect(code).toBe(1)
    expect(err).toContain('memory.json')
    expect(err).toContain(message)
  })

  test('beside a family without turned keys is refused', async () => {
    const model = writeOther()
    writeFileSync(join(model, 'memory.json'), '{"format":"continuo-memory/1"}')
    const { code, err } = await continuo(['eval', write('short.txt', 'abc'), '--model', model])
    expect(code).toBe(1)
    expect(err).toContain('only llama, qwen2 and qwen3 do')
  })
})
