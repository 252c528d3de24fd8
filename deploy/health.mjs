/**
 * The image's health check: ends with 0 while the command of this container answers, with 1 otherwise.
 *
 * Which command that is stands in the command line of process 1, behind the program, also where an init is process 1. A
 * worker answers at its port of metrics, a gateway at its own, whichever flags or variables name it; a gateway with a
 * worker is asked for both. Other commands have no port: they are healthy while they run. An argument names another
 * file with a command line.
 */
import { readFileSync } from 'node:fs'
import { get as plain } from 'node:http'
import { get as secure } from 'node:https'

const words = readFileSync(process.argv[2] ?? '/proc/1/cmdline', 'utf8').split('\0')
const program = words.findIndex((word) => /(^|\/)(continuo|cli\/main\.(js|ts))$/.test(word))
const [command, ...flags] = program < 0 ? [] : words.slice(program + 1)

/** The value of a flag, on the command line or in the environment. */
const given = (name) => {
  const at = flags.findLastIndex((word) => word === `--${name}` || word.startsWith(`--${name}=`))
  if (at < 0) return process.env[`CONTINUO_${name.toUpperCase().replaceAll('-', '_')}`]
  return flags[at] === `--${name}` ? flags[at + 1] : flags[at].slice(name.length + 3)
}
const hasSwitch = (name) => flags.includes(`--${name}`) || /^(1|true)$/.test(given(name) ?? '')

/** An address that stands for all of them is none to ask. */
const hostOf = (name) => (given(name) ?? '127.0.0.1').replace(/^(0\.0\.0\.0|::)$/, '127.0.0.1')

const asked = []
if (command === 'run' || (command === 'serve' && hasSwitch('with-worker'))) {
  const port = given('metrics-port')
  if (port !== undefined) asked.push({ get: plain, host: hostOf('metrics-host'), port })
}
if (command === 'serve')
  asked.push({
    get: given('https-cert') === undefined ? plain : secure,
    host: hostOf('host'),
    port: given('port') ?? '8080',
  })

/** Why it does not answer as it should; null where it does. The certificate is another party's matter. */
const faultOf = ({ get, host, port }) =>
  new Promise((resolve) => {
    const at = `${host}:${port}/healthz`
    get({ host, port, path: '/healthz', rejectUnauthorized: false }, ({ statusCode }) =>
      resolve(statusCode === 200 ? null : `${at} answers ${statusCode}.`),
    ).on('error', ({ message }) => resolve(`${at} does not answer: ${message}`))
  })

const faults = (await Promise.all(asked.map(faultOf))).filter((fault) => fault !== null)
for (const fault of faults) console.error(fault)
process.exit(faults.length > 0 ? 1 : 0)
