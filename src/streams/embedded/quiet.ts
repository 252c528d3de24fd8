/**
 * Node 22 calls SQLite experimental when a process, and each thread, first loads it. The tests of the log run on it,
 * and the sentence helps nobody who runs a command. To be called before anything imports node:sqlite. A program that
 * uses the library hears it once, from its own thread.
 */
export const hideSqliteWarning = (): void => {
  const { emitWarning } = process
  process.emitWarning = (...args: unknown[]): void => {
    if (args[1] === 'ExperimentalWarning' && String(args[0]).startsWith('SQLite')) return
    Reflect.apply(emitWarning, process, args)
  }
}
