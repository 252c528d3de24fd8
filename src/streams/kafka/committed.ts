/**
 * OffsetFetch, version 7, with `require_stable`: it waits out a commit whose marker is not yet written, where kafkajs's
 * version 4 answers with the offset before. Versions from 6 on are "flexible": lengths are unsigned varints plus one,
 * and structures end with tagged fields. kafkajs writes the older request header, which only lacks its own (empty)
 * tags; so the body begins with them, and the answer, too.
 */
import { openCursor } from './cursor.ts'
import { answeredWith, Encoder, type Protocol } from './kafkajs.ts'

const OFFSET_FETCH = 9

/** A string of the flexible versions. */
export const compact = (text: string): Buffer => {
  const bytes = Buffer.from(text)
  const length: number[] = []
  let rest = bytes.length + 1
  for (; rest >= 128; rest >>>= 7) length.push((rest & 127) | 128)
  return Buffer.concat([Buffer.from([...length, rest]), bytes])
}

const decode = (raw: Buffer): { offset: number; errorCode: number } => {
  const from = openCursor(raw)
  from.tags() // of the header
  from.int32() // throttle time
  let offset = -1
  let errorCode = 0
  for (let topics = from.unsigned() - 1; topics > 0; topics--) {
    from.bytes(from.unsigned() - 1) // name
    for (let partitions = from.unsigned() - 1; partitions > 0; partitions--) {
      from.int32() // number
      offset = Number(from.int64())
      from.int32() // leader epoch
      from.bytes(from.unsigned() - 1) // metadata
      errorCode = from.int16()
      from.tags()
    }
    from.tags()
  }
  return { offset, errorCode: from.int16() || errorCode }
}

export const committedProtocol = (
  group: string,
  topic: string,
  partition: number,
): Protocol<ReturnType<typeof decode>> => ({
  request: {
    apiKey: OFFSET_FETCH,
    apiVersion: 7,
    apiName: 'OffsetFetch',
    encode: async () =>
      new Encoder()
        .writeInt8(0) // tags of the header
        .writeBuffer(compact(group))
        .writeInt8(2) // one topic
        .writeBuffer(compact(topic))
        .writeInt8(2) // one partition
        .writeInt32(partition)
        .writeInt8(0)
        .writeBoolean(true) // require stable
        .writeInt8(0),
  },
  ...answeredWith(decode),
})
