/**
 * `npm run test:kills` itself, with a few kills: what it counts and what it says of wrong calls. The thousand are its
 * own.
 */
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))

const kills = async (...args: readonly string[]) => {
  const child = spawn(process.execPath, ['tools/kills.mjs', ...args], { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] })
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (data: Buffer) => {
    stdout += data.toString()
  })
  child.stderr.on('data', (data: Buffer) => {
    stderr += data.toString()
  })
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve))
  return { code, stdout, stderr }
}

test('kills as many workers as it was asked to, says where, and compares what they left', {
  tags: 'slow',
  timeout: 300_000,
}, async () => {
  const { code, stdout, stderr } = await kills('--kills', '7', '--log', 'embedded', '--family', 'rwkv7', '--jobs', '1')
  expect(code, stderr).toBe(0)
  const rows = new Map(
    stdout
      .split('\n')
      .map((line) => /^(.+?) {2,}(\d+) +(\d+)$/.exec(line))
      .flatMap((found) => (found === null ? [] : [[found[1]!, Number(found[3])] as const])),
  )
  expect(rows.get('all')).toBe(7)
  rows.delete('all')
  expect(rows.size).toBe(20)
  expect([...rows.values()].reduce((sum, kills) => sum + kills, 0)).toBe(7)
  const compared = /Compared, all equal: (\d+) token events?, .* (\d+) chains?\./.exec(stdout)
  expect(Number(compared?.[1]), stdout).toBeGreaterThan(0)
  expect(Number(compared?.[2])).toBeGreaterThan(0)
})

test.each([
  { args: ['--kills', '0'], says: '--kills is a whole number from 1 to 2147483648; it is "0".' },
  { args: ['--log', 'paper'], says: '--log is one of embedded, kafka, both; it is "paper".' },
  {
    args: ['--family', 'bert'],
    says: '--family is one of rwkv7, rwkv7-q8, titans, gpt2-refuse, gpt2-window, qwen3, qwen35, qwen3moe, memory, perspective, ngram, subwords; it is "bert".',
  },
  { args: ['--kill', '3'], says: "Unknown option '--kill'" },
])('a wrong call, %j, says what is expected and ends with 2', async ({ args, says }) => {
  const { code, stderr } = await kills(...args)
  expect(stderr).toContain(says)
  expect(code).toBe(2)
})
