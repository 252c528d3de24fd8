/**
 * The formulas of docs/scale.md, in code: what a load costs, from constants that bench/scale.ts measures. Bytes,
 * seconds, and events or requests per second throughout. test/bench/scale.test.ts holds the page, these formulas and a
 * small measured run together.
 */

/** What one thing costs. docs/scale.md has the measured values under the same names. */
export interface Constants {
  /** Bytes on the broker's disk of an event's record with a short text. */
  readonly inputBytes: number
  /**
   * The same of a head, of a partition's cursor, and of the outputs of an event that reads and of one that generates 4
   * tokens.
   */
  readonly headBytes: number
  readonly cursorBytes: number
  readonly observationBytes: number
  /** The same of the observation that a session has begun. */
  readonly openedBytes: number
  readonly generatedBytes: number
  /** Bytes that a transaction adds to each topic that it writes to: the header of a batch, and the marker. */
  readonly batchBytes: number
  /** Bytes of a commit in Kafka's own topics: __transaction_state and __consumer_offsets. */
  readonly ownBytes: number
  /** Requests of a commit to brokers. */
  readonly commitRequests: number
  /** Requests per second of a worker, and of a worker for each of its partitions, without any events. */
  readonly workerRequests: number
  readonly partitionRequests: number
  /** CPU seconds of a worker for an event, a commit, a start, a partition claimed, and a head read at a start. */
  readonly eventCpu: number
  readonly commitCpu: number
  readonly startCpu: number
  readonly claimCpu: number
  readonly headCpu: number
  /** CPU seconds and requests to rebuild the context of a session that read little. */
  readonly restoreCpu: number
  readonly restoreRequests: number
  /** CPU seconds of the broker for an event and a commit. */
  readonly brokerEventCpu: number
  readonly brokerCommitCpu: number
  /** Time a commit takes. */
  readonly commitSeconds: number
  /** Memory of a worker without partitions, of a partition, of a session that is idle, and of a session's context. */
  readonly workerMemory: number
  readonly partitionMemory: number
  readonly idleMemory: number
  readonly contextMemory: number
  /** Bytes of a snapshot of a state that does not grow. */
  readonly snapshotBytes: number
}

/** Their names. */
export const NAMES = [
  'inputBytes',
  'headBytes',
  'cursorBytes',
  'observationBytes',
  'openedBytes',
  'generatedBytes',
  'batchBytes',
  'ownBytes',
  'commitRequests',
  'workerRequests',
  'partitionRequests',
  'eventCpu',
  'commitCpu',
  'startCpu',
  'claimCpu',
  'headCpu',
  'restoreCpu',
  'restoreRequests',
  'brokerEventCpu',
  'brokerCommitCpu',
  'commitSeconds',
  'workerMemory',
  'partitionMemory',
  'idleMemory',
  'contextMemory',
  'snapshotBytes',
] as const satisfies readonly (keyof Constants)[]

/** Facts of the code and of Kafka, not measured. */
export const FIXED = {
  /** Seconds that a fetch waits for a record: `FOLLOW_WAIT` of the Kafka adapter. */
  followWait: 0.5,
  /** Seconds between two heartbeats; a third of the session time-out where that is less. */
  heartbeat: 3,
  /** Positions of a block, and bytes of a manifest for each. */
  blockPositions: 256,
  manifestBytes: 53,
} as const

/**
 * Transactions of a partition per second, for events that come at random at `rate`; `cycle` is the least time between
 * two commits.
 */
export const commitRate = (rate: number, cycle: number): number =>
  rate <= 0 ? 0 : 1 / (cycle + Math.exp(-rate * cycle) / rate)

/** Fetches of a partition per second: each ends with the next event, or after `followWait`. */
export const fetchRate = (rate: number): number => {
  const wait = FIXED.followWait
  return rate <= 0 ? 1 / wait : rate / (1 - Math.exp(-rate * wait))
}

/**
 * Different sessions among the events of one commit, where session i has `rates[i]` events per second and `commits` are
 * made in one.
 */
export const headRate = (rates: Iterable<number>, commits: number): number => {
  if (commits <= 0) return 0
  let heads = 0
  for (const rate of rates) heads += commits * (1 - Math.exp(-rate / commits))
  return heads
}

/** Different sessions that have an event within `seconds`. */
export const touched = (rates: Iterable<number>, seconds: number): number => {
  let sessions = 0
  for (const rate of rates) sessions += 1 - Math.exp(-rate * seconds)
  return sessions
}

/**
 * What compaction writes again for each byte of heads that has died, `live` being the bytes of a partition's newest
 * heads.
 */
export const amplification = (live: number, floor: number): number => live / Math.max(live, floor)

/** Session i of `count` has the share (i + 1)^−s / Σ of all events. */
export const zipf = (count: number, s: number): Float64Array => {
  const shares = Float64Array.from({ length: count }, (_, i) => (i + 1) ** -s)
  const sum = shares.reduce((all, share) => all + share, 0)
  return shares.map((share) => share / sum)
}

export interface Load {
  /** Events per second of each session, by partition. */
  readonly partitions: readonly Iterable<number>[]
  /** Part of the events that generate. */
  readonly generating: number
  readonly workers: number
  /** Seconds between two commits of a partition (`--commit-interval`). */
  readonly interval: number
  /** Events per second whose session has no context in memory. */
  readonly restores: number
}

/** Per second, over all partitions. */
export interface Rates {
  readonly events: number
  readonly commits: number
  readonly heads: number
  /** Records in the topics of heads, observations and tokens. */
  readonly records: number
  readonly requests: number
  readonly stateBytes: number
  readonly observationBytes: number
  readonly tokenBytes: number
  readonly ownBytes: number
  readonly workerCpu: number
  readonly brokerCpu: number
}

/** What a load of events asks of workers and brokers, before replication, and before compaction writes heads again. */
export const rates = (c: Constants, { partitions, generating, workers, interval, restores }: Load): Rates => {
  const cycle = Math.max(interval, c.commitSeconds)
  let events = 0
  let commits = 0
  let heads = 0
  let fetches = 0
  let reading = 0
  let generatingCommits = 0
  for (const sessions of partitions) {
    const each = [...sessions]
    const rate = each.reduce((sum, one) => sum + one, 0)
    const own = commitRate(rate, cycle)
    events += rate
    commits += own
    heads += headRate(each, own)
    fetches += fetchRate(rate) - fetchRate(0)
    if (own === 0) continue
    // A commit writes to a topic only where one of its events has something for it.
    reading += own * (1 - Math.exp((-rate * (1 - generating)) / own))
    generatingCommits += own * (1 - Math.exp((-rate * generating) / own))
  }
  return {
    events,
    commits,
    heads,
    records: heads + commits + events,
    requests:
      workers * c.workerRequests +
      partitions.length * c.partitionRequests +
      fetches +
      commits * c.commitRequests +
      restores * c.restoreRequests,
    stateBytes: heads * c.headBytes + commits * (c.cursorBytes + c.batchBytes),
    observationBytes: events * (1 - generating) * c.observationBytes + reading * c.batchBytes,
    tokenBytes: events * generating * c.generatedBytes + generatingCommits * c.batchBytes,
    ownBytes: commits * c.ownBytes,
    workerCpu: events * c.eventCpu + commits * c.commitCpu + restores * c.restoreCpu,
    brokerCpu: events * c.brokerEventCpu + commits * c.brokerCommitCpu,
  }
}

export interface Fleet {
  readonly sessions: number
  readonly partitions: number
  readonly workers: number
  /** Contexts in memory, over all workers. */
  readonly contexts: number
  /** Workers that start at once on one machine, and its cores. */
  readonly together: number
  readonly cores: number
  /** Of group membership (`--session-timeout`), seconds. */
  readonly timeout: number
}

/** Resident memory of one worker. */
export const workerMemory = (c: Constants, { sessions, partitions, workers, contexts }: Fleet): number =>
  c.workerMemory + (partitions * c.partitionMemory + sessions * c.idleMemory + contexts * c.contextMemory) / workers

/** CPU seconds until a worker that starts has read the heads of its partitions. */
const claimed = (c: Constants, partitions: number, sessions: number): number =>
  partitions * c.claimCpu + sessions * c.headCpu

const shared = (cpu: number, { together, cores }: Fleet): number => cpu * Math.max(1, together / cores)

const heartbeat = ({ timeout }: Fleet): number => Math.min(FIXED.heartbeat, timeout / 3)

/** From the start of workers that stopped cleanly to the first token. */
export const restartSeconds = (c: Constants, fleet: Fleet): number =>
  shared(c.startCpu + claimed(c, fleet.partitions / fleet.workers, fleet.sessions / fleet.workers), fleet)

/**
 * The same after all were killed: the group waits until the dead are silent for the session time-out, then hands out
 * partitions.
 */
export const coldSeconds = (c: Constants, fleet: Fleet): number => {
  const claims = shared(claimed(c, fleet.partitions / fleet.workers, fleet.sessions / fleet.workers), fleet)
  return Math.max(fleet.timeout - heartbeat(fleet) / 2, shared(c.startCpu, fleet)) + claims
}

/**
 * From the death of `lost` workers until the others have all their partitions: time-out, a heartbeat to learn of it,
 * claims and heads.
 */
export const takeoverSeconds = (c: Constants, fleet: Fleet, lost = 1): number => {
  const { workers, partitions, sessions, timeout } = fleet
  const part = lost / workers / (workers - lost)
  return timeout + heartbeat(fleet) / 2 + shared(claimed(c, partitions * part, sessions * part), fleet)
}

export interface States {
  /** Tokens read or generated per second over all sessions, and pulses between two snapshots of a session. */
  readonly tokens: number
  readonly snapshotEvery: number
  /** Sessions per second that leave memory and are saved for it, and that come back. */
  readonly leaving: number
  readonly returning: number
  /** Bytes of a position in tables that grow (0: none), and positions of a session. */
  readonly positionBytes: number
  readonly positions: number
}

/** Bytes and requests per second to the topic of snapshots and to the blob store. */
export const stateRates = (c: Constants, load: States) => {
  const { tokens, snapshotEvery, leaving, returning, positionBytes, positions } = load
  const snapshots = tokens / snapshotEvery + leaving
  const blocks = positionBytes === 0 ? 0 : positions / FIXED.blockPositions
  // Behind the last full block lies half a block on average.
  const rest = (positionBytes * FIXED.blockPositions) / 2
  const file = positionBytes === 0 ? c.snapshotBytes : rest + blocks * FIXED.manifestBytes
  return {
    snapshotBytes: snapshots * file,
    snapshotRequests: snapshots * 3,
    puts: positionBytes === 0 ? 0 : tokens / FIXED.blockPositions,
    putBytes: tokens * positionBytes,
    gets: returning * blocks,
    getBytes: returning * (file + positions * positionBytes),
  }
}

/**
 * Workers for so many CPU seconds a second. The events of a worker share one thread, of which the part `busy` may be in
 * use. One more may die.
 */
export const workersFor = (cpu: number, busy: number): number => Math.ceil(cpu / busy) + 1

/**
 * Brokers of `cores` cores, likewise: each byte is written `replicas` times, and a copy costs what the first writing
 * costs at most.
 */
export const brokersFor = (cpu: number, replicas: number, cores: number, busy: number): number =>
  Math.max(replicas, Math.ceil((cpu * replicas) / (cores * busy)) + 1)
