# The server in a container. BASE needs Python 3.11 or newer with venv, and apt-get.
#   docker build -t holdfast .
#   docker run -d --name holdfast -p 127.0.0.1:8420:8420 -v holdfast:/data -e OPENAI_API_KEY holdfast
ARG BASE=docker.io/library/python:3.13-slim-bookworm

FROM ${BASE} AS build
ARG EXTRAS=mcp,postgres
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python3 -m venv /opt/holdfast \
    && /opt/holdfast/bin/pip install --no-cache-dir --no-compile ".[${EXTRAS}]"

FROM ${BASE}
# tini reaps the background processes of sessions and passes signals on; git and ripgrep are for tools, bubblewrap is their sandbox.
RUN apt-get update \
    && apt-get install -y --no-install-recommends bash bubblewrap ca-certificates git ripgrep tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --create-home --shell /bin/bash holdfast \
    && install -d -o holdfast -g holdfast -m 700 /data
COPY --from=build /opt/holdfast /opt/holdfast
ENV PATH=/opt/holdfast/bin:$PATH \
    HOLDFAST_HOME=/data \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /home/holdfast
VOLUME /data
EXPOSE 8420
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8420/health', timeout=4)"]
ENTRYPOINT ["tini", "--", "holdfast"]
CMD ["serve", "--host", "0.0.0.0"]
