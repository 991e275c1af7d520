# A broker alone: no Spark, no JVM. Build it with: docker build -t barnabas .
# With the schema registry: docker build -t barnabas --build-arg EXTRAS='[protobuf]' .
ARG PYTHON=3.13
FROM python:${PYTHON}-slim AS build
ARG EXTRAS=
WORKDIR /src
RUN python -m venv /opt/barnabas
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN /opt/barnabas/bin/pip install --no-cache-dir -c constraints.txt ".${EXTRAS}" \
    && /opt/barnabas/bin/python -m compileall -q /opt/barnabas

FROM python:${PYTHON}-slim
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin barnabas \
    && install -d -o barnabas -g barnabas -m 0700 /var/lib/barnabas
COPY --from=build /opt/barnabas /opt/barnabas
ENV PATH=/opt/barnabas/bin:$PATH PYTHONUNBUFFERED=1
USER barnabas
VOLUME /var/lib/barnabas
EXPOSE 9092
# SIGTERM stops a broker cleanly: it writes down what it has flushed, so that the next start is quick.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 9092), 3).close()"]
ENTRYPOINT ["barnabas"]
# Clients are told the container's own name, which other containers of its network know. For clients outside, add
# --advertise HOST:PORT.
CMD ["start", "--data", "/var/lib/barnabas", "--listen", "0.0.0.0:9092"]
