/** Ngram memories that do not fit together: refused at load, by a sentence that names what is wrong. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { buildGraph } from '../../../src/engine/builder.ts'
import { type Axis, autoDim, ref, ring } from '../../../src/engine/builder-types.ts'
import type { Graph } from '../../../src/engine/graph.ts'
import { callNative } from '../../../src/engine/native.ts'
import { checkGraph } from '../../../src/engine/plan.ts'
import { openModel } from '../../../src/models/open.ts'
import { errorOf } from '../../engine/helpers.ts'
import { bent, inputs } from '../../engine/memory-graphs.ts'
import { safetensors, type Tensor, temporaryFolder, writePackage } from '../../engine/packages.ts'
import { randomLearned, writeNgram } from './texts.ts'

const SLOTS = 2048
const sizes = callNative((addon) => addon.ngram('bytes', SLOTS))
const subwords = callNative((addon) => addon.ngram('subwords', SLOTS))

interface Shapes {
  readonly slots: readonly number[]
  readonly text: readonly number[]
  readonly mixture: readonly number[]
  readonly base: number | null
  /** Of subwords the table of the base. */
  readonly kept: readonly number[] | null
  readonly learned: number
  readonly slotsType: 'i32' | 'f32'
  readonly textType: 'i32' | 'f32'
  readonly mixtureType: 'i32' | 'f32'
  readonly token: 'i32' | 'f32'
}
const FIT: Shapes = {
  slots: [SLOTS, 2],
  text: [sizes.text],
  mixture: [sizes.mixture],
  base: 256,
  kept: null,
  learned: sizes.learned,
  slotsType: 'i32',
  textType: 'i32',
  mixtureType: 'f32',
  token: 'i32',
}

const graphOf = (change: Partial<Shapes>): Graph => {
  const its = { ...FIT, ...change }
  const g = buildGraph()
  const token = g.dynamic('token', [], its.token)
  const base = g.dynamic('base', [its.base ?? 256], 'f32')
  const learned = its.learned === 0 ? null : g.vector('learned', its.learned, ref('learned'))
  const tables = {
    slots: g.table('slots', its.slots, { dtype: its.slotsType })(),
    text: g.table('text', its.text, { dtype: its.textType })(),
    mixture: g.table('mixture', its.mixture, { dtype: its.mixtureType })(),
    ...(its.kept !== null && { base: g.table('kept', its.kept)() }),
  }
  g.block('first', [], () => {
    g.cacheNgramFirst(tables.mixture, learned)
    return {}
  })
  g.block('step', [token, base], () => ({
    y: g.cacheNgram('y', tables, token as never, 'read', ...(its.base === null ? [] : [base])),
  }))
  return g.finish()
}

const NODE = /^graph:? node cache\.ngram(\.first)? "/
const invalid = (graph: Graph) => errorOf(() => checkGraph(graph))

describe('an ngram memory in a graph', () => {
  it('whose tables fit passes, with a base and without', () => {
    for (const base of [256, null]) checkGraph(graphOf({ base }))
    checkGraph(JSON.stringify(graphOf({})))
  })

  it.each<[string, Partial<Shapes>, readonly string[]]>([
    ['an odd number of slots', { slots: [SLOTS + 1, 2] }, ['"slots" has shape [2049, 2]', 'even number of slots']],
    ['too few slots', { slots: [1022, 2] }, ['"slots" has shape [1022, 2]', 'from 1024 to 16777216']],
    ['too many slots', { slots: [2 ** 24 + 2, 2] }, ['"slots" has shape [16777218, 2]', 'from 1024 to 16777216']],
    ['slots of three words', { slots: [SLOTS, 3] }, ['"slots" has shape [2048, 3], expected [2048, 2]']],
    ['slots of one axis', { slots: [2 * SLOTS] }, ['"slots" has shape [4096], expected [slots, 2]']],
    ['slots of more axes', { slots: [3, SLOTS, 2] }, ['"slots" has shape [3, 2048, 2], expected [slots, 2]']],
    ['slots of f32', { slotsType: 'f32' }, ['"slots" is f32, expected i32']],
    [
      'a text that is too short',
      { text: [sizes.text - 1] },
      [`"text" has shape [${sizes.text - 1}], expected [${sizes.text}]`],
    ],
    [
      'a text that is too long',
      { text: [sizes.text + 2] },
      [`"text" has shape [${sizes.text + 2}], expected [${sizes.text}]`],
    ],
    [
      'the text of more slots',
      { text: [callNative((addon) => addon.ngram('bytes', 2 * 65_536)).text] },
      ['"text" has shape [', `expected [${sizes.text}]`],
    ],
    ['a text of f32', { textType: 'f32' }, ['"text" is f32, expected i32']],
    [
      'a mixture of one number more',
      { mixture: [sizes.mixture + 1] },
      ['"mixture" has shape [', `expected [${sizes.mixture}]`],
    ],
    ['a mixture of whole numbers', { mixtureType: 'i32' }, ['"mixture" is i32, expected f32']],
    ['a base of 255 tokens', { base: 255 }, ['"base" has shape [255], expected [256]']],
    ['a token of f32', { token: 'f32' }, ['"token" is f32, expected i32']],
    [
      'one learned number too few',
      { learned: sizes.learned - 1 },
      [`"learned" has shape [${sizes.learned - 1}], expected [${sizes.learned}]`],
    ],
  ])('%s', async (_, change, parts) => {
    const { code, message } = await invalid(graphOf(change))
    expect(code).toBe('INVALID')
    expect(message).toMatch(NODE)
    for (const part of parts) expect(message).toContain(part)
  })

  const SUBWORDS = {
    ...{ slots: [SLOTS, 4], text: [subwords.text], mixture: [subwords.mixture], base: 300, kept: [300] },
    learned: 0,
  }
  it.each<[string, Partial<Shapes>, readonly string[]]>([
    ['slots of two words', { slots: [SLOTS, 2] }, ['"slots" has shape [2048, 2], expected [2048, 4]']],
    ['the text of bytes', { text: [sizes.text] }, [`"text" has shape [${sizes.text}], expected [${subwords.text}]`]],
    [
      'the mixture of bytes',
      { mixture: [sizes.mixture] },
      [`"mixture" has shape [${sizes.mixture}], expected [${subwords.mixture}]`],
    ],
    ['a table of the base that is shorter', { kept: [299] }, ['"kept" has shape [299], expected [300]']],
    ['a table of the base of two axes', { kept: [1, 300] }, ['"kept" has shape [1, 300], expected [300]']],
    ['too few learned numbers', { learned: sizes.learned - 1 }, [`expected [${sizes.learned}]`]],
  ])('of subwords with %s', async (_, change, parts) => {
    checkGraph(graphOf(SUBWORDS))
    checkGraph(graphOf({ ...SUBWORDS, learned: sizes.learned }))
    const { code, message } = await invalid(graphOf({ ...SUBWORDS, ...change }))
    expect(code).toBe('INVALID')
    expect(message).toMatch(NODE)
    for (const part of parts) expect(message).toContain(part)
  })

  it.each<[string, (names: readonly string[]) => string[], string]>([
    ['no text', ([token, slots]) => [token!, slots!], '3'],
    [
      'six inputs',
      (names) => [...names, 'base', 'base'],
      'has 6 inputs, expected 3, a fourth one for a base, and a fifth one for its table',
    ],
    ['a value in place of the table of a base', (names) => [...names, 'base'], 'expected [2048, 4]'],
    ['the text in place of the slots', ([token, , text, base]) => [token!, text!, text!, base!], '"text" has shape ['],
    [
      'the slots in place of the text',
      ([token, slots, , base]) => [token!, slots!, slots!, base!],
      '"slots" has shape [',
    ],
    [
      'a value in place of the slots',
      ([token, , text]) => [token!, 'base', text!],
      '"base" is dynamic, expected persistent',
    ],
    ['a token in place of the base', ([token, slots, text]) => [token!, slots!, text!, 'token'], '"token"'],
    ['the mixture as a base', ([token, slots, text]) => [token!, slots!, text!, 'mixture'], '"mixture"'],
  ])('%s', async (_, change, says) => {
    const { code, message } = await invalid(bent(graphOf({}), 'cache.ngram', inputs(change)))
    expect(code).toBe('INVALID')
    expect(message).toMatch(NODE)
    expect(message).toContain(says)
  })

  it.each([
    ['slots', 'a ring'],
    ['slots', 'a table that grows'],
    ['text', 'a ring'],
    ['mixture', 'a ring'],
  ] as const)('%s in %s, whose places lie in blocks', async (which, kind) => {
    const g = buildGraph()
    const token = g.dynamic('token', [], 'i32')
    const count = g.counter('count', { max: 2 ** 20 })
    const axis = (name: string, places: number): Axis =>
      name !== which ? places : kind === 'a ring' ? ring(places, count) : autoDim(count)
    const tables = {
      slots: g.table('slots', [axis('slots', SLOTS), 2], { dtype: 'i32' })(),
      text: g.table('text', [axis('text', sizes.text)], { dtype: 'i32' })(),
      mixture: g.table('mixture', [axis('mixture', sizes.mixture)])(),
    }
    g.block('step', [token], () => {
      g.cacheIncrement(count)
      return { y: g.cacheNgram('y', tables, token, 'read') }
    })
    expect(await invalid(g.finish())).toMatchObject({
      code: 'INVALID',
      message: `graph node cache.ngram "y": table "${which}" grows or is a ring, expected one of a fixed size.`,
    })
  })
})

describe('a package of an ngram memory', () => {
  const refusal = (dir: string) => errorOf(() => openModel(dir, { threads: 1 }))
  const configured = (change: Readonly<Record<string, unknown>>): string => {
    const dir = writeNgram(SLOTS)
    writeFileSync(
      join(dir, 'config.json'),
      JSON.stringify({ model_type: 'ngram', vocab_size: 256, slots: SLOTS, ...change }),
    )
    return dir
  }

  it('opens', async () => {
    for (const dir of [configured({}), writeNgram(1024, randomLearned(1)), configured({ slots: undefined })])
      (await openModel(dir, { threads: 1 })).close()
  })

  it.each<[string, unknown]>([
    ['slots', 1000.5],
    ['slots', 3],
    ['slots', 2049],
    ['slots', 1022],
    ['slots', 2 ** 24 + 2],
    ['slots', -2048],
    ['slots', '2048'],
    ['slots', null],
    ['vocab_size', 300],
    ['vocab_size', 255],
    ['vocab_size', '256'],
  ])('%s of %j', async (key, value) => {
    const { code, message } = await refusal(configured({ [key]: value }))
    expect(code).toBe('INVALID')
    expect(message).toContain('config.json')
    expect(message).toContain(key)
  })

  it('whose learned numbers are too few, too many, in another shape, not finite, or not alone', async () => {
    const learned = randomLearned(2)
    const written = (tensors: Readonly<Record<string, Tensor>>): string =>
      writePackage(
        { model_type: 'ngram', slots: SLOTS },
        safetensors(new Map(Object.entries(tensors))),
        temporaryFolder(),
      )
    const one = { shape: [learned.length], data: learned }
    const sized = (length: number): Tensor => ({ shape: [length], data: new Float32Array(length) })
    for (const length of [1, learned.length - 1, learned.length + 1])
      expect(await refusal(written({ learned: sized(length) }))).toMatchObject({
        code: 'INVALID',
        message: expect.stringContaining(`"learned" has shape [${length}], expected [${learned.length}]`),
      })
    expect((await refusal(written({ learned: { ...one, shape: [2, learned.length / 2] } }))).message).toContain(
      '"learned"',
    )
    const bad = learned.with(99, Number.NaN)
    expect((await refusal(written({ learned: { ...one, data: bad } }))).message).toContain('learned')
    expect((await refusal(written({ learned: one, taught: one }))).message).toContain('"taught"')
  })
})
