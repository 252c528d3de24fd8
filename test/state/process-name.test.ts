/** Names of processes: whether one has ended is said only where it is certain. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { describe, expect, onTestFinished, test } from 'vitest'
import { hasEnded, processName } from '../../src/process-name.ts'
import { eventually } from '../streams/helpers.ts'

describe.skipIf(!existsSync('/proc/self/stat'))('the name of a process', () => {
  test('is that of this process as long as it runs', () => {
    const name = processName()!
    expect(name).toMatch(/^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}-\d+-\d+-\d+$/)
    expect(name.split('-').at(-2)).toBe(String(process.pid))
    expect(processName()).toBe(name)
    expect(hasEnded(name)).toBe(false)
  })

  test('has ended when the process has, whatever its program is called', async () => {
    const script = 'process.title = "a) R 1 (b"; console.log("on"); setInterval(() => undefined, 1000)'
    const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] })
    onTestFinished(() => void child.kill('SIGKILL'))
    await once(child.stdout, 'data')
    expect(readFileSync(`/proc/${child.pid}/stat`, 'latin1')).toContain('(a) R 1 (b)')
    const name = processName(child.pid)!
    expect(hasEnded(name)).toBe(false)
    child.kill('SIGKILL')
    await once(child, 'exit')
    expect(hasEnded(name)).toBe(true)
    expect(processName(child.pid)).toBeNull()
  })

  test('has ended when nobody has waited for the process yet', async () => {
    // The shell becomes a program that waits for no child.
    const child = spawn('sh', ['-c', 'sleep 0.2 & echo $!; exec sleep 60'], { stdio: ['ignore', 'pipe', 'ignore'] })
    onTestFinished(() => void child.kill('SIGKILL'))
    const [line] = (await once(child.stdout!, 'data')) as [Buffer]
    const pid = Number(line.toString())
    const name = processName(pid)!
    expect(hasEnded(name)).toBe(false)
    await eventually(async () => expect(readFileSync(`/proc/${pid}/stat`, 'latin1')).toContain(') Z '))
    expect(hasEnded(name)).toBe(true)
  })

  test('has ended when another process has its number, and not for certain in another namespace or before another boot', () => {
    const name = processName()!
    expect(hasEnded(name.replace(/\d+$/, '1'))).toBe(true)
    expect(hasEnded(name.replace(/-\d+-(\d+)-\d+$/, '-1-$1-1'))).toBe(false)
    expect(hasEnded(`${'0'.repeat(8)}${name.slice(8)}`)).toBe(false)
    for (const none of ['', 'x', '4194305', `${name}-`]) expect(hasEnded(none)).toBe(false)
  })
})
