import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { COMMANDS } from '../../src/cli/commands/index.ts'
import { continuo, temporary } from './helpers.ts'

const has = (program: string): boolean => spawnSync(program, ['--version']).status === 0
const folder = temporary()
const scriptOf = async (shell: string): Promise<string> => {
  const { code, out, err } = await continuo(['completion', shell])
  expect({ code, err }).toEqual({ code: 0, err: '' })
  const path = join(folder, `_continuo.${shell}`)
  writeFileSync(path, out)
  return path
}

describe('continuo completion', () => {
  it.skipIf(!has('bash'))('completes commands, flags and choices in bash', async () => {
    const path = await scriptOf('bash')
    const complete = (...words: string[]): readonly string[] => {
      const list = words.map((word) => `'${word}'`).join(' ')
      const script = `source ${path}; COMP_WORDS=(${list}); COMP_CWORD=${words.length - 1}; _continuo; printf '%s\\n' "\${COMPREPLY[@]}"`
      const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', script], { encoding: 'utf8' })
      expect(stderr).toBe('')
      return stdout.split('\n').filter((word) => word !== '')
    }
    expect(complete('continuo', '')).toEqual([...COMMANDS.map(({ name }) => name), '--help', '--version'])
    expect(complete('continuo', 'se')).toEqual(['serve', 'setup', 'sessions'])
    expect(complete('continuo', 'run', '--metrics-')).toEqual(['--metrics-port', '--metrics-host'])
    expect(complete('continuo', 'run', '--device', 'c')).toEqual(['cpu', 'cuda'])
    expect(complete('continuo', 'eval', 'book')).toEqual([])
  })

  it.each(['zsh', 'fish'])('names every command and flag for %s, in a script that the shell can read', {
    tags: 'slow',
  }, async (shell) => {
    const path = await scriptOf(shell)
    const { out } = await continuo(['completion', shell])
    for (const { name, load } of COMMANDS) {
      expect(out).toContain(name)
      const { flags } = await load()
      for (const flag of Object.keys(flags)) expect(out).toContain(shell === 'zsh' ? `--${flag}` : `-l ${flag}`)
    }
    // Quotes are closed in every line: one that is not would take the next lines for text.
    const closed = shell === 'zsh' ? /^(?:[^'\\]|\\.|'[^']*')*$/ : /^(?:[^'\\]|'(?:[^'\\]|\\.)*')*$/
    for (const line of out.split('\n').filter((line) => !line.startsWith('#'))) expect(line).toMatch(closed)
    if (has(shell))
      expect(spawnSync(shell, ['-n', path], { encoding: 'utf8' })).toMatchObject({ status: 0, stderr: '' })
  })

  it('names the shells that it knows', async () => {
    expect(await continuo(['completion', 'tcsh'])).toMatchObject({
      code: 2,
      err: 'Scripts are written for bash, zsh, fish; "tcsh" is none of them.\n',
    })
  })
})
