// Kills workers by the hundred and compares their outputs with an undisturbed run (test/crash/kills.ts). Plain
// JavaScript that any Node runs; it starts the test in the project's own Node.
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { fail, node, root } from './addon.mjs'

const program = join(root, 'test', 'crash', 'kills.ts')
const child = spawn(node, [program, ...process.argv.slice(2)], { cwd: root, stdio: 'inherit' })
child.once('error', ({ message }) =>
  fail(`The project's Node.js, ${node}, could not be started: ${message}. npm run setup installs it.`),
)
// A terminal's Ctrl-C reaches the child as well; the child ends the workers, so it must end first.
process.on('SIGINT', () => undefined)
process.on('SIGTERM', () => child.kill('SIGTERM'))
child.once('exit', (code) => {
  process.exitCode = code ?? 1
})
