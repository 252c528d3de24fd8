import { openBlobStore } from '../blobs/open.ts'
import type { SharedStore } from '../blobs/store.ts'
import { ContinuoError } from '../errors.ts'
import type { EventLog, OpenLogOptions } from './log.ts'

/**
 * Opens a log by its URL.
 *
 * - `file:PATH[?prefix=continuo]`: the embedded log, one SQLite database, created when missing;
 * - `kafka://host:9092[,host:9092…][/prefix][?ssl=true&sasl=plain|scram-sha-256|scram-sha-512&username=…&password=…&clientId=…]`;
 *   `KAFKA_USERNAME` and `KAFKA_PASSWORD` stand in for the credentials.
 *
 * Throws INVALID for a URL of another form, UNAVAILABLE or DENIED when the log does not answer.
 */
export const openLog = async (url: string, options: OpenLogOptions = {}): Promise<EventLog> => {
  const { sealKeys, blobStore } = options
  const blobs = blobStore === undefined ? undefined : await openBlobStore(blobStore)
  const log = await openPlain(url, options)
  if (sealKeys !== undefined) Object.assign(log, { sealKeys })
  return blobs === undefined ? log : withBlobs(log, blobs)
}

const withBlobs = (log: EventLog, blobs: SharedStore): EventLog => {
  const { close } = log
  return Object.assign(log, {
    blobs,
    async close() {
      blobs.close()
      await close.call(log)
    },
  })
}

const openPlain = async (url: string, options: OpenLogOptions): Promise<EventLog> => {
  if (url.startsWith('file:')) {
    if (options.tls !== undefined && Object.keys(options.tls).length > 0)
      throw new ContinuoError(
        'INVALID',
        '--tls-ca, --tls-cert and --tls-key are for Kafka logs, and this log is a file: leave them out.',
      )
    const { openEmbeddedLog } = await import('./embedded/log.ts')
    return openEmbeddedLog(url, options)
  }
  if (url.startsWith('kafka:')) {
    const { openKafkaLog } = await import('./kafka/log.ts')
    return openKafkaLog(url, options)
  }
  throw new ContinuoError(
    'INVALID',
    `A log URL begins with file: or kafka://, and this one does not. Try --log file:continuo.db or --log kafka://127.0.0.1:9092/continuo.`,
  )
}
