# docker build -t continuo .
#
# A worker, or any other command: docker run continuo run, with flags or with variables such as CONTINUO_LOG (docs/operations.md).
# All stages but the last are thrown away: that has Node, the package with the packages it needs, and no compiler, and does not run as root.
# Each stage sees what it depends on and nothing else: a change of docs/ compiles nothing, one of src/ or of a script in package.json not the engine.

# What package.json says of packages.
FROM node:24-bookworm AS manifest
WORKDIR /manifest
COPY package.json package-lock.json ./
RUN npm pkg delete scripts files

# The packages of the lock file, without those of development.
FROM node:24-bookworm AS packages
WORKDIR /packages
COPY --from=manifest /manifest ./
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund

FROM node:24-bookworm AS engine
RUN apt-get update && apt-get install --yes --no-install-recommends cmake ninja-build && rm -rf /var/lib/apt/lists/*
WORKDIR /continuo
COPY --from=packages /packages ./
COPY tools/build-native.mjs tools/build-progress.mjs tools/build-tools.mjs tools/cuda.mjs tools/
COPY native native
ENV CONTINUO_ISA=all
RUN node tools/build-native.mjs

FROM engine AS pack
RUN npm ci --no-audit --no-fund
COPY package.json tsconfig.json ./
COPY tools tools
COPY topics topics
COPY src src
RUN node tools/pack.mjs
COPY . .
# The package brings an addon for x64 alone. On another architecture the image gets the one that was just built for it.
RUN mkdir /packed && npm pack --ignore-scripts --pack-destination /packed && tar --extract --directory /packed --file /packed/continuo-*.tgz \
  && if [ ! -d /packed/package/prebuilds ]; then mkdir -p /packed/package/native/build && cp -r native/build/Release /packed/package/native/build/; fi

FROM node:24-bookworm-slim
COPY --from=packages /packages/node_modules /usr/local/lib/node_modules/continuo/node_modules
COPY --from=pack /packed/package /usr/local/lib/node_modules/continuo
COPY deploy/health.mjs /usr/local/lib/continuo-health.mjs
RUN chmod +x /usr/local/lib/node_modules/continuo/dist/src/cli/main.js \
  && ln -s ../lib/node_modules/continuo/dist/src/cli/main.js /usr/local/bin/continuo \
  # Volumes that are mounted here take the owner of these folders. An embedded log lies in the last one.
  && install --directory --owner=node --group=node /keys /scrape /spill /home/node/.continuo
ENV NODE_ENV=production \
    CONTINUO_MODEL=/usr/local/lib/node_modules/continuo/models/demo \
    CONTINUO_METRICS_PORT=9464 \
    CONTINUO_METRICS_HOST=0.0.0.0
USER node
WORKDIR /home/node
EXPOSE 8080 9464
# Of a worker and of a gateway, each at its own port. Another command is healthy as long as it runs.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["node", "/usr/local/lib/continuo-health.mjs"]
ENTRYPOINT ["continuo"]
CMD ["--help"]
