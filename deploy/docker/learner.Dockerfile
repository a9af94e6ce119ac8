# The learner, with TensorFlow for CPUs. Its run is kept on the volume /runs.
# Build from the repository's root: docker build -f deploy/docker/learner.Dockerfile -t seedrl-learner .
# It runs as user 10001, on a read-only root file system when /tmp is writable; SIGTERM drains.
# It listens for other hosts, so it needs certificates and tokens, or to be told to trust its network: docs/security.md.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /source
RUN python3 -m venv /opt/seedrl
COPY . .
RUN /opt/seedrl/bin/pip install --no-cache-dir '.[learner]' -c constraints.txt \
    && /opt/seedrl/bin/pip uninstall --yes pip setuptools

FROM ${BASE}
COPY --from=build /opt/seedrl /opt/seedrl
RUN mkdir /runs && chown 10001:10001 /runs
USER 10001:10001
ENV PATH=/opt/seedrl/bin:${PATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
# A restarted container goes on with its run.
ENV SEEDRL_LEARNER__LISTEN=0.0.0.0:50052 SEEDRL_LEARNER__RUN_DIR=/runs/default SEEDRL_LEARNER__RESUME_OR_START=true
WORKDIR /tmp
VOLUME /runs
EXPOSE 50052
HEALTHCHECK --interval=20s --timeout=5s --start-period=60s CMD ["seedrl-health", "127.0.0.1:50052"]
ENTRYPOINT ["seedrl-learner"]
