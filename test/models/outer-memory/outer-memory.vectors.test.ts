/**
 * Bytes of archived blocks, and how keys turn: against vectors that were made elsewhere, and the engine against what
 * gives those.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { openModel } from '../../../src/models/open.ts'
import { ropeIncrements, ropeOf } from '../../../src/models/rope.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { exponentOf, f8, nearest } from './outer-memory-reference.ts'

const NAME = 'llama-tiny-memory'
const json = <T>(file: string): T => JSON.parse(readFileSync(join(sharedModel(NAME), file), 'utf8')) as T

interface Vectors {
  readonly rope: readonly {
    readonly config: { readonly head_dim: number } & Record<string, unknown>
    readonly increments: readonly number[]
  }[]
  readonly payloads: readonly {
    readonly cold_dtype: 'f8' | 'f16'
    readonly block: number
    /** L, B, G, d. */
    readonly shape: readonly [number, number, number, number]
    readonly k: Nested
    readonly v: Nested
    readonly bytes: string
    readonly sha256: string
  }[]
}
/** [L][B][G][d] */
type Nested = readonly (readonly (readonly (readonly number[])[])[])[]

/** The code of an E4M3 number. */
const codeOf = (x: number): number => {
  const sign = x < 0 || Object.is(x, -0) ? 128 : 0
  const a = Math.abs(x)
  if (a < 2 ** -6) return sign | Math.round(a * 512)
  const e = Math.floor(Math.log2(a))
  return sign | ((e + 7) << 3) | ((a / 2 ** e - 1) * 8)
}
const f16Code = (x: number): number => {
  const sign = x < 0 || Object.is(x, -0) ? 0x8000 : 0
  const a = Math.abs(x)
  if (a < 2 ** -14) return sign | Math.round(a * 2 ** 24)
  const e = Math.floor(Math.log2(a))
  return sign | (e > 15 ? 0x7c00 : ((e + 15) << 10) | ((a / 2 ** e - 1) * 1024))
}

/** A block as CNTB bytes, by docs/formats.md. */
const encoded = (cold: 'f8' | 'f16', block: number, [L, B, G, d]: readonly number[], k: Nested, v: Nested): Buffer => {
  const begin = Math.ceil((28 + (cold === 'f8' ? 2 * L! * G! : 0)) / 64) * 64
  const width = cold === 'f8' ? 1 : 2
  const out = Buffer.alloc(begin + 2 * L! * G! * B! * d! * width)
  out.write('CNTB')
  out.writeUInt16LE(1, 4)
  out.writeUInt16LE(cold === 'f8' ? 0 : 1, 6)
  for (const [i, number] of [B!, L!, G!, d!, block].entries()) out.writeUInt32LE(number, 8 + 4 * i)
  let at = begin
  for (let l = 0; l < L!; l += 1)
    for (const [which, all] of [k, v].entries())
      for (let g = 0; g < G!; g += 1) {
        const rows = all[l]!.map((heads) => heads[g]!)
        const e = exponentOf(Math.max(...rows.flat().map(Math.abs)))
        if (cold === 'f8') out.writeInt8(e, 28 + (l * 2 + which) * G! + g)
        for (const x of rows.flat()) {
          if (cold === 'f8') out.writeUInt8(codeOf(f8(x * 2 ** -e)), at)
          else out.writeUInt16LE(f16Code(nearest(x, 10, -14)), at)
          at += width
        }
      }
  return out
}

describe.skipIf(!hasShared)('the vectors of an external memory', () => {
  test('keys turn by these increments', () => {
    for (const { config, increments } of json<Vectors>('vectors.json').rope)
      expect(ropeIncrements(ropeOf(config as never), config.head_dim)).toEqual(increments)
  })

  test('blocks have these bytes', () => {
    for (const { cold_dtype, block, shape, k, v, bytes, sha256 } of json<Vectors>('vectors.json').payloads) {
      const found = encoded(cold_dtype, block, shape, k, v)
      expect(found.toString('base64')).toBe(bytes)
      expect(createHash('sha256').update(found).digest('hex')).toBe(sha256)
    }
  })

  test('the engine archives blocks as these bytes', async () => {
    const { token_ids: ids } = json<{ token_ids: number[] }>('expected.json')
    const model = await openModel(sharedModel(NAME), { threads: 2, keepPacked: false })
    try {
      const context = model.createContext()
      const tensors = () => {
        const state = context.serialize()
        return new Map(
          model.layout.tensors(state).map(({ name, offset, bytes, shape }) => {
            const part = Buffer.from(state.slice(offset, offset + bytes))
            return [name, { part, shape }] as const
          }),
        )
      }
      const [B, G, d] = [16, 2, 16]
      let archived = 0
      for (let at = 0; at < 160; at += 1) {
        const before = tensors()
        const { events = [] } = await model.submit({ context, tokens: Int32Array.of(ids[at]!), nats: false })
        // The token that completes a block may also archive one, which the state before it holds whole, unless it is
        // that one.
        for (const event of events) {
          if (event.type !== 'archive' || (event.block + 1) * B > at) continue
          const rows = (name: string): Nested => {
            const { part, shape } = before.get(name)!
            const [L, M, C] = shape as [number, number, number]
            return Array.from({ length: L }, (_, l) =>
              Array.from({ length: B }, (_p, p) =>
                Array.from({ length: G }, (_g, g) =>
                  Array.from({ length: d }, (_i, i) => {
                    const place = (event.block * B + p) % M
                    return part.readFloatLE(4 * ((l * M + place) * C + g * d + i))
                  }),
                ),
              ),
            )
          }
          const k = rows('window.k')
          const wanted = encoded('f8', event.block, [k.length, B, G, d], k, rows('window.v'))
          const { part, shape } = tensors().get('cold')!
          expect(part.subarray(event.block * shape[1]!, (event.block + 1) * shape[1]!).equals(wanted)).toBe(true)
          archived += 1
        }
      }
      expect(archived).toBeGreaterThan(4)
    } finally {
      model.close()
    }
  })
})
