# The broker, without TensorFlow and simulators.
# Build from the repository's root: docker build -f deploy/docker/broker.Dockerfile -t seedrl-broker .
# It runs as user 10001, on a read-only root file system when /tmp is writable; SIGTERM drains.
# It listens for other hosts, so it needs certificates and tokens, or to be told to trust its network: docs/security.md.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /source
RUN python3 -m venv /opt/seedrl
COPY . .
RUN /opt/seedrl/bin/pip install --no-cache-dir '.[broker]' -c constraints.txt \
    && /opt/seedrl/bin/pip uninstall --yes pip setuptools

FROM ${BASE}
COPY --from=build /opt/seedrl /opt/seedrl
USER 10001:10001
ENV PATH=/opt/seedrl/bin:${PATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
ENV SEEDRL_BROKER__LISTEN=0.0.0.0:50051
EXPOSE 50051
HEALTHCHECK --interval=20s --timeout=5s --start-period=20s CMD ["seedrl-health", "127.0.0.1:50051"]
ENTRYPOINT ["seedrl-broker"]
