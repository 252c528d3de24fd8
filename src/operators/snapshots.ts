/** Snapshots in the log: written in parts ahead of the head that names them, read back and verified. */
import { PART_BYTES, PART_CHECK, partKey } from '../../topics/snapshots.ts'
import { ContinuoError } from '../errors.ts'
import { failpoint } from '../failpoint.ts'
import { sha256 } from '../hash.ts'
import type { Head, SnapshotRef } from '../state/head.ts'
import { joinParts, splitParts } from '../state/snapshot.ts'
import type { EventLog, OutRecord, PartitionWriter } from '../streams/log.ts'
import { textOf } from '../text.ts'

const utf8 = new TextEncoder()

/** Parts of one transaction: bulk goes in small steps, so that a commit never waits long behind it. */
export const SNAPSHOT_GROUP_PARTS = 2

export interface SnapshotWriting {
  readonly session: string
  /** Writes the next group of parts. Returns the reference when the last one is in the log. */
  step(writer: PartitionWriter): Promise<SnapshotRef | null>
}

/** `blobs`: those that the file names, where it is a manifest. */
export const writeSnapshot = (
  topic: string,
  session: string,
  pulse: number,
  file: Uint8Array,
  partBytes: number = PART_BYTES,
  blobs?: SnapshotRef['blobs'],
): SnapshotWriting => {
  const parts = splitParts(file, partBytes)
  const hash = sha256(file)
  let written = 0
  let first = -1
  return {
    session,
    async step(writer) {
      const group: OutRecord[] = parts.slice(written, written + SNAPSHOT_GROUP_PARTS).map((value, index) => ({
        topic,
        key: utf8.encode(partKey(session, written + index)),
        value,
        headers: [[PART_CHECK, utf8.encode(sha256(value))]],
      }))
      const offsets = await writer.append(group)
      if (first < 0) first = offsets[0]!
      written += group.length
      if (written < parts.length) {
        failpoint('snapshot.part')
        return null
      }
      failpoint('snapshot.written')
      const last = offsets.at(-1)!
      return { pulse, first, last, parts: parts.length, bytes: file.length, sha256: hash, ...(blobs && { blobs }) }
    },
  }
}

/** Reads the snapshot a head names. Throws REFUSED when a part is missing or fails its checksum. */
export const readSnapshot = async (
  log: EventLog,
  topic: string,
  partition: number,
  head: Head,
): Promise<Uint8Array> => {
  const { session, snapshot: ref } = head
  if (ref === null) throw new ContinuoError('INTERNAL', `Session "${session}" names no snapshot.`)
  const keys = new Map(Array.from({ length: ref.parts }, (_, part) => [partKey(session, part), part]))
  const parts: Uint8Array[] = []
  try {
    for await (const batch of log.read(topic, partition, ref.first, { until: ref.last + 1 })) {
      for (const { key, value, headers, offset } of batch.records) {
        const part = key === null ? undefined : keys.get(textOf(key))
        if (part === undefined || value === null) continue
        const check = headers.find(([name]) => name === PART_CHECK)?.[1]
        if (check === undefined || textOf(check) !== sha256(value)) {
          throw new ContinuoError(
            'REFUSED',
            `Part ${part} of the snapshot of session "${session}" at ${topic}, partition ${partition}, offset ${offset} fails its checksum. Nothing was changed; restore the log from a copy.`,
          )
        }
        parts[part] = value
      }
    }
  } catch (error) {
    if (error instanceof ContinuoError && error.code === 'POSITION') {
      throw new ContinuoError(
        'REFUSED',
        `The snapshot of session "${session}" at pulse ${ref.pulse} is gone from ${topic}: ${error.message}`,
        { cause: error },
      )
    }
    throw error
  }
  return joinParts(
    session,
    parts.filter((part) => part !== undefined),
    ref,
  )
}
