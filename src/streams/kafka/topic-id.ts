/**
 * Metadata, version 10 (Kafka ≥ 2.8), for the id of one topic: a topic that was deleted and made anew has another one,
 * though its name is the same. kafkajs ends at version 6, which has none. A "flexible" version, written as in
 * committed.ts.
 */
import { compact } from './committed.ts'
import { openCursor } from './cursor.ts'
import { answeredWith, Encoder, type Protocol } from './kafkajs.ts'

export const METADATA = 3
export const METADATA_WITH_IDS = 10
const ID_BYTES = 16

const decode = (raw: Buffer): { errorCode: number; id: string } => {
  const from = openCursor(raw)
  const text = (): Buffer => from.bytes(from.unsigned() - 1)
  from.tags() // of the header
  from.int32() // throttle time
  for (let brokers = from.unsigned() - 1; brokers > 0; brokers--) {
    from.int32() // number
    text() // host
    from.int32() // port
    text() // rack
    from.tags()
  }
  text() // cluster
  from.int32() // controller
  from.unsigned() // one topic
  const errorCode = from.int16()
  text() // its name
  return { errorCode, id: from.bytes(ID_BYTES).toString('hex') }
}

export const topicIdProtocol = (topic: string): Protocol<ReturnType<typeof decode>> => ({
  request: {
    apiKey: METADATA,
    apiVersion: METADATA_WITH_IDS,
    apiName: 'Metadata',
    encode: async () =>
      new Encoder()
        .writeInt8(0) // tags of the header
        .writeInt8(2) // one topic
        .writeBuffer(Buffer.alloc(ID_BYTES)) // by its name
        .writeBuffer(compact(topic))
        .writeInt8(0)
        .writeBoolean(false) // not to be created
        .writeBoolean(false) // no rights on the cluster
        .writeBoolean(false) // nor on the topic
        .writeInt8(0),
  },
  ...answeredWith(decode),
})
