/** Each test file has a folder of its own for what it writes, which goes away with its last test. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'

const before = process.env.TMPDIR
const folder = mkdtempSync(join(tmpdir(), 'continuo-test-'))
// As the system's is: some tests go on as another user.
chmodSync(folder, 0o755)
process.env.TMPDIR = folder

// The first hook, so the last to run.
afterAll(() => {
  if (before === undefined) delete process.env.TMPDIR
  else process.env.TMPDIR = before
  rmSync(folder, { recursive: true, force: true })
})
