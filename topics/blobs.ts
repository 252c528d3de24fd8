import { KEPT, type TopicContract } from './common.ts'

export const blobs: TopicContract = {
  name: 'blobs',
  purpose:
    'Blocks of large states, each written once, in parts of at most 900 kB; a snapshot names the offset of the first part and the sha256 of the whole. What no snapshot names is garbage. A blob store (--blob-store) takes its place.',
  key: 'sha256#part, UTF-8',
  value: null,
  settings: KEPT,
  examples: [],
}

export const blobKey = (hash: string, part: number): string => `${hash}#${part}`
