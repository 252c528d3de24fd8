/**
 * The package as a user meets it: `npm pack`, then `npm install` of the tarball in an empty project, without install
 * scripts and without a compiler, under the oldest Node that it admits and under the project's own. The addon is the
 * one that `npm run setup` built.
 *
 * @module-tag slow
 */
import { globSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { oldestNode, outputOf, QUIETLY, ROOT, run, temporary, toolsWith } from './project.ts'

/** Elsewhere the package brings no addon. */
const suite = process.platform === 'linux' && process.arch === 'x64' ? describe : describe.skip

const { path: home, remove } = temporary()
const project = join(home, 'project')
const installed = join(project, 'node_modules', 'continuo')
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  readonly version: string
  readonly devDependencies: Readonly<Record<string, string>>
}
const readme = readFileSync(join(ROOT, 'README.md'), 'utf8')
/** The program that README.md shows, and what it prints there. */
const [, program = '', printed = ''] =
  /```ts\n(import \{[^}]*\} from 'continuo'\n.*?)```\n.*?```\n(.*?)```/s.exec(readme) ?? []

let tarball = ''
/** PATH of the user, by name of the Node. */
const paths: Record<string, string> = {}
const NODES = ['the oldest Node', 'Node 24'] as const

suite('the installed package', { timeout: 900_000 }, () => {
  beforeAll(async () => {
    const stdout = await outputOf('npm', ['pack', '--silent', '--pack-destination', home], ROOT)
    tarball = join(home, stdout.trim().split('\n').at(-1)!)
    paths['the oldest Node'] = toolsWith(await oldestNode(), join(home, 'oldest'))
    paths['Node 24'] = toolsWith(join(ROOT, 'node_modules', 'node', 'bin', 'node'), join(home, 'own'))
    mkdirSync(join(project, 'deep', 'below'), { recursive: true })
    writeFileSync(join(project, 'package.json'), '{ "name": "project", "private": true, "type": "module" }')
    await outputOf('npm', ['install', ...QUIETLY, tarball], project, { PATH: paths['the oldest Node'] })
  }, 900_000)
  afterAll(remove)

  test('has what it needs to run and to be built, and nothing else', async () => {
    const files = globSync('**', { cwd: installed, exclude: (path) => path.startsWith('node_modules') })
    const left = files.filter((path) =>
      /^(src|test|bench|train|topics)\b|^native\/(test|bench|build)|\.(db|log)$/.test(path),
    )
    expect(left).toEqual([])
    expect(files).toEqual(
      expect.arrayContaining([
        'LICENSE',
        'dist/man/continuo.1',
        'prebuilds/linux-x64/continuo.node',
        'native/CMakeLists.txt',
      ]),
    )
    // Modules that are started by path are not seen by the compiler.
    const started = globSync('src/**/*.ts', { cwd: ROOT }).flatMap((path) =>
      [...readFileSync(join(ROOT, path), 'utf8').matchAll(/beside\(import\.meta\.url, '([\w-]+)'\)/g)].map(
        ([, name]) => `dist/${join(path, '..', name!)}.js`,
      ),
    )
    expect(started.length).toBeGreaterThan(3)
    expect(files).toEqual(expect.arrayContaining(started))
    const scripts = globSync('**/package.json', { cwd: join(project, 'node_modules') }).filter((path) => {
      const { scripts = {} } = JSON.parse(readFileSync(join(project, 'node_modules', path), 'utf8'))
      return ['preinstall', 'install', 'postinstall'].some((name) => name in scripts)
    })
    expect(scripts, 'packages that --ignore-scripts leaves half installed').toEqual([])
  })

  describe.each(NODES)('under %s', (name) => {
    const env = () => ({ PATH: paths[name]! })
    const npx = (args: readonly string[], cwd: string) => run('npx', ['continuo', ...args], cwd, env())

    test('tells its version and its commands', async () => {
      expect(await npx(['--version'], project)).toEqual({ code: 0, out: `${manifest.version}\n`, err: '' })
      expect((await npx(['--help'], project)).out).toContain('npx continuo <command>')
      expect((await npx(['demo', '--help'], project)).out).toMatch(/^continuo demo \[flags\]\n/)
    })

    test('runs the demo in any folder of the project; what it says to run next runs', async () => {
      const below = join(project, 'deep', name.replaceAll(' ', '-'))
      mkdirSync(below)
      const { code, out, err } = await npx(['demo'], below)
      expect({ code, err: err.replace(/^[\d,]+ pulses .*\n/gm, '') }).toEqual({ code: 0, err: '' })
      expect(out).toContain('generated 400.\nEverything is in file:.continuo/demo.db.')
      // The same bits as in the repository: README.md shows the beginnings of these chains.
      const chains = [...out.matchAll(/chain ([0-9a-f]{12})…/g)].map(([, chain]) => chain!)
      expect(chains).toHaveLength(2)
      for (const chain of chains) expect(readme).toContain(`chain ${chain}…`)
      const next = [...out.matchAll(/^ {2}npx continuo ((?:sessions|verify|tail) .*)$/gm)].map(([, line]) => line!)
      expect(next).toHaveLength(3)
      for (const line of next) {
        // In a folder below, npx finds the package and starts its command there.
        const done = await npx(line.split(' '), below)
        expect({ line, code: done.code }).toEqual({ line, code: 0 })
      }
      const sessions = await npx(['sessions', '--json', '--log', 'file:.continuo/demo.db'], below)
      expect(sessions.err).toBe('')
      expect(JSON.parse(sessions.out)).toMatchObject({ session: 'harbour-log', pulse: 13_254 })
    })

    test("runs README's program as it is printed there", async () => {
      expect(program).toContain('await openPackage(demoModel)')
      writeFileSync(join(project, 'readme.js'), program)
      expect(await run('node', ['readme.js'], project, env())).toEqual({ code: 0, out: printed, err: '' })
    })

    test('runs the examples', async () => {
      const folder = join(project, name.replaceAll(' ', '-'))
      mkdirSync(folder)
      const example = (file: string) => outputOf('node', [join(installed, 'examples', file)], folder, env())
      const [first, second] = [await example('stream.js'), await example('stream.js')]
      expect([first.length, second.length]).toEqual([80, 80])
      // The second run goes on where the first one stopped.
      expect(second).not.toBe(first)
      expect(
        await outputOf('node', ['--test', join(installed, 'examples', 'driver.test.js')], folder, env()),
      ).toContain('pass 1')
      expect(await example('sessions.js')).toMatch(/^1: ".+"\n2: ".+"\n$/)
    })

    test('is imported within ten seconds', async () => {
      const began = performance.now()
      await outputOf('node', ['--input-type=module', '--eval', "import 'continuo'"], project, env())
      expect(performance.now() - began).toBeLessThan(10_000)
    })
  })

  test('recomputes a log, as an example shows it for CI', async () => {
    // The script calls mktemp, too.
    const env = { PATH: `${paths['Node 24']}:/usr/bin:/bin` }
    const out = await outputOf('sh', [join(installed, 'examples', 'verify.sh')], project, env)
    expect(out).toContain('Everything agrees.')
  })

  test('says what to run where there is no addon, and what that needs', async () => {
    const env = { PATH: paths['the oldest Node']! }
    renameSync(join(installed, 'prebuilds'), join(installed, 'aside'))
    try {
      const demo = await run('npx', ['continuo', 'demo'], project, env)
      expect(demo).toMatchObject({
        code: 1,
        err: 'The native engine is not built for linux x64. Run `npx continuo setup`.\n',
      })
      const setup = await run('npx', ['continuo', 'setup'], project, env)
      expect(setup.code).toBe(1)
      expect(setup.err).toMatch(/^The native engine needs a C\+\+20 compiler .*CMake .*make or ninja\. Install/)
      expect(setup.err).toContain('run `npx continuo setup` again')
    } finally {
      renameSync(join(installed, 'aside'), join(installed, 'prebuilds'))
    }
  })

  describe('in a strict TypeScript program', () => {
    beforeAll(async () => {
      const { typescript, '@types/node': types } = manifest.devDependencies
      await outputOf('npm', ['install', '-D', ...QUIETLY, `typescript@${typescript}`, `@types/node@${types}`], project)
    })

    test.each([
      ['nodenext', 'nodenext'],
      ['esnext', 'bundler'],
    ])('compiles, libraries checked, with module %s and resolution %s', async (module, resolution) => {
      writeFileSync(join(project, 'readme.ts'), program)
      const names =
        "import * as continuo from 'continuo'\nexport const names: readonly string[] = Object.keys(continuo)\n"
      writeFileSync(join(project, 'names.ts'), names)
      const compilerOptions = {
        ...{ strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, skipLibCheck: false },
        ...{ target: 'es2024', module, moduleResolution: resolution, types: ['node'], noEmit: true },
      }
      writeFileSync(
        join(project, 'tsconfig.json'),
        JSON.stringify({ compilerOptions, files: ['readme.ts', 'names.ts'] }),
      )
      expect(await run(join('node_modules', '.bin', 'tsc'), ['-p', '.'], project)).toEqual({
        code: 0,
        out: '',
        err: '',
      })
      // Nothing is any: an import that leads nowhere would be.
      writeFileSync(
        join(project, 'names.ts'),
        "import { demoModel } from 'continuo'\nexport const wrong: number = demoModel\n",
      )
      expect((await run(join('node_modules', '.bin', 'tsc'), ['-p', '.'], project)).out).toContain('TS2322')
    })
  })
})
