# The router and nothing else: exact versions from the runtime lock, no compiler, no pip, no root.
#
#   docker build -t seam-router .
#   docker run -p 8080:8080 -e ROUTER_API_KEY=… -v "$PWD/router.yaml:/etc/router/router.yaml:ro" seam-router
#
# There are three locks because an image should not carry the tools of development, and pip takes no
# hashes for a subset of a lock: `make lock` writes all three with the same versions.

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements-build.lock requirements-runtime.lock ./
RUN pip install --require-hashes --only-binary=:all: -r requirements-build.lock \
    && python -m venv /opt/router \
    && /opt/router/bin/pip install --require-hashes -r requirements-runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY router ./router
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
    && /opt/router/bin/pip install --no-deps --no-index /dist/*.whl \
    && /opt/router/bin/pip uninstall --yes pip

FROM python:3.13-slim
RUN useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin router
COPY --from=build /opt/router /opt/router
ENV PATH="/opt/router/bin:$PATH" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER router
EXPOSE 8080
STOPSIGNAL SIGTERM
# Without the environment's proxy: it is this container that is asked.
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:8080/health', timeout=2)"]
ENTRYPOINT ["router"]
# The address is given here so that EXPOSE and HEALTHCHECK are true whatever the file says. Beyond
# loopback the file must have `server.api_keys`, or the router refuses to start.
CMD ["serve", "/etc/router/router.yaml", "--host", "0.0.0.0", "--port", "8080"]
