/**
 * One arithmetic for an ngram memory, over text that it has contexts for: the suites that walk the families read bytes
 * of no order, which leave most of its tables alone.
 */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import type { EngineContext } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import { bits, feed, generate, greedy, open, sameBytes } from '../../engine/helpers.ts'
import { logLines, randomLearned, writeNgram } from './texts.ts'

// Slots are rare, so that contexts replace each other.
const SLOTS = 3002
const TEXT = logLines(11, 4500)
const OTHERS = [12, 13, 14, 15, 16].map((seed, i) => logLines(seed, 900 * (i + 1)))

const headOf = ({ pulse, origin, chain }: EngineContext) => ({ pulse, origin, chain })

let dir = ''
beforeAll(() => {
  dir = writeNgram(SLOTS, randomLearned(21))
})

/** Nats of a text in pieces; others read beside it, in pieces of their own. */
const natsBy = async (
  model: Model,
  context: EngineContext,
  chunk: number,
  others: readonly EngineContext[],
): Promise<Float32Array> => {
  const nats: number[] = []
  for (let at = 0, turn = 0; at < TEXT.length; at += chunk, turn += 1) {
    const beside = others.flatMap((other, i) => {
      const rest = OTHERS[i]!.subarray(Number(other.pulse))
      const tokens = Int32Array.from(rest.subarray(0, 1 + ((turn * 37 + i) % 200)))
      return tokens.length === 0 ? [] : [{ context: other, tokens, nats: i % 2 === 0 }]
    })
    const tokens = Int32Array.from(TEXT.subarray(at, at + chunk))
    const [mine] = await model.process([{ context, tokens, nats: true }, ...beside])
    nats.push(...mine!.nats)
  }
  return Float32Array.from(nats)
}

describe('an ngram memory', () => {
  it('has the same surprisals, chain and tables for any cut, threads and company', async () => {
    const one = await open(dir)
    const whole = one.createContext()
    const want = bits(await feed(one, whole, TEXT))
    const alone = await Promise.all(
      OTHERS.map(async (text) => {
        const context = one.createContext()
        await feed(one, context, text, false)
        return context
      }),
    )
    for (const threads of [1, 2]) {
      const model = await open(dir, { threads })
      for (const chunk of [1, 7, 128]) {
        const [context, ...others] = [TEXT, ...OTHERS].map(() => model.createContext())
        expect(bits(await natsBy(model, context!, chunk, others))).toEqual(want)
        expect(context!.chain).toBe(whole.chain)
        expect(sameBytes(context!.serialize(), whole.serialize())).toBe(true)
        for (const [i, other] of others.entries()) {
          await feed(model, other, OTHERS[i]!.subarray(Number(other.pulse)), false)
          expect(other.chain).toBe(alone[i]!.chain)
          expect(sameBytes(other.serialize(), alone[i]!.serialize())).toBe(true)
        }
      }
    }
  })

  it('has the same bits on every instruction set', { tags: 'slow' }, async () => {
    const script = `
      import { createHash } from 'node:crypto'
      const { openModel } = await import(${JSON.stringify(new URL('../../../src/models/open.ts', import.meta.url).href)})
      const model = await openModel(${JSON.stringify(dir)}, { threads: 1 })
      const context = model.createContext()
      const tokens = Int32Array.from(Buffer.from(${JSON.stringify(Buffer.from(TEXT).toString('base64'))}, 'base64'))
      const [{ nats }] = await model.process([{ context, tokens, nats: true }])
      const hash = createHash('sha256').update(nats).update(await model.logits(context)).update(context.serialize())
      console.log(context.chain, hash.digest('hex'))`
    const compute = async (isa: string): Promise<string> => {
      const env = { ...process.env, CONTINUO_ISA: isa }
      return (await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', script], { env })).stdout
    }
    const refusal = await compute('none').catch((error: { stderr: string }) => error.stderr)
    const runnable = /this CPU runs: ([a-z0-9, ]+)\./.exec(refusal)![1]!.split(', ')
    expect(runnable).toContain('generic')
    const model = await open(dir)
    const context = model.createContext()
    const nats = await feed(model, context, TEXT)
    const hash = createHash('sha256')
      .update(nats)
      .update(await model.logits(context))
    const want = `${context.chain} ${hash.update(context.serialize()).digest('hex')}\n`
    for (const isa of runnable) expect([isa, await compute(isa)]).toEqual([isa, want])
  })

  it('goes on from a snapshot, and from a fork, as if nothing had happened', async () => {
    const model = await open(dir)
    const context = model.createContext()
    const want = bits(await feed(model, context, TEXT))
    // Within a number, at the end of a line, after one byte, and before the first.
    const cuts = [0, 1, TEXT.indexOf(10) + 1, 1700, 4321]
    for (const cut of cuts) {
      const before = model.createContext()
      await feed(model, before, TEXT.subarray(0, cut), false)
      const restored = model.createContext()
      await feed(model, restored, OTHERS[2]!, false)
      restored.restore(before.serialize(), headOf(before))
      const fork = model.forkContext(before)
      // A fork's tables are its own.
      await feed(model, before, OTHERS[3]!, false)
      for (const twin of [restored, fork]) {
        expect(bits(await feed(model, twin, TEXT.subarray(cut)))).toEqual(want.subarray(cut))
        expect(sameBytes(twin.serialize(), context.serialize())).toBe(true)
        expect(twin.chain).toBe(context.chain)
      }
    }
  })

  it('is as new after a reset', async () => {
    const model = await open(dir)
    const [context, fresh] = [model.createContext(), model.createContext()]
    await feed(model, context, OTHERS[4]!, false)
    context.reset()
    expect(sameBytes(context.serialize(), fresh.serialize())).toBe(true)
    expect(bits(await feed(model, context, TEXT)).subarray(1)).toEqual(bits(await feed(model, fresh, TEXT)).subarray(1))
    expect(sameBytes(context.serialize(), fresh.serialize())).toBe(true)
  })

  it('writes the same text with guesses and without, and most guesses of a line that it knows are right', async () => {
    const line = Buffer.from('GET /index.html HTTP/1.1 200\n')
    const written = async (tokens: number): Promise<readonly unknown[]> => {
      const model = await open(dir, { threads: 2, speculate: { tokens, adapt: false } })
      const contexts = [TEXT, Buffer.concat(Array(40).fill(line))].map(() => model.createContext())
      await feed(model, contexts[0]!, TEXT, false)
      await feed(model, contexts[1]!, Buffer.concat(Array(40).fill(line)), false)
      const drawing = { temperature: 0.7, topK: 0, topP: 1, seed: 3n }
      const texts = [
        await generate(model, contexts[0]!, 150, drawing),
        await generate(model, contexts[1]!, 150, greedy),
        await generate(model, contexts[0]!, 90, greedy),
      ].map(({ generated, logprobs }) => [Buffer.from(generated).toString('latin1'), bits(logprobs)])
      if (tokens > 0) expect(model.stats.kept).toBeGreaterThan(100)
      return [
        texts,
        contexts.map(({ chain }) => chain),
        contexts.map((context) => Buffer.from(context.serialize()).toString('base64')),
      ]
    }
    const want = await written(0)
    const [texts] = want as [readonly [string, unknown][]]
    expect(texts[1]![0]).toBe(line.toString('latin1').repeat(6).slice(0, 150))
    for (const tokens of [1, 8]) expect(await written(tokens)).toEqual(want)
  })
})
