/**
 * A whole snapshot in a file, read by pieces: the state that comes out of it, whatever lies in blocks, and files that
 * are none.
 *
 * @module-tag slow
 */
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { Model } from '../../../src/engine/types.ts'
import { openPackage } from '../../../src/models/open.ts'
import { clockOf } from '../../../src/operators/advance/session-state.ts'
import { admit, admitFile } from '../../../src/operators/sessions/admit.ts'
import { createContextStore } from '../../../src/operators/sessions/context-store.ts'
import { openWholeFile } from '../../../src/operators/snapshots/whole-file.ts'
import { SessionManager } from '../../../src/sessions/manager.ts'
import { withoutHistory } from '../../../src/state/history.ts'
import { decodeSnapshot } from '../../../src/state/snapshot.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { FAMILIES, type FamilyKey, openFamily } from '../../families.ts'

const folder = temporaryFolder()
let files = 0

/** A model, and the file of a session that read so many tokens. */
const fileOf = async (key: FamilyKey, count: number) => {
  const { dir, overflow } = await openFamily(key, folder)
  const { model, tokenizer } = await openPackage(dir, { threads: 2, device: 'cpu', overflow })
  const sessions = new SessionManager(model)
  sessions.createSession('s')
  await sessions.process(
    's',
    Array.from({ length: count }, (_, i) => (i * i + 3 * i) % 250),
  )
  const file = await sessions.checkpointSession('s')
  await sessions.close()
  const { state, head } = await decodeSnapshot(file, model.layout)
  const path = join(folder, `${files++}.safetensors`)
  writeFileSync(path, file)
  return { model, tokenizer, path, state, head }
}

const loaded = async (path: string, model: Model, maxBytes?: number) => {
  const reads: string[] = []
  const contexts = createContextStore(model, { blocks: { maxBytes, onRead: (tier) => reads.push(tier) } })
  const file = (await openWholeFile(path))!
  try {
    await file.verify()
    const context = contexts.createContext()
    await context.load(await file.source(model.layout), clockOf(file.head))
    return { state: await context.state(), reads }
  } finally {
    await file.close()
    await contexts.close()
  }
}

test.each(
  FAMILIES.filter(({ large }: { large?: true }) => large !== true).map(({ key }) => key),
)('gives the state of %s as it was', async (key) => {
  for (const count of [1, 90, 700]) {
    const length = key === 'gpt2-refuse' ? Math.min(count, 120) : count
    const { model, path, state } = await fileOf(key, length)
    const found = await loaded(path, model, 0)
    expect(Buffer.compare(found.state, state)).toBe(0)
    // Archived blocks stayed in the file until the state was copied.
    expect(found.reads.includes('store')).toBe(key === 'memory' && count === 700)
    model.close()
  }
})

test('is admitted as the whole of it is, and tried out on a copy', async () => {
  const { model, tokenizer, path, state, head } = await fileOf('memory', 700)
  const contexts = createContextStore(model, { blocks: { maxBytes: 0 } })
  const file = (await openWholeFile(path))!
  const session = await admitFile(file, model, tokenizer, contexts)
  const whole = (await admit(readFileSync(path), model, tokenizer)).head
  expect(session.head).toEqual(withoutHistory(whole))
  expect(session.history.kept().recent).toBe(whole.recent)
  expect(session.head.session).toBe(head.session)
  expect(session.context.chain).toBe(head.chain)
  expect(Buffer.compare(await session.context.state(), state)).toBe(0)
  await file.checkUnchanged()
  appendFileSync(path, 'x')
  await expect(file.checkUnchanged()).rejects.toThrow('was written to while it was read')
  await file.close()
  await contexts.close()
  model.close()
})

test('a folder and a pipe are none', async () => {
  await expect(openWholeFile(folder)).rejects.toMatchObject({ code: 'EISDIR' })
  await expect(openWholeFile('/dev/null')).rejects.toThrow('is a pipe or a device')
})

describe('a file that is none, or another', () => {
  /** The file with another header, which keeps its length, and what reading it comes to. */
  const altered = async (change: (header: string, bytes: Buffer) => Buffer) => {
    const { model, tokenizer, path } = await fileOf('qwen3', 600)
    const bytes = readFileSync(path)
    const length = Number(bytes.readBigUInt64LE())
    writeFileSync(path, change(bytes.toString('utf8', 8, 8 + length), bytes))
    const contexts = createContextStore(model)
    const open = async () => {
      const file = await openWholeFile(path)
      if (file === null) return null
      try {
        return await admitFile(file, model, tokenizer, contexts)
      } finally {
        await file.close()
      }
    }
    const outcome = await open().then(
      (found) => (found === null ? 'none' : 'taken'),
      (error: unknown) => String(error),
    )
    await contexts.close()
    model.close()
    return outcome
  }
  const withHeader = (header: string, bytes: Buffer): Buffer => {
    const text = Buffer.from(header)
    const out = Buffer.concat([Buffer.alloc(8), text, bytes.subarray(8 + Number(bytes.readBigUInt64LE()))])
    out.writeBigUInt64LE(BigInt(text.length))
    return out
  }

  test.each([
    ['untouched', (_: string, bytes: Buffer) => bytes, 'taken'],
    ['empty', () => Buffer.alloc(0), 'none'],
    ['of another kind', () => Buffer.from('{"format":"continuo-snapshot"} is no header'), 'announces a header of'],
    ['without its end', (_: string, bytes: Buffer) => bytes.subarray(0, bytes.length - 9), 'fails its checksum'],
    ['without most of its header', (_: string, bytes: Buffer) => bytes.subarray(0, 40), 'none'],
    [
      'with a flipped bit',
      (_: string, bytes: Buffer) => {
        bytes[bytes.length - 1000]! ^= 8
        return bytes
      },
      'fails its checksum',
    ],
    [
      'without a table',
      (text: string, bytes: Buffer) => withHeader(text.replace('"keyCache"', '"keyCachf"'), bytes),
      'has keyCache as null',
    ],
    [
      'with another dtype',
      (text: string, bytes: Buffer) => withHeader(text.replace('"F32"', '"I32"'), bytes),
      'layout says',
    ],
    [
      'with fewer positions than its counter',
      (text: string, bytes: Buffer) => withHeader(text.replaceAll(/,600,/g, ',200,'), bytes),
      'its counter asks for 512 or more',
    ],
    [
      'with a tensor that ends before it begins',
      (text: string, bytes: Buffer) =>
        withHeader(text.replace(/"data_offsets":\[\d+,(\d+)\]/, '"data_offsets":[99999999,$1]'), bytes),
      /has \S+ from byte 99999999 up to/,
    ],
    [
      'with a tensor more',
      (text: string, bytes: Buffer) =>
        withHeader(text.replace(/\}\s*$/, ',"more":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'), bytes),
      'has a tensor "more"',
    ],
  ] as const)('%s', async (_, change, outcome) => {
    expect(await altered(change)).toMatch(outcome)
  })
})
