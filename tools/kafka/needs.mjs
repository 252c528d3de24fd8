// Installs Java and Maven where they are missing and root has apt-get (tools/build-tools.mjs). Else does nothing: who
// needs them says so.
import { spawnSync } from 'node:child_process'
import { pathToFileURL } from 'node:url'
import { installPackages } from '../build-tools.mjs'

const has = (program) => spawnSync(program, ['-version'], { stdio: 'ignore' }).error === undefined

export const installJava = () => {
  const missing = [
    ['java', 'openjdk-17-jre-headless'],
    ['mvn', 'maven'],
  ].filter(([program]) => !has(program))
  if (missing.length > 0) {
    const packages = missing.map(([, name]) => name)
    installPackages(packages, 'A broker without a Docker engine runs on Java, its jars come with Maven')
  }
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) installJava()
