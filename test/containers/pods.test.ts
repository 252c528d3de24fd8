/**
 * The containers of deploy/kubernetes/continuo.yaml as a kubelet would start them: user, groups, root file system,
 * capabilities, arguments, environment, volumes with the owners that a cluster gives them, probes, and a stop.
 * Scheduling, budgets, claims and services need a cluster.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { eventually, ROOT } from '../cli/helpers.ts'
import { docker, fresh, IMAGE, tried, wrote } from './docker.ts'

interface Container {
  readonly name: string
  readonly args: readonly string[]
  readonly env?: readonly { readonly name: string; readonly value: string }[]
  readonly ports?: readonly { readonly name: string; readonly containerPort: number }[]
  readonly securityContext: {
    readonly allowPrivilegeEscalation: boolean
    readonly readOnlyRootFilesystem: boolean
    readonly capabilities: { readonly drop: readonly string[] }
  }
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string; readonly readOnly?: boolean }[]
  readonly lifecycle?: { readonly preStop: { readonly sleep: { readonly seconds: number } } }
  readonly [probe: `${string}Probe`]: { readonly httpGet: { readonly path: string; readonly port: string } }
}
interface Manifest {
  readonly kind: string
  readonly metadata: { readonly name: string }
  readonly data?: Readonly<Record<string, string>>
  readonly spec?: {
    readonly template?: {
      readonly spec: {
        readonly terminationGracePeriodSeconds?: number
        readonly securityContext: { readonly runAsUser: number; readonly runAsGroup: number; readonly fsGroup: number }
        readonly containers: readonly Container[]
        readonly volumes: readonly { readonly name: string; readonly secret?: { readonly defaultMode: number } }[]
      }
    }
  }
}

const manifests = parseAllDocuments(readFileSync(join(ROOT, 'deploy/kubernetes/continuo.yaml'), 'utf8')).map(
  (one) => one.toJS() as Manifest,
)
const config = manifests.find(({ kind }) => kind === 'ConfigMap')!.data!
const network = fresh('cluster')
const [broker, keys] = [`${network}-broker`, fresh('keys')]
const [names, volumes]: string[][] = [[broker], [keys]]

/** A container of the manifest, started; its name. */
const started = async ({ metadata, spec }: Manifest): Promise<string> => {
  const { securityContext, containers, volumes: declared } = spec!.template!.spec
  const [container] = containers as [Container]
  const { runAsUser, runAsGroup, fsGroup } = securityContext
  const mounts: string[] = []
  for (const { name, mountPath, readOnly } of container.volumeMounts) {
    const volume = fresh(name)
    volumes!.push(volume)
    const secret = declared.find((each) => each.name === name)?.secret
    // A claim and an empty volume are folders of the group, a secret is files of root for the group with their mode.
    const fill =
      secret === undefined
        ? `chown 0:${fsGroup} /v && chmod 2775 /v && mkdir /v/lost+found && chmod 700 /v/lost+found`
        : `cp /k/keys.json /v/ && chown 0:${fsGroup} /v/keys.json && chmod ${secret.defaultMode.toString(8)} /v/keys.json`
    await docker(['volume', 'create', volume])
    await docker(
      [
        'run',
        '--rm',
        '--user',
        '0',
        '--volume',
        `${keys}:/k`,
        '--volume',
        `${volume}:/v`,
        '--entrypoint',
        'sh',
        IMAGE,
      ].concat(['-c', fill]),
    )
    mounts.push('--volume', `${volume}:${mountPath}${readOnly ? ':ro' : ''}`)
  }
  const variables = {
    ...config,
    CONTINUO_LOG: `kafka://${broker}:9092/pods`,
    ...Object.fromEntries((container.env ?? []).map(({ name, value }) => [name, value])),
  }
  const name = fresh(metadata.name)
  names!.push(name)
  const { allowPrivilegeEscalation, readOnlyRootFilesystem, capabilities } = container.securityContext
  await docker([
    ...['run', '--detach', '--no-healthcheck', '--name', name, '--network', network],
    ...['--user', `${runAsUser}:${runAsGroup}`, '--group-add', String(fsGroup)],
    ...(readOnlyRootFilesystem ? ['--read-only'] : []),
    ...(allowPrivilegeEscalation ? [] : ['--security-opt', 'no-new-privileges']),
    ...capabilities.drop.flatMap((capability) => ['--cap-drop', capability]),
    ...mounts,
    ...Object.entries(variables).flatMap(([variable, value]) => ['--env', `${variable}=${value}`]),
    IMAGE,
    ...container.args,
  ])
  return name
}

beforeAll(async () => {
  await docker(['network', 'create', network])
  await docker(['volume', 'create', keys])
  await docker([
    ...['run', '--detach', '--name', broker, '--network', network],
    ...['--env', 'KAFKA_PROCESS_ROLES=broker,controller', '--env', 'KAFKA_NODE_ID=1'],
    ...[
      '--env',
      'KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9093',
      '--env',
      'KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER',
    ],
    ...['--env', 'KAFKA_LISTENERS=PLAINTEXT://:9092,CONTROLLER://:9093'],
    ...['--env', `KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://${broker}:9092`],
    ...['--env', 'KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT'],
    ...[
      '--env',
      'KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1',
      '--env',
      'KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1',
    ],
    ...['--env', 'KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1', '--env', 'KAFKA_AUTO_CREATE_TOPICS_ENABLE=false'],
    'apache/kafka:4.3.1',
  ])
  await wrote(broker, /Kafka Server started/)
  await docker(['run', '--rm', '--volume', `${keys}:/keys`, IMAGE, 'keys', 'add', 'alice', '--keys', '/keys/keys.json'])
})
afterAll(async () => {
  for (const name of names!) await tried(['rm', '--force', '--volumes', name])
  for (const volume of volumes!) await tried(['volume', 'rm', volume])
  await tried(['network', 'rm', network])
})

describe('the manifests', () => {
  test('the job makes the topics and ends', async () => {
    const name = await started(manifests.find(({ kind }) => kind === 'Job')!)
    const code = await docker(['wait', name])
    expect({ code, text: (await tried(['logs', name])).text }).toMatchObject({
      code: '0',
      text: expect.stringContaining(`${config.CONTINUO_PARTITIONS} partitions`),
    })
  })

  const stopping: [name: string, seconds: number][] = []
  const lasting = manifests.filter(({ kind }) => kind === 'StatefulSet' || kind === 'Deployment')
  test('there are workers and gateways', () => expect(lasting).toHaveLength(2))

  // The worker first: a gateway is ready once every partition has one.
  test.each(
    lasting.map((manifest) => [manifest.metadata.name, manifest] as const),
  )('%s starts, passes its probes and writes nowhere else', async (_, manifest) => {
    const name = await started(manifest)
    const [container] = manifest.spec!.template!.spec.containers as [Container]
    for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'] as const) {
      const { path, port } = container[probe]!.httpGet
      const number = container.ports!.find((each) => each.name === port)!.containerPort
      const script = `const { ok, status } = await fetch('http://127.0.0.1:${number}${path}'); console.log(status); process.exit(ok ? 0 : 1)`
      await eventually(async () => {
        const { code, text } = await tried(['exec', name, 'node', '--input-type=module', '--eval', script])
        expect({ probe, code, text }).toEqual({ probe, code: 0, text: '200\n' })
      }, 60_000)
    }
    expect((await tried(['exec', name, 'touch', '/x'])).text).toMatch(/Read-only file system/)
    stopping.push([name, manifest.spec!.template!.spec.terminationGracePeriodSeconds!])
  })

  test('each stops in the time that it has', async () => {
    expect(stopping).toHaveLength(2)
    for (const [name, seconds] of stopping.reverse()) {
      await docker(['stop', '--time', String(seconds), name])
      expect(await docker(['inspect', '--format', '{{.State.ExitCode}}', name])).toBe('0')
    }
  })
})
