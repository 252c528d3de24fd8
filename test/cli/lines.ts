/**
 * Runs command lines one after the other in this process, which a start of its own for each would outlast many times. Standard input: a JSON array of
 * command lines; standard output: one of what each wrote and its exit code.
 */
import { text } from 'node:stream/consumers'
import { runLine } from '../../src/cli/dispatch.ts'

const writes = { out: process.stdout.write.bind(process.stdout), err: process.stderr.write.bind(process.stderr) }
const ends = []
for (const line of JSON.parse(await text(process.stdin)) as readonly (readonly string[])[]) {
  const written = { out: '', err: '' }
  process.stdout.write = (chunk: string | Uint8Array) => {
    written.out += chunk
    return true
  }
  process.stderr.write = (chunk: string | Uint8Array) => {
    written.err += chunk
    return true
  }
  ends.push({ code: await runLine(line), ...written })
}
writes.out(JSON.stringify(ends))
