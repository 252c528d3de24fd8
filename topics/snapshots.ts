import { KEPT, type TopicContract } from './common.ts'

/** Bytes of a snapshot in one record; leaves room for key, headers and batch overhead below Kafka's 1 MiB. */
export const PART_BYTES = 900_000

/** Header of a part: sha256 of the part's bytes, hex. */
export const PART_CHECK = 'sha256'

export const snapshots: TopicContract = {
  name: 'snapshots',
  purpose:
    'ContextStates as safetensors, in parts; a head names the offsets, the size and the sha256. A part nobody names is garbage.',
  key: 'session#part, UTF-8',
  value: null,
  settings: KEPT,
  examples: [],
}

export const partKey = (session: string, part: number): string => `${session}#${part}`
