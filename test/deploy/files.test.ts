/**
 * What is deployed, held by linters: Dockerfile, docker-compose.yml, deploy/kubernetes/. Linters do not know Continuo;
 * that its commands, flags, ports and paths are right is asked besides. test/containers/ runs all of it on a Docker
 * engine.
 */
import { existsSync, globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { DCLinter } from 'dclint'
import { validate } from 'dockerfile-utils'
import { describe, expect, test } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { COMMANDS } from '../../src/cli/commands/index.ts'
import { ROOT } from '../cli/helpers.ts'
import { temporaryFile } from './helpers.ts'

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')
const { version } = JSON.parse(read('package.json')) as { readonly version: string }
const IMAGE = `continuo:${version}`

/** Flags of a command line that it does not have; the same for variables, whose names are those of flags. */
const unknownTo = async (words: readonly string[], variables: readonly string[]): Promise<readonly string[]> => {
  const entry = COMMANDS.find(({ name }) => name === words[0])
  if (entry === undefined) return [`command ${words[0]}`]
  const { flags } = await entry.load()
  const asked = words.filter((word) => word.startsWith('--')).map((word) => word.slice(2))
  const named = variables
    .filter((name) => name.startsWith('CONTINUO_'))
    .map((name) => name.slice('CONTINUO_'.length).toLowerCase().replaceAll('_', '-'))
  return [...asked, ...named].filter((name) => !(name in flags))
}

describe('Dockerfile', () => {
  const text = read('Dockerfile')
  const last = text.slice(text.lastIndexOf('\nFROM '))

  test('has no mistake that a linter knows', () => {
    expect(validate(text)).toEqual([])
    expect(validate(text.replace('USER node', 'USR node'))).not.toEqual([])
  })

  test('leaves the compiler behind, runs as no root, and looks after itself', () => {
    expect([...text.matchAll(/^FROM (\S+)/gm)].map(([, image]) => image)).toEqual([
      ...Array(3).fill('node:24-bookworm'),
      'engine',
      'node:24-bookworm-slim',
    ])
    expect(last).toContain('COPY --from=pack /packed')
    expect(last).not.toMatch(/apt-get|cmake|npm /)
    expect(last).toMatch(/^USER node$/m)
    const [, copied] = /^COPY (\S+health\.mjs) \S+health\.mjs$/m.exec(last)!
    expect(existsSync(join(ROOT, copied!))).toBe(true)
    expect(last).toMatch(/^HEALTHCHECK .*\\\n {2}CMD .*health\.mjs/m)
  })

  test('copies what there is', () => {
    const copied = [...text.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(([, paths]) => paths!.split(' '))
    expect(copied.length).toBeGreaterThan(8)
    expect(copied.filter((path) => !existsSync(join(ROOT, path)))).toEqual([])
  })

  test('is built without what git ignores', () => {
    const lines = (path: string) =>
      read(path)
        .split('\n')
        .filter((line) => line !== '' && !line.startsWith('#'))
    /** Docker's patterns begin at the top of the folder, git's at any depth unless a slash stands within. */
    const asDocker = (pattern: string): string => {
      const path = pattern.replace(/\/$/, '')
      return path.includes('/') ? path.replace(/^\//, '') : `**/${path}`
    }
    const ignored = lines('.dockerignore')
    expect(
      lines('.gitignore')
        .map(asDocker)
        .filter((path) => !ignored.includes(path)),
    ).toEqual([])
  })

  test('sets variables that are flags', async () => {
    const variables = [...last.matchAll(/\b(CONTINUO_\w+)=/g)].map(([, name]) => name!)
    expect(variables).toContain('CONTINUO_METRICS_PORT')
    expect(await unknownTo(['run'], variables)).toEqual([])
  })
})

interface Service {
  readonly image: string
  readonly command?: string
  readonly environment?: Readonly<Record<string, string>>
  readonly volumes?: readonly string[]
  readonly ports?: readonly string[]
}

describe('docker-compose.yml', () => {
  const { services } = parse(read('docker-compose.yml'), { merge: true }) as {
    readonly services: Readonly<Record<string, Service>>
  }
  const lint = async (path: string): Promise<readonly string[]> => {
    // A service that is built has an image's name here, so that the others use what it built. Order of keys is told as
    // a warning.
    const linter = new DCLinter({ rules: { 'no-build-and-image': 0 }, quiet: true, debug: false, exclude: [] })
    const found: readonly { readonly messages: readonly { readonly type: string; readonly message: string }[] }[] =
      await linter.lintFiles([path], false)
    return found.flatMap(({ messages }) =>
      messages.filter(({ type }) => type === 'error').map(({ message }) => message),
    )
  }

  test('fits the schema of Compose, and has no mistake that its linter knows', async () => {
    expect(await lint(join(ROOT, 'docker-compose.yml'))).toEqual([])
    const wrong = temporaryFile('docker-compose.yml', read('docker-compose.yml').replace('healthcheck:', 'healthchek:'))
    expect(await lint(wrong)).not.toEqual([])
  })

  test('asks for commands, flags, the image of this version and files that there are', async () => {
    const own = Object.values(services).filter(({ image }) => image.startsWith('continuo'))
    expect(own).toHaveLength(4)
    for (const { image, command, environment = {} } of own) {
      expect(image).toBe(IMAGE)
      if (command !== undefined) expect(await unknownTo(command.split(' '), Object.keys(environment))).toEqual([])
    }
    const mounted = Object.values(services)
      .flatMap(({ volumes = [] }) => volumes.map((volume) => volume.split(':')[0]!))
      .filter((path) => path.startsWith('.'))
    expect(mounted.length).toBeGreaterThan(2)
    expect(mounted.filter((path) => !existsSync(join(ROOT, path)))).toEqual([])
  })

  test('opens its ports to this machine alone', () => {
    const ports = Object.values(services).flatMap((service) => service.ports ?? [])
    expect(ports).toHaveLength(4)
    expect(ports.filter((port) => !port.startsWith('127.0.0.1:'))).toEqual([])
  })
})

interface Container {
  readonly image: string
  readonly args: readonly string[]
  readonly env?: readonly { readonly name: string }[]
  readonly ports?: readonly { readonly name: string }[]
  readonly volumeMounts: readonly { readonly name: string }[]
  readonly securityContext: object
  readonly resources: { readonly requests: object; readonly limits: object }
  readonly livenessProbe?: { readonly httpGet: { readonly path: string; readonly port: string } }
  readonly readinessProbe?: { readonly httpGet: { readonly path: string; readonly port: string } }
}

interface Pod {
  readonly metadata: { readonly labels: Readonly<Record<string, string>> }
  readonly spec: {
    readonly securityContext: object
    readonly containers: readonly Container[]
    readonly volumes: readonly { readonly name: string }[]
  }
}

interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string }
  readonly data?: Readonly<Record<string, string>>
  readonly spec?: {
    readonly template?: Pod
    readonly selector?: Readonly<Record<string, unknown>> & { readonly matchLabels?: Readonly<Record<string, string>> }
    readonly volumeClaimTemplates?: readonly { readonly metadata: { readonly name: string } }[]
    readonly serviceName?: string
  }
}

describe('deploy/kubernetes/', () => {
  const files = globSync('deploy/kubernetes/*.yaml', { cwd: ROOT })
  const manifests = files.flatMap((path) => parseAllDocuments(read(path)).map((one) => one.toJS() as Manifest))
  const pods = manifests.flatMap(({ metadata, spec }) =>
    spec?.template === undefined ? [] : [{ name: metadata.name, spec, pod: spec.template }],
  )

  /** Checks against the schema that Kubernetes publishes. */
  const check = async (manifest: Manifest): Promise<void> => {
    const group = `kubernetes-models/${manifest.apiVersion}`
    const kinds = (await import(group)) as Readonly<Record<string, new (of: object) => { validate(): unknown }>>
    await new kinds[manifest.kind]!(manifest).validate()
  }

  test('fits the schema of Kubernetes', async () => {
    expect(manifests.length).toBeGreaterThan(6)
    for (const manifest of manifests) await check(manifest)
    const worker = manifests.find(({ kind }) => kind === 'StatefulSet')!
    await expect(check({ ...worker, spec: { ...worker.spec!, replicas: 'two' } as never })).rejects.toThrow('replicas')
  })

  test('has config, workers with a volume for spills, a gateway, and budgets for both', () => {
    expect(manifests.map(({ kind, metadata }) => `${kind} ${metadata.name}`)).toEqual([
      'ConfigMap continuo',
      'Job continuo-topics',
      'Service continuo-worker',
      'StatefulSet continuo-worker',
      'PodDisruptionBudget continuo-worker',
      'Deployment continuo-gateway',
      'Service continuo-gateway',
      'PodDisruptionBudget continuo-gateway',
    ])
    const worker = manifests.find(({ kind }) => kind === 'StatefulSet')!
    expect(worker.spec!.volumeClaimTemplates!.map(({ metadata }) => metadata.name)).toEqual(['spill'])
    expect(worker.spec!.serviceName).toBe('continuo-worker')
  })

  test('selects pods that there are, and mounts volumes that there are', () => {
    const labels = pods.map(({ pod }) => pod.metadata.labels)
    for (const { kind, spec } of manifests) {
      if (spec?.selector === undefined) continue
      const wanted = Object.entries(kind === 'Service' ? spec.selector : spec.selector.matchLabels!)
      expect(labels.some((own) => wanted.every(([name, value]) => own[name] === value))).toBe(true)
    }
    for (const { pod, spec } of pods) {
      const claimed = (spec.volumeClaimTemplates ?? []).map(({ metadata }) => metadata.name)
      const volumes = [...pod.spec.volumes.map(({ name }) => name), ...claimed]
      for (const { volumeMounts } of pod.spec.containers)
        expect(volumeMounts.map(({ name }) => name).filter((name) => !volumes.includes(name))).toEqual([])
    }
  })

  test('lets no container be root, write into its image, or take all memory', () => {
    expect(pods).toHaveLength(3)
    for (const { pod } of pods) {
      expect(pod.spec.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } })
      for (const { securityContext, resources } of pod.spec.containers) {
        expect(securityContext).toEqual({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        })
        expect(resources).toMatchObject({ requests: { cpu: expect.anything() }, limits: { memory: expect.anything() } })
      }
    }
  })

  test('asks for commands, flags and the image of this version, and probes what they serve', async () => {
    const config = Object.keys(manifests.find(({ kind }) => kind === 'ConfigMap')!.data!)
    for (const { name, pod } of pods) {
      const [container] = pod.spec.containers
      const { args, image, env = [], ports = [], livenessProbe, readinessProbe } = container!
      expect(image).toBe(IMAGE)
      // The config is for all of them: each command takes what it has a use for.
      expect(
        await unknownTo(
          args,
          env.map((one) => one.name),
        ),
      ).toEqual([])
      if (name === 'continuo-topics') continue
      expect([livenessProbe!.httpGet.path, readinessProbe!.httpGet.path]).toEqual(['/healthz', '/readyz'])
      expect(ports.map((port) => port.name)).toEqual([livenessProbe!.httpGet.port])
    }
    expect(await unknownTo(['run'], config)).toEqual([])
  })
})
