/** A kind that fails in every way there is: what the runner is tested with. Its base says how. */
import { ContinuoError } from '../../src/errors.ts'
import type { OpenKind } from './kind.ts'

const ways: Readonly<Record<string, () => Promise<string> | string>> = {
  result: () => 'fine',
  'plain-error': () => JSON.parse('{'),
  killed: () => {
    process.kill(process.pid, 'SIGSEGV')
    return new Promise(() => {})
  },
  endless: () => {
    for (;;);
  },
  memory: () => {
    const all: Buffer[] = []
    for (;;) all.push(Buffer.alloc(1 << 24, 1))
  },
  internal: () => {
    throw new ContinuoError('INTERNAL', 'A sentence of four words.')
  },
  'no-sentence': () => {
    throw new ContinuoError('INVALID', 'undefined')
  },
  refusal: () => {
    throw new ContinuoError('INVALID', 'The file is damaged; take another copy.')
  },
}

export const open: OpenKind = async () => ({
  bases: Object.keys(ways),
  make: (base) => Buffer.from(base),
  run: async (base) => ways[base]!(),
  close: async () => {},
})
