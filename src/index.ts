/** The public face of Continuo as a library; docs/architecture.md says how the parts fit. */

export { asyncApi } from '../topics/asyncapi.ts'
export { type Chunk, type ChunkInput, chunk } from '../topics/chunks.ts'
export type { TopicContract } from '../topics/common.ts'
export { DEAD_LETTER_HEADERS } from '../topics/deadletters.ts'
export { jsonSchema, TOPICS, type TopicNames, topicNames } from '../topics/index.ts'
export { type InputRules, inputRules, type Partitioner } from '../topics/input.ts'
export type { LineNovelty } from '../topics/novelty.ts'
export { type Observation, type Observed, observation } from '../topics/observations.ts'
export {
  type Cancelled,
  type Head,
  head,
  type PartitionCursor,
  type SnapshotRef,
  type StreamCursor,
} from '../topics/state.ts'
export { type Generated, generated } from '../topics/tokens.ts'
export { toFeed } from './client/declared.ts'
export { type Fed, type FeedOptions, feed } from './client/feed.ts'
export { type FollowOptions, follow } from './client/follow.ts'
export type { DeadLetter, Place } from './client/letters.ts'
export {
  type LetterFilter,
  REPLAY_HEADER,
  type ReplayCounts,
  type Replayed,
  type ReplayOptions,
  replayDeadLetters,
} from './client/replay.ts'
export { ensureTopics } from './client/topics.ts'
export { buildGraph, type GraphBuilder } from './engine/builder.ts'
export {
  type Axis,
  autoDim,
  type Counter,
  type Index,
  type Lookup,
  type Matrix,
  pattern,
  plus,
  ref,
  ring,
  type State,
  type Table,
  type Value,
  type Vector,
} from './engine/builder-types.ts'
export { type Context, ContextBroken, type ContextHead } from './engine/context.ts'
export { openGraph } from './engine/engine.ts'
export type { BlockPlan, Executor, ExecutorOptions, Fetched, Numbers, TraceEntry } from './engine/executor-types.ts'
export type { Graph } from './engine/graph.ts'
export { cudaStatus, type Inspected, inspectFiles, inspectTensors } from './engine/inspect.ts'
export type { CudaStatus, FileFormat, GgufMetadata, TensorEntry } from './engine/native.ts'
export type { DeviceKind, OpenModelOptions, Overflow } from './engine/options.ts'
export { checkGraph, planGraph } from './engine/plan.ts'
export type { DecoderShape, Model, ModelInfo } from './engine/types.ts'
export type { Penalties, Sampling, WorkItem, WorkResult } from './engine/work.ts'
export { ContinuoError, codeOf, type ErrorCode, messageOf } from './errors.ts'
export type { LayoutEntry, StateLayout } from './memory.ts'
export { type Asked, type Chat, type ChatOptions, openChat } from './models/chat/index.ts'
export { type ModelPackage, openModel, openPackage } from './models/open.ts'
export { type Quantized, quantizePackage } from './models/quantize/quantize.ts'
export { type CacheTensor, type DecoderState, type StatefulDecoder, statefulDecoder } from './models/stateful.ts'
export { byteTokenizer, type Tokenizer } from './models/tokenizer/index.ts'
export type { Commit } from './operators/pipeline/commit.ts'
export type { InputFormat } from './operators/pipeline/validate.ts'
export type { ContextStoreStats } from './operators/sessions/context-store.ts'
export { type Finding, type Verification, type VerifyOptions, verifyLog } from './operators/verify/verify.ts'
export { type PartitionState, readPartitionState } from './operators/worker/partition-state.ts'
export { type WorkerSettings, workerDefaults } from './operators/worker/settings.ts'
export type { Task, TaskOptions } from './operators/worker/task.ts'
export { startWorker, type Worker, type WorkerOptions } from './operators/worker/worker.ts'
export { demoModel } from './places.ts'
export { chatTurn, type Turn } from './sessions/chat.ts'
export { SessionManager } from './sessions/manager.ts'
export type { OnProbe, Probe, StateReading } from './sessions/probe.ts'
export type {
  Adaptation,
  AdaptOptions,
  Assessment,
  GenerateOptions,
  Generation,
  Processed,
  Remembered,
  SessionHandle,
  SessionManagerOptions,
  SessionOptions,
} from './sessions/types.ts'
export { activeLevels, type ConductorState, type Phase } from './state/conductor.ts'
export { health, type TensorHealth } from './state/health.ts'
export type { OuterMemoryView } from './state/outer-memory.ts'
export { decodeSnapshot, encodeSnapshot, type Snapshot } from './state/snapshot.ts'
export { SpillLost } from './state/spill.ts'
export type { TaskState } from './streams/lifecycle.ts'
export type {
  Assignment,
  Batch,
  Bounds,
  EventLog,
  Headers,
  Membership,
  OpenLogOptions,
  OutRecord,
  PartitionWriter,
  ReadOptions,
  RecordIn,
  StoredRecord,
  TopicInfo,
  TopicSpec,
} from './streams/log.ts'
export { openLog } from './streams/open.ts'
