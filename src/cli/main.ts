#!/usr/bin/env node
/** continuo <command>: the process around a command line (dispatch.ts). */
import nodeModule from 'node:module'
import { compiledFolder } from '../hub/cache.ts'
import { hideSqliteWarning } from '../streams/embedded/quiet.ts'
import { runLine } from './dispatch.ts'
import { say } from './output.ts'
import { neededNode, nodeIsOld } from './version.ts'

/**
 * A reader that went away (`| head`) ends the command without a word. A terminal that went away does not: SIGHUP says
 * what to do.
 */
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EIO') process.exit(error.code === 'EPIPE' ? 0 : 1)
})
process.stderr.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EIO') throw error
})

hideSqliteWarning()

if (nodeIsOld) {
  // An older Node lacks modules that commands load, and would name these instead of itself.
  say(`Continuo runs on Node.js ${neededNode} or newer; this is ${process.versions.node}.`)
  process.exit(1)
}
// A third of a short command is compilation. Where the folder cannot be written, modules are compiled each time.
nodeModule.enableCompileCache(compiledFolder())

const code = await runLine(process.argv.slice(2))
// What a slow reader of a pipe has not taken yet would be lost, and on stderr with it the sentence that says what went
// wrong.
process.stdout.write('', () => process.stderr.write('', () => process.exit(code)))
