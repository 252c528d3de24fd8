/**
 * What goes wrong with files, and what the embedded log makes of it: a verdict in a sentence, and a log that stays
 * whole.
 */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { DatabaseOptions } from '../../src/streams/embedded/database.ts'
import { openEmbeddedLog } from '../../src/streams/embedded/log.ts'
import { parseEmbeddedUrl } from '../../src/streams/embedded/url.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { eventually, readAll, record, refuses, valuesOf, watch } from './helpers.ts'

let folder = ''
let path = ''
const logs: EventLog[] = []
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'continuo-faults-'))
  path = join(folder, 'log.db')
})
afterEach(async () => {
  await Promise.all(logs.splice(0).map((log) => log.close()))
  rmSync(folder, { recursive: true })
})

const open = async (options: DatabaseOptions = {}): Promise<EventLog> => {
  const log = await openEmbeddedLog(`file:${path}`, options)
  logs.push(log)
  return log
}

const openWithTopic = async (options?: DatabaseOptions): Promise<EventLog> => {
  const log = await open(options)
  await log.createTopics([{ name: 't', partitions: 1, config: {} }])
  return log
}

const big = { topic: 't', key: null, value: new Uint8Array(400_000) }

describe('the URL of the embedded log', () => {
  test.each([
    ['file:log.db', join(process.cwd(), 'log.db'), 'continuo'],
    ['file:./a/../log.db?prefix=x', join(process.cwd(), 'log.db'), 'x'],
    ['file:/var/log.db', '/var/log.db', 'continuo'],
    ['file:///var/log.db', '/var/log.db', 'continuo'],
    ['file://localhost/var/log.db', '/var/log.db', 'continuo'],
    ['file:/var/a%20b%3F%23%25.db?prefix=my.logs_1-2', '/var/a b?#%.db', 'my.logs_1-2'],
    ['file:/var/a b.db', '/var/a b.db', 'continuo'],
  ])('%s names a file and a prefix', (url, file, prefix) => {
    expect(parseEmbeddedUrl(url)).toEqual({ path: file, prefix })
  })

  test.each([
    ['file:', '"file:"', 'nothing names a file'],
    ['file:folder/', '"file:folder/"', 'nothing names a file'],
    ['file://server/log.db', '"file:…"', 'host'],
    ['file:log.db?prefx=x', '"file:log.db…"', 'prefix'],
    ['file:log.db?prefix=a/b', '"file:log.db…"', 'the prefix is not'],
    ['file:log.db?prefix=', '"file:log.db?prefix="', 'the prefix is not'],
    ['file:log.db#part', '"file:log.db…"', 'fragment'],
    ['file:100%.db', '"file:100%.db"', '%25'],
    ['file:a%00b.db', '"file:a%00b.db"', 'zero byte'],
    ['file:u:secret@host', '"file:…"', '%40'],
  ])('%s is INVALID, and the message says why', async (url, shown, part) => {
    await refuses(openEmbeddedLog(url), 'INVALID', shown, part, 'file:continuo.db')
  })
})

describe('the file of the embedded log', () => {
  test('is created with its folders', async () => {
    path = join(folder, 'a', 'b', 'log.db')
    await (await open()).ping()
    expect(existsSync(path)).toBe(true)
  })

  test('is created once by many that open it at the same time', async () => {
    const opened = await Promise.all(Array.from({ length: 8 }, () => openWithTopic()))
    for (const log of opened) await log.append('t', [record('x')])
    expect((await readAll(opened[0]!, 't')).length).toBe(8)
  })

  test('of another program is REFUSED, and stays as it is', async () => {
    const other = new DatabaseSync(path)
    other.exec('CREATE TABLE bookmarks (url TEXT)')
    other.close()
    const before = readFileSync(path)
    await refuses(open(), 'REFUSED', path, 'another program')
    expect(readFileSync(path).equals(before)).toBe(true)
    expect(existsSync(`${path}-wal`)).toBe(false)
  })

  test('that is no database is REFUSED, and stays as it is', async () => {
    writeFileSync(path, 'My diary. '.repeat(1000))
    await refuses(open(), 'REFUSED', path)
    expect(readFileSync(path, 'utf8')).toBe('My diary. '.repeat(1000))
  })

  test('of a newer layout is REFUSED, and names both versions', async () => {
    await (await open()).close()
    const db = new DatabaseSync(path)
    db.exec('PRAGMA user_version = 7')
    db.close()
    await refuses(open(), 'REFUSED', 'version 7', 'versions 1 to 3')
  })

  test('cannot be a folder, nor lie in a file: INVALID', async () => {
    mkdirSync(path)
    await refuses(open(), 'INVALID', path, 'folder')
    writeFileSync(join(folder, 'file'), '')
    path = join(folder, 'file', 'log.db')
    await refuses(open(), 'INVALID', path)
  })

  test.skipIf(process.platform === 'win32')('that this user may not write is DENIED', async () => {
    await (await openWithTopic()).close()
    chmodSync(path, 0o444)
    chmodSync(folder, 0o555)
    const root = process.geteuid?.() === 0
    if (root) process.seteuid!(65534) // Permissions mean nothing to root.
    try {
      await refuses(open(), 'DENIED', path, 'permissions')
      path = join(folder, 'new', 'log.db')
      await refuses(open(), 'DENIED', path, 'permissions')
    } finally {
      if (root) process.seteuid!(0)
      chmodSync(folder, 0o755)
    }
  })

  test('that is damaged is REFUSED where it is read', async () => {
    const log = await openWithTopic()
    for (let i = 0; i < 200; i++) await log.append('t', [record('x'.repeat(1000))])
    await log.close()
    const file = openSync(path, 'r+')
    const { size } = statSync(path)
    for (let at = 8 * 8192; at < size; at += 8192) writeSync(file, Buffer.alloc(4096, 0xa5), 0, 4096, at)
    const again = await open()
    await refuses(readAll(again, 't'), 'REFUSED', path, 'damaged')
  })

  test('that is full is UNAVAILABLE; nothing of the transaction is there, and after making room all goes on', async () => {
    const log = await openWithTopic({ maxPages: 400 }) // 3.2 MB
    const writer = await log.claim('g', 't', 0)
    const parts: number[] = []
    let inputOffset = 0
    const fill = async (): Promise<void> => {
      for (;;) parts.push(...(await writer.commit([big, { ...big, value: null }], ++inputOffset)))
    }
    await refuses(fill(), 'UNAVAILABLE', 'full', path)
    expect(parts.length).toBeGreaterThan(6)
    expect((await readAll(log, 't')).map(({ offset }) => offset)).toEqual(parts)
    expect(await log.committed('g', 't', 0)).toBe(inputOffset - 1)
    await refuses(writer.commit([], inputOffset), 'MISUSE', 'again')
    await refuses(log.append('t', [{ key: null, value: new Uint8Array(900_000) }]), 'UNAVAILABLE')
    await log.ping()
    // Trimming makes room; the same process goes on, and so does another.
    await log.trim('t', 0, parts[4]!)
    const heir = await log.claim('g', 't', 0)
    await heir.commit([big], inputOffset)
    const other = await open()
    expect((await readAll(other, 't')).length).toBe(parts.length - 4 + 1)
    expect(await other.committed('g', 't', 0)).toBe(inputOffset)
  })

  test('that stays locked is UNAVAILABLE, the event loop runs meanwhile, and afterwards all goes on', async () => {
    const log = await openWithTopic({ patience: 200 })
    const patient = await open()
    const other = new DatabaseSync(path)
    other.exec('BEGIN IMMEDIATE')
    let turns = 0
    const timer = setInterval(() => turns++, 1)
    await refuses(log.append('t', [record('x')]), 'UNAVAILABLE', 'locked')
    expect(turns).toBeGreaterThan(3)
    expect(await readAll(log, 't')).toEqual([]) // Readers need no lock.
    const appended = patient.append('t', [record('y')])
    await refuses(log.ping(), 'UNAVAILABLE')
    other.exec('COMMIT')
    other.close()
    clearInterval(timer)
    await appended
    await log.append('t', [record('z')])
    expect(valuesOf(await readAll(log, 't'))).toEqual(['y', 'z'])
  })

  test('that is closed ends what is read in bulk', async () => {
    const log = await openWithTopic()
    const reading = readAll(log, 't', 0, { bulk: true })
    await Promise.all([refuses(reading, 'UNAVAILABLE', path, 'closed'), log.close()])
  })

  test('gives trimmed space to new records', async () => {
    const log = await openWithTopic()
    const writer = await log.claim('g', 't', 0)
    const sizes: number[] = []
    for (let round = 0; round < 12; round++) {
      const offsets = await writer.append([big, big, big, big])
      await log.trim('t', 0, offsets[0]!)
      sizes.push(statSync(path).size)
    }
    await log.close()
    expect(statSync(path).size).toBeLessThan(12 * 400_000)
  })
})

/** Turns one bit of a blob of the newest record of "t" over, as a disk may; all other bytes stay. */
const flip = (column: 'key' | 'headers' | 'value' | 'timestamp', offset: number): void => {
  const db = new DatabaseSync(path)
  const row = db.prepare(`SELECT ${column} AS found FROM records WHERE "offset" = ?`).get(offset)!
  const { found } = row as { found: Uint8Array | number }
  const changed =
    typeof found === 'number' ? found ^ 1 : Uint8Array.from(found, (byte, i) => (i === 0 ? byte ^ 1 : byte))
  db.prepare(`UPDATE records SET ${column} = ? WHERE "offset" = ?`).run(changed, offset)
  db.close()
}

describe('a record that was changed in the file', () => {
  const whole = {
    key: Buffer.from('k'),
    value: Buffer.from('v'),
    headers: [['h', Buffer.from('x')]] as const,
    timestamp: 7,
  }

  test.each([
    'key',
    'headers',
    'value',
    'timestamp',
  ] as const)('in its %s is REFUSED by topic, partition and offset where it is read, after what lies before it', async (column) => {
    const log = await openWithTopic()
    await log.append(
      't',
      Array.from({ length: 5 }, () => whole),
    )
    flip(column, 3)
    for (const bulk of [false, true])
      await refuses(readAll(log, 't', 0, { bulk }), 'REFUSED', 'offset 3', 't[0]', 'checksum')
    expect((await readAll(log, 't', 0, { until: 3 })).length).toBe(3)
    expect((await readAll(log, 't', 0, { from: 4 })).length).toBe(1)
  })

  test('is noticed by the next owner of its partition, though nobody reads that topic', async () => {
    const log = await open()
    await log.createTopics(['continuo.chunks', 'continuo.tokens'].map((name) => ({ name, partitions: 2, config: {} })))
    const writer = await log.claim('g', 'continuo.chunks', 1)
    await writer.commit([{ topic: 'continuo.tokens', ...whole }], 0)
    flip('value', 0)
    await refuses(log.claim('g', 'continuo.chunks', 1), 'REFUSED', 'offset 0', 'continuo.tokens[1]', 'checksum')
    await (await log.claim('g', 'continuo.chunks', 0)).close()
  })

  test('of a version without checksums is read as it is; what is written from now on is checked', async () => {
    const log = await openWithTopic()
    await log.append('t', [whole, whole])
    await log.close()
    const old = new DatabaseSync(path)
    old.exec('ALTER TABLE records DROP COLUMN checksum; PRAGMA user_version = 1')
    old.close()
    const again = await open()
    expect((await readAll(again, 't')).length).toBe(2)
    await again.append('t', [whole])
    flip('value', 0)
    expect((await readAll(again, 't')).length).toBe(3)
    flip('value', 2)
    await refuses(readAll(again, 't'), 'REFUSED', 'offset 2')
    const checked = new DatabaseSync(path)
    expect(checked.prepare('PRAGMA user_version').get()).toEqual({ user_version: 2 })
    checked.close()
  })
})

describe('a gap in the log', () => {
  test.each([
    ['at the position', 'offset = 2', 2],
    ['after it', 'offset = 3', 2],
    ['at the end', 'offset >= 4', 2],
  ])('%s is POSITION, never skipped', async (_, where, from) => {
    const log = await openWithTopic()
    await log.append(
      't',
      Array.from({ length: 6 }, (_, i) => record(String(i))),
    )
    const db = new DatabaseSync(path)
    db.exec(`DELETE FROM records WHERE ${where}`)
    db.close()
    await refuses(readAll(log, 't', 0, { from }), 'POSITION', 't[0]')
  })
})

describe('a fault of the input', () => {
  test.each([
    ['a key that is no bytes', { key: 'text', value: null }],
    ['a value that is no bytes', { key: null, value: 7 }],
    ['a header that is no bytes', { key: null, value: null, headers: [['h', 'text']] }],
    ['a timestamp that is no date', { key: null, value: null, timestamp: 1.5 }],
  ])('such as %s is INVALID and changes nothing', async (_, bad) => {
    const log = await openWithTopic()
    await refuses(log.append('t', [record('good'), bad as never]), 'INVALID', 't')
    expect(await log.bounds('t', 0)).toEqual({ begin: 0, end: 0 })
  })
})

describe('a membership', () => {
  test('that others ended is noticed at once and taken up anew', async () => {
    const log = await openEmbeddedLog(`file:${path}`, { sessionTimeout: 3_600_000 })
    logs.push(log)
    await log.createTopics([{ name: 't', partitions: 2, config: {} }])
    const seen = watch(await log.join('g', 't'))
    const other = new DatabaseSync(path)
    other.exec('DELETE FROM members')
    other.close()
    await eventually(() => expect(seen.history.length).toBe(2))
    expect(seen.now()).toEqual([0, 1])
  })

  test('ends with an error when the log is damaged for good, and goes on when it was only locked', async () => {
    const log = await openEmbeddedLog(`file:${path}`, { sessionTimeout: 30, patience: 20 })
    logs.push(log)
    await log.createTopics([{ name: 't', partitions: 2, config: {} }])
    const membership = await log.join('g', 't')
    let ended: unknown = null
    const generations: number[] = []
    membership.assignments.subscribe({
      next: ({ generation }) => generations.push(generation),
      error: (error: unknown) => {
        ended = error
      },
    })
    const other = new DatabaseSync(path)
    other.exec('BEGIN IMMEDIATE')
    await eventually(async () => await refuses(log.ping(), 'UNAVAILABLE'))
    other.exec('DELETE FROM members; COMMIT')
    await eventually(() => expect(generations.length).toBe(2))
    expect(ended).toBeNull()
    other.exec('DROP TABLE members')
    other.close()
    await eventually(() => expect(ended).toMatchObject({ code: 'INTERNAL' }))
    await membership.leave()
  })
})
