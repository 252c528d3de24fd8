# docker build -t continuo .
#
# A worker, or any other command: docker run continuo run, with flags or with variables such as CONTINUO_LOG (docs/operations.md).
# The first stage makes the package and is thrown away; the second has Node, the package and no compiler, and does not run as root.
FROM node:24-bookworm AS pack
RUN apt-get update && apt-get install --yes --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /continuo
COPY . .
# The package brings an addon for x64 alone. On another architecture the second stage gets the one that was just built for it.
RUN npm run setup && npm pack --pack-destination /packed && mkdir -p /packed/Release && cp native/build/Release/continuo.node /packed/Release/

FROM node:24-bookworm-slim
COPY --from=pack /packed /tmp/packed
RUN npm install --global --ignore-scripts --no-audit --no-fund /tmp/packed/continuo-*.tgz \
  && if [ ! -d "$(npm root --global)/continuo/prebuilds" ]; then \
       mkdir -p "$(npm root --global)/continuo/native/build" && cp -r /tmp/packed/Release "$(npm root --global)/continuo/native/build/"; \
     fi \
  && rm -rf /tmp/packed /root/.npm \
  # Volumes that are mounted here take the owner of these folders.
  && install --directory --owner=node --group=node /keys /spill
ENV NODE_ENV=production \
    CONTINUO_MODEL=/usr/local/lib/node_modules/continuo/models/demo \
    CONTINUO_METRICS_PORT=9464 \
    CONTINUO_METRICS_HOST=0.0.0.0
USER node
WORKDIR /home/node
EXPOSE 9464
# Of a worker, which serves /healthz beside its metrics. Commands that end by themselves are over before the first look.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:9464/healthz').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["continuo"]
CMD ["--help"]
