/** Every command, with the module that holds it: only the one that is called is loaded. */
import type { Entry, Group } from '../command.ts'

const group = (name: Group, entries: readonly Omit<Entry, 'group'>[]): readonly Entry[] =>
  entries.map((entry) => ({ ...entry, group: name }))

export const COMMANDS: readonly Entry[] = [
  ...group('run', [
    { name: 'run', summary: 'read input, write tokens', load: async () => (await import('./run.ts')).run },
    { name: 'serve', summary: 'answer over HTTP', load: async () => (await import('./serve.ts')).serve },
    { name: 'mcp', summary: 'tools for agents (MCP)', load: async () => (await import('./mcp.ts')).mcp },
    { name: 'feed', summary: 'send a file to a session', load: async () => (await import('./feed.ts')).feed },
    { name: 'cancel', summary: 'end a request', load: async () => (await import('./cancel.ts')).cancel },
    { name: 'demo', summary: 'read the shipped texts', load: async () => (await import('./demo.ts')).demo },
    { name: 'setup', summary: 'build the engine', load: async () => (await import('./setup.ts')).setup },
  ]),
  ...group('ask', [
    { name: 'generate', summary: 'continue a prompt', load: async () => (await import('./generate.ts')).generate },
    { name: 'chat', summary: 'talk with a model', load: async () => (await import('./chat.ts')).chat },
    { name: 'watch', summary: 'lines that stand out', load: async () => (await import('./watch.ts')).watch },
    { name: 'eval', summary: 'bits that a text costs', load: async () => (await import('./eval.ts')).evaluate },
  ]),
  ...group('look', [
    { name: 'tail', summary: 'follow what is written', load: async () => (await import('./tail.ts')).tail },
    { name: 'sessions', summary: 'where sessions stand', load: async () => (await import('./sessions.ts')).sessions },
    { name: 'verify', summary: 'recompute and compare', load: async () => (await import('./verify.ts')).verify },
    {
      name: 'deadletters',
      summary: 'refused events',
      load: async () => (await import('./deadletters.ts')).deadletters,
    },
    { name: 'doctor', summary: 'check machine and log', load: async () => (await import('./doctor.ts')).doctor },
    { name: 'bench', summary: 'measure this machine', load: async () => (await import('./bench.ts')).bench },
  ]),
  ...group('models', [
    { name: 'pull', summary: 'download a model', load: async () => (await import('./pull.ts')).pull },
    { name: 'model', summary: 'graph, memory and time', load: async () => (await import('./model.ts')).model },
    { name: 'quantize', summary: 'write a smaller copy', load: async () => (await import('./quantize.ts')).quantize },
    { name: 'pack', summary: 'weights for quick starts', load: async () => (await import('./pack.ts')).pack },
    { name: 'memory', summary: 'give a model a memory', load: async () => (await import('./memory.ts')).memory },
    { name: 'experts', summary: 'pack experts for a disk', load: async () => (await import('./experts.ts')).experts },
  ]),
  ...group('manage', [
    { name: 'topics', summary: 'create and list topics', load: async () => (await import('./topics.ts')).topics },
    { name: 'keys', summary: 'API keys for serve', load: async () => (await import('./keys.ts')).keys },
    { name: 'export', summary: 'session to a file', load: async () => (await import('./export.ts')).exportSession },
    { name: 'import', summary: 'session from a file', load: async () => (await import('./import.ts')).importSession },
    { name: 'delete', summary: 'delete a session', load: async () => (await import('./delete.ts')).deleteSession },
    { name: 'migrate', summary: 'copy a log into another', load: async () => (await import('./migrate.ts')).migrate },
    { name: 'repair', summary: 'mend missing blobs', load: async () => (await import('./repair.ts')).repair },
    { name: 'blobs', summary: 'remove unused blobs', load: async () => (await import('./blobs.ts')).blobs },
    { name: 'adapt', summary: 'teach a session file', load: async () => (await import('./adapt.ts')).adapt },
    {
      name: 'completion',
      summary: 'commands in a shell',
      load: async () => (await import('./completion.ts')).completionOf(COMMANDS),
    },
  ]),
]
