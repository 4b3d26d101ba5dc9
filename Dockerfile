# The harness in a container: docs/guides/containers.md
FROM docker.io/library/python:3.12-slim
# "all,gpu" has CUDA's libraries too.
ARG EXTRAS=all
# The compiler makes the library of software GPUs, once.
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN python -m pip install --no-cache-dir "/source[${EXTRAS}]" && rm -rf /source
# A folder that any user may write.
ENV XDG_CACHE_HOME=/var/cache/harness
RUN mkdir -p $XDG_CACHE_HOME /work && harness devices --devices softgpu:1 --report /tmp/report && rm -rf /tmp/report && chmod -R a+rwX $XDG_CACHE_HOME /work
WORKDIR /work
ENTRYPOINT ["harness"]
CMD ["validate"]
