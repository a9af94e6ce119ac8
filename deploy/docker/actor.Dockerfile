# The actor, without TensorFlow and grpcio.
# Build from the repository's root: docker build -f deploy/docker/actor.Dockerfile -t seedrl-actor .
# It runs as user 10001, on a read-only root file system when /tmp is writable; SIGTERM drains.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /source
RUN python3 -m venv /opt/seedrl
COPY . .
RUN /opt/seedrl/bin/pip install --no-cache-dir '.[actor]' -c constraints.txt \
    && /opt/seedrl/bin/pip uninstall --yes pip setuptools

FROM ${BASE}
COPY --from=build /opt/seedrl /opt/seedrl
USER 10001:10001
ENV PATH=/opt/seedrl/bin:${PATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
# No health check: an actor serves nobody, and waits on purpose while its broker is away. It ends when it cannot go on.
ENTRYPOINT ["seedrl-actor"]
