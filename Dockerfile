# weir's image: one static binary, the shipped configuration, no shell, not root. Its root file system may be read-only.
#
#   docker build --build-arg VERSION="$(git describe --tags --always)" -t weir .
#   docker run --rm --read-only -v weir-data:/data -p 127.0.0.1:50051:50051 -p 127.0.0.1:8080:8080 weir
#
# /data holds the rules that are made through the API, unless they are kept in a Postgres: the one folder that is written to.
# Rules of your own: mount a folder at /etc/weir/rules; changes are loaded while it runs.

FROM --platform=$BUILDPLATFORM golang:1.26.8-trixie AS build
WORKDIR /src
# Modules change more seldom than code: a layer of their own.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
ARG TARGETOS
ARG TARGETARCH
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH make build VERSION="$VERSION" && mkdir /data /links && ln -s /weir /links/ratelimit

FROM scratch
ARG VERSION=unknown
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="Rate limits for API gateways" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
# For TLS to Redis and others whose certificates come from public authorities. Time zones are in the binary.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/bin/weir /weir
# /bin/ratelimit takes the place of envoyproxy/ratelimit, with its environment.
COPY --from=build /links /bin
COPY config /etc/weir
# A new volume takes over the folder's owner. database.path is data/weir.db, from the working directory, which is /.
COPY --from=build --chown=65532:65532 /data /data
VOLUME /data
# A number, because Kubernetes' runAsNonRoot cannot check a name.
USER 65532:65532
# gRPC for Envoy, gRPC for everybody, HTTP for API, health and metrics. There is no HEALTHCHECK, since an orchestrator asks better: GET /readyz, or
# gRPC's health service. docker-compose.yaml shows one by command.
EXPOSE 8081 50051 8080
ENTRYPOINT ["/weir"]
CMD ["serve", "--config", "/etc/weir/weir.yaml", "--rules", "/etc/weir/rules"]
