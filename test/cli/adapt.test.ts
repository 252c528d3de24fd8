/** The commands on a model that adapts: its events from a file, and a session in a file that learns. */
import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { openPackage } from '../../src/models/open.ts'
import { readSnapshotFile } from '../../src/state/snapshot.ts'
import { hasShared } from '../engine/paths.ts'
import { readStored } from '../models/perspective/tensors.ts'
import { expected, script, tiny } from '../operators/adapting.ts'
import { continuo, json, MODEL, sessionRow, temporary } from './helpers.ts'

const folder = temporary()
let files = 0
const fresh = (name: string): string => join(folder, `${++files}-${name}`)
const write = (name: string, text: string): string => {
  const path = fresh(name)
  writeFileSync(path, text)
  return path
}
const events = (all: readonly object[]): string =>
  write('events.jsonl', all.map((each) => `${JSON.stringify(each)}\n`).join(''))
const lines = (path: string): readonly Record<string, unknown>[] =>
  readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
/** What the reference says of the first adaptation. */
const learnt = () => {
  const { tokens, evaluations, written, at } = expected().adapts[0]!
  return { tokens, evaluations, bound: written, pulse: at }
}

describe.skipIf(!hasShared)('continuo eval FILE.jsonl', () => {
  test('adapts among the tokens, and writes logits, what was observed, and the state, as the reference has them', async () => {
    const { ids, total_nll: total, logits, draws, adapts } = expected()
    const [outs, observed, state] = ['logits', 'observed', 'state'].map(fresh)
    const file = events([{ type: 'open', perspectives: true }, ...script()])
    const [result] = await json<{ nats: number; pulse: number; tokens: number }>(
      ...['eval', file, '--model', tiny(), '--logits', outs!, '--observations', observed!, '--state', state!],
    )
    expect(result).toMatchObject({ pulse: ids.length, tokens: ids.length })
    expect(result!.nats).toBeCloseTo(total, 2)
    const raw = readFileSync(outs!)
    for (const [at, value] of logits.entries()) expect(Math.abs(raw.readFloatLE(4 * at) - value)).toBeLessThan(1e-3)
    const told = lines(observed!).filter(({ type }) => type === 'adapted')
    expect(told.map(({ pulse, evaluations }) => ({ pulse, evaluations }))).toEqual(
      adapts.map(({ at, evaluations }) => ({ pulse: at, evaluations })),
    )
    expect(told[0]).toMatchObject(learnt())

    const snapshot = await readSnapshotFile(readFileSync(state!))
    const reference = readStored(join(tiny(), 'expected.safetensors'))
    const names = [...reference.keys()].filter((name) => !name.startsWith('after-adapt-'))
    expect(names).toContain('hdm.banks')
    for (const name of names) {
      const { dtype, bytes } = reference.get(name)!
      const { offset, bytes: length } = snapshot.tensors.find((each) => each.name === name)!
      const found = Buffer.from(snapshot.state.subarray(offset, offset + length))
      if (dtype !== 'F32') {
        expect(found, name).toEqual(Buffer.from(bytes))
        continue
      }
      const floats = (from: Buffer): number[] =>
        Array.from({ length: from.length / 4 }, (_, at) => from.readFloatLE(4 * at))
      const right = floats(Buffer.from(bytes))
      const largest = Math.max(...right.map(Math.abs))
      const apart = Math.max(...floats(found).map((value, at) => Math.abs(value - right[at]!)))
      expect(apart, name).toBeLessThanOrEqual(1e-3 * largest)
    }

    const asked = { type: 'generate', requestId: 'r', maxTokens: 2, seed: 5, temperature: 0.7 }
    const drawn = events([{ type: 'open', perspectives: true }, script()[0]!, asked])
    await json('eval', drawn, '--model', tiny(), '--observations', observed!)
    const [found] = lines(observed!).filter(({ type }) => type === 'perspectives')
    const [first] = found!.draws as readonly { fired: boolean; agreed: boolean; entropy: number }[]
    expect(first).toMatchObject({ fired: draws[47]!.fired, agreed: draws[47]!.agreed })
    expect(first!.entropy).toBeCloseTo(draws[47]!.entropy, 3)
  })

  test('names the line of an adaptation that cannot be', async () => {
    const nobody = await continuo(['eval', events([{ type: 'adapt', evaluations: 4 }]), '--model', tiny()])
    expect(nobody.code).toBe(1)
    expect(nobody.err).toContain('line 1: Session "eval" is not open')
    const other = events([
      { type: 'text', text: 'A ship.' },
      { type: 'adapt', evaluations: 4 },
    ])
    const plain = await continuo(['eval', other, '--model', MODEL])
    expect(plain.code).toBe(1)
    expect(plain.err).toContain('line 2: The model has nothing that adapts')
  })
})

describe.skipIf(!hasShared)('continuo adapt', () => {
  const adapt = (file: string, ...flags: readonly string[]) => ['adapt', file, '--model', tiny(), ...flags]
  const asReference = (): readonly string[] => {
    const { asked, seed } = expected().adapts[0]!
    return ['--evaluations', String(asked), '--seed', String(seed)]
  }
  /** A session that has read what comes before the first adaptation, exported. */
  const exported = async (): Promise<string> => {
    const log = `file:${fresh('log.db')}`
    const text = write('text', '')
    writeFileSync(text, Buffer.from(expected().ids.slice(0, 48)))
    await json('feed', text, '--log', log, '--session', 's')
    expect(await continuo(['run', '--log', log, '--model', tiny(), '--until-idle', '50'])).toMatchObject({ code: 0 })
    const file = fresh('state.safetensors')
    await json('export', '--log', log, '--session', 's', file, '--model', tiny())
    return file
  }

  test('has the session in a file learn as the event would, and import takes it where it stands in its stream', {
    tags: 'slow',
  }, async () => {
    const file = await exported()
    const before = readFileSync(file)
    const place = async (bytes: Uint8Array) => {
      const { cursor, conductor, session } = (await readSnapshotFile(bytes)).head
      return { cursor, conductor, session }
    }
    const out = fresh('learnt.safetensors')
    const [told] = await json<{ chain: string; loss: { before: number; after: number } }>(
      ...adapt(file, ...asReference(), '--out', out),
    )
    expect(told).toMatchObject({ session: 's', file: out, ...learnt() })
    expect(told!.loss.after).toBeLessThan(told!.loss.before)
    expect(readFileSync(file)).toEqual(before)
    expect(await place(readFileSync(out))).toEqual(await place(before))

    // The same by the event.
    const [event] = await json<{ chain: string }>('eval', events(script().slice(0, 2)), '--model', tiny())
    expect(told!.chain).toBe(event!.chain)

    const [again] = await json(...adapt(file, ...asReference()))
    expect(again).toMatchObject({ chain: told!.chain, file })
    expect(readFileSync(file)).toEqual(readFileSync(out))

    const log = `file:${fresh('other.db')}`
    const [placed] = await json('import', file, '--log', log, '--session', 'copy', '--model', tiny())
    expect(placed).toMatchObject({ chain: told!.chain, pulse: 48, from: 's' })
    // It goes on with what it learnt.
    const rest = write('rest', '')
    writeFileSync(rest, Buffer.from(expected().ids.slice(48, 80)))
    await json('feed', rest, '--log', log, '--session', 'copy')
    expect(await continuo(['run', '--log', log, '--model', tiny(), '--until-idle', '50'])).toMatchObject({ code: 0 })
    const [whole] = await json<{ chain: string }>('eval', events(script().slice(0, 3)), '--model', tiny())
    expect((await sessionRow(log, 'copy')).chain).toBe(whole!.chain)
    expect(await continuo(['verify', '--log', log, '--model', tiny()])).toMatchObject({ code: 0 })
  })

  test('says what came of it, in lines', async () => {
    const file = await exported()
    const { code, out, err } = await continuo(adapt(file, ...asReference()))
    expect({ code, err }).toEqual({ code: 0, err: '' })
    expect(out).toMatch(/^12 tokens: 12\.7536 nats a token before, 11\.979\d after\n1 of 3 stages kept; 7 tokens bound/)
    expect(out).toMatch(/\n14 evaluations in .* s\nWrote .*: session "s", chain [0-9a-f]{32}, /)
  })

  test('keeps the seal of a file that is sealed with a key, and refuses one that is not', {
    tags: 'slow',
  }, async () => {
    const file = await exported()
    const key = write('key', 'ab'.repeat(32))
    const plain = await continuo(adapt(file, ...asReference(), '--seal-key', key))
    expect(plain).toMatchObject({ code: 3, out: '' })
    expect(plain.err).toContain('is sealed without a key')
    await json(...adapt(file, ...asReference(), '--seal-key', key, '--seal-key-old', 'plain'))
    const unsealed = await continuo(adapt(file, ...asReference()))
    expect(unsealed.err).toContain('is sealed with a key: give it')
    expect(await continuo(adapt(file, ...asReference(), '--seal-key', key))).toMatchObject({ code: 0 })
  })

  test('refuses what cannot be by a sentence, and leaves the file as it was', { tags: 'slow' }, async () => {
    const file = await exported()
    const before = readFileSync(file)
    const refused = async (args: readonly string[], code: number, sentence: string) => {
      const done = await continuo(args)
      expect(done, done.err).toMatchObject({ code, out: '' })
      expect(done.err).toContain(sentence)
      expect(readFileSync(file)).toEqual(before)
    }
    await refused(adapt(file), 2, 'needs --evaluations')
    await refused(adapt(file, '--evaluations', '65537'), 2, '--evaluations takes a whole number from 1 to 65536')
    await refused(adapt(file, '--evaluations', '4', '--force'), 2, '--out FILE')
    await refused(adapt(file, '--evaluations', '4', '--out', file), 2, 'is there already')
    await refused(adapt(folder, '--evaluations', '4'), 2, 'is a folder')
    await refused(adapt(fresh('none'), '--evaluations', '4'), 1, 'cannot be read')
    await refused(['adapt', file, '--model', MODEL, '--evaluations', '4'], 3, 'Nothing was changed')
    const damaged = fresh('damaged.safetensors')
    cpSync(file, damaged)
    const bytes = readFileSync(damaged)
    bytes[bytes.length - 5]! ^= 4
    writeFileSync(damaged, bytes)
    await refused(adapt(damaged, '--evaluations', '4', '--out', fresh('out')), 3, 'checksum')
    expect(existsSync(join(folder, `${files}-out`))).toBe(false)
  })

  test('refuses a model that has nothing that adapts', async () => {
    const { SessionManager } = await import('../../src/sessions/manager.ts')
    const { model } = await openPackage(MODEL, { threads: 1 })
    const manager = new SessionManager(model, { verifyWeights: false })
    const session = manager.createSession('plain')
    await manager.process(session, [1, 2, 3])
    const file = fresh('plain.safetensors')
    writeFileSync(file, await manager.checkpointSession(session))
    await manager.close()
    model.close()
    const done = await continuo(['adapt', file, '--model', MODEL, '--evaluations', '4'])
    expect(done).toMatchObject({ code: 1, out: '' })
    expect(done.err).toContain('The model has nothing that adapts')
  })
})
