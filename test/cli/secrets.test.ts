/**
 * What the commands print about a log URL that is wrong holds no password.
 *
 * @module-tag slow
 */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { continuo, temporary } from './helpers.ts'

const folder = temporary()

const WRONG = [
  'kafka://user:ab/XQZJVKW@127.0.0.1:1',
  'kafka://user:ab?XQZJVKW@127.0.0.1:1',
  'kafka://user:ab#XQZJVKW@127.0.0.1:1',
  'kafka://user:ab%XQZJVKW@127.0.0.1:1',
  'kafka://127.0.0.1:1/p?sasl=plain&username=u&pasword=XQZJVKW',
  'http://u:XQZJVKW@127.0.0.1:1',
  'u:XQZJVKW@127.0.0.1:1',
  `file:${join(folder, 'x')}?password=XQZJVKW`,
  `file://u:XQZJVKW@127.0.0.1/x`,
  // Right in form, and nobody there.
  'kafka://127.0.0.1:1/p?sasl=plain&username=u&password=XQZJVKW',
] as const

const commands: readonly (readonly [name: string, args: readonly string[], flag: string])[] = [
  ['run', ['run', '--model', 'models/demo'], '--log'],
  ['feed', ['feed', '--session', 's', '--close'], '--log'],
  ['tail', ['tail'], '--log'],
  ['sessions', ['sessions', '--json'], '--log'],
  ['topics', ['topics', 'list', '--json'], '--log'],
  ['topics', ['topics', 'apply'], '--log'],
  ['export', ['export', 'x.safetensors', '--session', 's'], '--log'],
  ['import', ['import', 'x.safetensors', '--session', 's', '--model', 'models/demo'], '--log'],
  ['verify', ['verify', '--model', 'models/demo'], '--log'],
  ['demo', ['demo'], '--log'],
  ['doctor', ['doctor'], '--log'],
  ['doctor', ['doctor', '--json'], '--log'],
  ['doctor', ['doctor'], '--model'],
  ['run', ['run', '--log', 'file:x', '--model', 'models/demo'], '--threads'],
  ['model', ['model', 'show'], ''],
  ['topics', ['topics'], ''],
  ['sessions', ['sessions', '--log', 'file:x'], ''],
  ['the command itself', [], ''],
]

test.each(
  commands.map((command, index) => [...command, index] as const),
)('%s %j %s tells no password', async (_, args, flag, index) => {
  // Every URL meets every third command: all of them are refused by one function, and a process takes a second.
  for (const url of WRONG.filter((_, at) => at % 3 === index % 3)) {
    for (const word of flag === '' ? [[url]] : [[flag, url]]) {
      const { code, out, err } = await continuo([...args, ...word], { env: { CONTINUO_DEBUG: '1' } })
      expect(code, `${err}${out}`).toBeGreaterThan(0)
      expect(`${out}${err}`).not.toMatch(/XQZJ|QZJV|ZJVK|JVKW/)
    }
  }
})
