# One image for all commands (`docker run onceflow bridge`). Nothing that builds is left in it, and it runs as a plain user.
# The pip commands are those of docs/operating/production.md, where a test runs them.
FROM python:3.13.18-slim-trixie AS build
WORKDIR /opt/onceflow
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN python3 -m venv build-tools
RUN build-tools/bin/pip install --require-hashes -r requirements/build.txt
# A virtual environment knows its own path, so it is made where it will be used.
RUN python3 -m venv venv
RUN venv/bin/pip install --require-hashes --only-binary :all: -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY producer producer
COPY processor processor
COPY reconciler reconciler
COPY simulator simulator
COPY console console
RUN build-tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist .
RUN venv/bin/pip install --no-deps dist/onceflow-*.whl

FROM python:3.13.18-slim-trixie
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin onceflow
COPY --from=build /opt/onceflow/venv /opt/onceflow/venv
COPY LICENSE /opt/onceflow/LICENSE
ENV PATH="/opt/onceflow/venv/bin:$PATH" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Handlers are looked for in the folder in which `onceflow process` is started.
WORKDIR /handlers
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["onceflow"]
CMD ["--help"]
