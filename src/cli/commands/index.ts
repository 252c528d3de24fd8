/** Every command, with the module that holds it: only the one that is called is loaded. */
import type { Entry } from '../command.ts'

export const COMMANDS: readonly Entry[] = [
  {
    name: 'run',
    summary: 'read the input, write tokens and observations',
    load: async () => (await import('./run.ts')).run,
  },
  {
    name: 'serve',
    summary: "answer over HTTP: OpenAI's protocol, sessions and streams",
    load: async () => (await import('./serve.ts')).serve,
  },
  {
    name: 'keys',
    summary: 'make and remove API keys for serve',
    load: async () => (await import('./keys.ts')).keys,
  },
  {
    name: 'feed',
    summary: 'send a file to a session, and requests to generate',
    load: async () => (await import('./feed.ts')).feed,
  },
  {
    name: 'cancel',
    summary: 'end a request to generate',
    load: async () => (await import('./cancel.ts')).cancel,
  },
  {
    name: 'tail',
    summary: 'follow tokens, observations or dead letters',
    load: async () => (await import('./tail.ts')).tail,
  },
  {
    name: 'deadletters',
    summary: 'list refused events, and send them again',
    load: async () => (await import('./deadletters.ts')).deadletters,
  },
  {
    name: 'sessions',
    summary: 'where every session stands',
    load: async () => (await import('./sessions.ts')).sessions,
  },
  {
    name: 'verify',
    summary: 'recompute everything from the events and compare',
    load: async () => (await import('./verify.ts')).verify,
  },
  {
    name: 'repair',
    summary: 'compute blobs again that are missing or damaged',
    load: async () => (await import('./repair.ts')).repair,
  },
  {
    name: 'blobs',
    summary: 'remove blobs that no snapshot names',
    load: async () => (await import('./blobs.ts')).blobs,
  },
  {
    name: 'export',
    summary: 'write the state of a session to a file',
    load: async () => (await import('./export.ts')).exportSession,
  },
  {
    name: 'import',
    summary: 'begin a session with the state in a file',
    load: async () => (await import('./import.ts')).importSession,
  },
  {
    name: 'delete',
    summary: 'delete a session and what is left of it',
    load: async () => (await import('./delete.ts')).deleteSession,
  },
  {
    name: 'migrate',
    summary: 'copy a log into another, with other partitions or model',
    load: async () => (await import('./migrate.ts')).migrate,
  },
  {
    name: 'adapt',
    summary: 'have a session in a file learn what it read last',
    load: async () => (await import('./adapt.ts')).adapt,
  },
  {
    name: 'watch',
    summary: 'show the lines of a stream that stand out',
    load: async () => (await import('./watch.ts')).watch,
  },
  { name: 'eval', summary: 'how well a model predicts a text', load: async () => (await import('./eval.ts')).evaluate },
  {
    name: 'generate',
    summary: 'continue a prompt, without a log',
    load: async () => (await import('./generate.ts')).generate,
  },
  {
    name: 'pull',
    summary: 'download a model from a hub',
    load: async () => (await import('./pull.ts')).pull,
  },
  {
    name: 'chat',
    summary: 'a conversation with a model, turn by turn',
    load: async () => (await import('./chat.ts')).chat,
  },
  {
    name: 'pack',
    summary: 'write the weights of a model as the kernels read them, for quick starts',
    load: async () => (await import('./pack.ts')).pack,
  },
  {
    name: 'quantize',
    summary: 'write a smaller copy of a model',
    load: async () => (await import('./quantize.ts')).quantize,
  },
  {
    name: 'model',
    summary: 'print the graph of a model, its memory and its time',
    load: async () => (await import('./model.ts')).model,
  },
  {
    name: 'memory',
    summary: 'give a decoder a memory without end',
    load: async () => (await import('./memory.ts')).memory,
  },
  {
    name: 'experts',
    summary: 'pack the experts of a mixture for a disk',
    load: async () => (await import('./experts.ts')).experts,
  },
  {
    name: 'topics',
    summary: 'create, list and describe the topics',
    load: async () => (await import('./topics.ts')).topics,
  },
  {
    name: 'setup',
    summary: 'build the engine from its sources',
    load: async () => (await import('./setup.ts')).setup,
  },
  {
    name: 'doctor',
    summary: 'check this machine, the log and the model',
    load: async () => (await import('./doctor.ts')).doctor,
  },
  {
    name: 'bench',
    summary: 'measure this machine with a model',
    load: async () => (await import('./bench.ts')).bench,
  },
  {
    name: 'completion',
    summary: 'a script that completes this in a shell',
    load: async () => (await import('./completion.ts')).completionOf(COMMANDS),
  },
  {
    name: 'demo',
    summary: 'the shipped model reads the shipped document',
    load: async () => (await import('./demo.ts')).demo,
  },
]
