import { addKey, keyName, readKeys, removeKey } from '../../gateway/keys.ts'
import { command, type ExitCode } from '../command.ts'
import { needed, usage } from '../flags.ts'
import { print, printJson, table } from '../output.ts'

const ACTIONS = ['add', 'list', 'remove'] as const
type Action = (typeof ACTIONS)[number]

const nameIn = (action: Action, name: string | undefined): string => {
  if (name === undefined) throw usage(`continuo keys ${action} needs NAME: whose key it is.`)
  if (keyName.safeParse(name).success) return name
  throw usage('The name of a key has 1 to 64 letters, digits and . _ @ -.')
}

export const keys = command({
  name: 'keys',
  about:
    'API keys for continuo serve --keys. add prints a new key, once: the file has its sha256 alone. A gateway that runs sees the change within a second.',
  args: [
    { name: 'ACTION', help: 'add, list or remove', required: true },
    { name: 'NAME', help: 'whose key it is, for add and remove', required: false },
  ],
  flags: { keys: needed('FILE', 'the file of the keys; add makes it where it is missing') },
  examples: ['keys add alice --keys keys.json', 'keys list --keys keys.json', 'keys remove alice --keys keys.json'],
  async run({ keys: file, json }, [given, name]): Promise<ExitCode> {
    const action = ACTIONS.find((each) => each === given)
    if (action === undefined) throw usage(`continuo keys takes ${ACTIONS.join(', ')}; "${given}" is none of them.`)
    if (action === 'list') {
      if (name !== undefined) throw usage(`continuo keys list takes no NAME; "${name}" is too much.`)
      const found = readKeys(file).keys.map(({ name: of, created }) => ({ name: of, created }))
      if (json) for (const each of found) printJson(each)
      else if (found.length === 0) print('No keys.')
      else
        print(
          table(
            ['name', 'created'],
            found.map(({ name: of, created }) => [of, created]),
          ),
        )
      return 0
    }
    const of = nameIn(action, name)
    if (action === 'add') {
      const key = await addKey(file, of)
      if (json) printJson({ name: of, key })
      else print(key)
    } else {
      await removeKey(file, of)
      if (json) printJson({ name: of, removed: true })
      else print(`The key of ${of} is removed.`)
    }
    return 0
  },
})
