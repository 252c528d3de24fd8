/**
 * What the records of a batch are compressed with: 1 gzip, 2 snappy, 3 lz4, 4 zstd.
 *
 * Any client that may write to a topic chooses these bytes, so every step has a bound: 64 MiB unpacked, or sixteen
 * times the packed size where that is more. Two libraries in Rust, whose packages hold their builds, unpack single
 * blocks of snappy and lz4; the frames around the blocks, which say how large each may become, are taken apart here.
 *
 *   snappy  raw: length varint · block. Or as Java frames it: 0x82 "SNAPPY" 0x00 · version int32 · compatible int32, then
 *           length int32 · raw snappy, again and again; the header may be repeated between two
 *   lz4     magic 0x184d2204 · FLG · BD · [content size u64] · header checksum, then length u32 · block · [checksum u32] up
 *           to the length 0 · [checksum u32], all little-endian. The top bit of a length: stored as it is. Checksums of the
 *           frame are passed over, as Kafka's own reader does: the batch has one over all of its bytes
 */
import { createRequire } from 'node:module'
import { gunzipSync, zstdDecompressSync } from 'node:zlib'
import { ContinuoError, messageOf } from '../../errors.ts'

const MAX_PLAIN = 64 * 1024 * 1024
const MAX_EXPANSION = 16

/** The bytes are those that were written, and they cannot be decoded. The message is a clause. */
export class Undecodable extends Error {}

const limitOf = (data: Buffer): number => Math.max(MAX_PLAIN, MAX_EXPANSION * data.length)

const tooLarge = (limit: number, packed: number): Undecodable =>
  new Undecodable(`its ${packed} bytes unpack to more than ${limit}`)

const require = createRequire(import.meta.url)

/** ModelPackage when first met. That a library is missing says nothing about the batch. */
const load = <T>(name: string): T => {
  try {
    return require(name) as T
  } catch (error) {
    throw new ContinuoError(
      'INVALID',
      `The package "${name}", which reads such batches, cannot be loaded on this machine (${messageOf(error)}). Install the packages anew: npm install.`,
      { cause: error },
    )
  }
}

const zlib = (unpackSync: (data: Buffer, options: { maxOutputLength: number }) => Buffer, data: Buffer): Buffer => {
  const limit = limitOf(data)
  try {
    return unpackSync(data, { maxOutputLength: limit })
  } catch (error) {
    const { code = '' } = error as { code?: string }
    if (code === 'ERR_BUFFER_TOO_LARGE') throw tooLarge(limit, data.length)
    if (/MEM/i.test(code)) throw new ContinuoError('UNAVAILABLE', `A batch cannot be unpacked: ${messageOf(error)}.`)
    throw new Undecodable(messageOf(error))
  }
}

const JAVA_HEADER = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0])
const JAVA_HEADER_SIZE = 16

const isJavaHeader = (data: Buffer, at: number): boolean =>
  data.length >= at + JAVA_HEADER_SIZE && data.subarray(at, at + JAVA_HEADER.length).equals(JAVA_HEADER)

/** The length that a raw snappy block says it has unpacked. */
const snappyLength = (block: Buffer): number => {
  let length = 0
  for (let i = 0; i < 5; i++) {
    const byte = block[i]
    if (byte === undefined) break
    length += (byte & 127) * 2 ** (7 * i)
    if (byte < 128) return length
  }
  throw new Undecodable('a snappy block has no length')
}

const snappy = (data: Buffer): Buffer => {
  const { uncompressSync } = load<typeof import('snappy')>('snappy')
  const limit = limitOf(data)
  let total = 0
  const unpack = (block: Buffer): Buffer => {
    total += snappyLength(block)
    if (total > limit) throw tooLarge(limit, data.length)
    try {
      return uncompressSync(block, { asBuffer: true }) as Buffer
    } catch (error) {
      throw new Undecodable(messageOf(error))
    }
  }
  if (!isJavaHeader(data, 0)) return unpack(data)
  const blocks: Buffer[] = []
  for (let at = JAVA_HEADER_SIZE; at < data.length; ) {
    if (isJavaHeader(data, at)) {
      at += JAVA_HEADER_SIZE
      continue
    }
    const length = at + 4 <= data.length ? data.readInt32BE(at) : -1
    at += 4
    if (length <= 0 || at + length > data.length) throw new Undecodable('a snappy block reaches beyond the batch')
    blocks.push(unpack(data.subarray(at, at + length)))
    at += length
  }
  return Buffer.concat(blocks)
}

const LZ4_MAGIC = 0x184d2204
const LZ4_STORED = 2 ** 31
/** No block of lz4 unpacks to more than so many times its size: many small ones must not each ask for the largest. */
const LZ4_EXPANSION = 256
const LZ4_INDEPENDENT = 0x20

const lz4 = (data: Buffer): Buffer => {
  const { uncompressSync } = load<typeof import('lz4-napi')>('lz4-napi')
  if (data.length < 7 || data.readUInt32LE(0) !== LZ4_MAGIC) throw new Undecodable('it is not a frame of lz4')
  const [flags, sizes] = [data[4]!, (data[5]! >> 4) & 7]
  const [summed, sized, dictionary] = [flags & 0x10, flags & 0x08, flags & 0x01]
  if (flags >> 6 !== 1 || dictionary !== 0 || sizes < 4)
    throw new Undecodable(`its frame of lz4 has the unknown flags ${data.toString('hex', 4, 6)}`)
  if (!(flags & LZ4_INDEPENDENT))
    throw new Undecodable("its blocks of lz4 depend on each other, which Kafka's own reader does not take either")
  const most = 2 ** (8 + 2 * sizes)
  const limit = limitOf(data)
  const blocks: Buffer[] = []
  let total = 0

  /** The library takes a block behind the size of the memory that it is to fill, u32 little-endian. */
  const unpack = (block: Buffer): Buffer => {
    const prefixed = Buffer.allocUnsafe(4 + block.length)
    prefixed.writeUInt32LE(Math.min(most, LZ4_EXPANSION * block.length), 0)
    prefixed.set(block, 4)
    try {
      return uncompressSync(prefixed)
    } catch (error) {
      throw new Undecodable(messageOf(error))
    }
  }

  for (let at = 7 + (sized ? 8 : 0); ; ) {
    if (at + 4 > data.length) throw new Undecodable('its frame of lz4 has no end')
    const word = data.readUInt32LE(at)
    if (word === 0) return Buffer.concat(blocks)
    const length = word % LZ4_STORED
    at += 4
    if (at + length > data.length) throw new Undecodable('a block of lz4 reaches beyond the batch')
    const packed = data.subarray(at, at + length)
    const plain = word >= LZ4_STORED ? packed : unpack(packed)
    if (plain.length > most) throw new Undecodable(`a block of lz4 is larger than ${most} bytes`)
    total += plain.length
    if (total > limit) throw tooLarge(limit, data.length)
    blocks.push(plain)
    at += length + (summed ? 4 : 0)
  }
}

/** The records of a batch as they were before they were compressed. Throws Undecodable. */
export const unpack = (codec: number, data: Buffer): Buffer => {
  switch (codec) {
    case 0:
      return data
    case 1:
      return zlib(gunzipSync, data)
    case 2:
      return snappy(data)
    case 3:
      return lz4(data)
    case 4:
      return zlib(zstdDecompressSync, data)
    default:
      throw new Undecodable(`it is compressed with codec ${codec}, which Kafka does not have`)
  }
}
