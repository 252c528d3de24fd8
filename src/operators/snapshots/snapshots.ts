/** Snapshots in the log: written in parts ahead of the head that names them, read back and verified. */
import { PART_BYTES, PART_CHECK, partKey } from '../../../topics/snapshots.ts'
import { digest, giveBack, join } from '../../bulk.ts'
import { ContinuoError } from '../../errors.ts'
import { failpoint } from '../../failpoint.ts'
import type { Head, SnapshotRef } from '../../state/head.ts'
import { joinParts } from '../../state/snapshot.ts'
import type { EventLog, OutRecord, PartitionWriter } from '../../streams/log.ts'
import { textOf } from '../../text.ts'

const utf8 = new TextEncoder()

/** Parts of one transaction: bulk goes in small steps, so that a commit never waits long behind it. */
export const SNAPSHOT_GROUP_PARTS = 2

/** Asked for at a time, so that one part comes: the next ones wait until other work had its turn. */
const READ_BYTES = 4096

export interface SnapshotWriting {
  readonly session: string
  /** Writes the next group of parts. Returns the reference when the last one is in the log. */
  step(writer: PartitionWriter): Promise<SnapshotRef | null>
}

/**
 * `file`: its pieces, one after the other; they must not change until the last part is written. `blobs`: those that the
 * file names, where it is a manifest.
 */
export const writeSnapshot = async (
  topic: string,
  session: string,
  pulse: number,
  file: readonly Uint8Array[],
  partBytes: number = PART_BYTES,
  blobs?: SnapshotRef['blobs'],
): Promise<SnapshotWriting> => {
  const bytes = file.reduce((sum, { length }) => sum + length, 0)
  const parts = Math.ceil(bytes / partBytes)
  const hash = await digest(file)
  let written = 0
  let first = -1
  const part = async (index: number): Promise<OutRecord> => {
    const value = await join(slices(file, index * partBytes, (index + 1) * partBytes))
    const check = utf8.encode(await digest([value]))
    return { topic, key: utf8.encode(partKey(session, index)), value, headers: [[PART_CHECK, check]] }
  }
  return {
    session,
    async step(writer) {
      const count = Math.min(SNAPSHOT_GROUP_PARTS, parts - written)
      const group = await Promise.all(Array.from({ length: count }, (_, at) => part(written + at)))
      const offsets = await writer.append(group)
      giveBack(...group.flatMap(({ value }) => value ?? []))
      if (first < 0) first = offsets[0]!
      written += group.length
      if (written < parts) {
        failpoint('snapshot.part')
        return null
      }
      failpoint('snapshot.written')
      const last = offsets.at(-1)!
      return { pulse, first, last, parts, bytes, sha256: hash, ...(blobs && { blobs }) }
    },
  }
}

/** Bytes from … to − 1 of the pieces one after the other. */
const slices = (pieces: readonly Uint8Array[], from: number, to: number): readonly Uint8Array[] => {
  let begin = 0
  return pieces.flatMap((piece) => {
    const [first, last] = [from - begin, to - begin]
    begin += piece.length
    return last <= 0 || first >= piece.length ? [] : [piece.subarray(Math.max(0, first), last)]
  })
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
    for await (const batch of log.read(topic, partition, ref.first, { until: ref.last + 1, maxBytes: READ_BYTES })) {
      for (const { key, value, headers, offset } of batch.records) {
        const part = key === null ? undefined : keys.get(textOf(key))
        if (part === undefined || value === null) continue
        const check = headers.find(([name]) => name === PART_CHECK)?.[1]
        if (check === undefined || textOf(check) !== (await digest([value]))) {
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
