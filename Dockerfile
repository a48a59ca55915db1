# A static binary and nothing else. It runs as an unprivileged user on a read-only root file system;
# only /data and /backups are writable. The build reads the whole checkout, with .git, because the binary names its
# version and commit.
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -tags grpcnotrace,validator_novalidatefn -ldflags='-s -w' -o /heardlog ./cmd/api && mkdir -m 0700 /empty

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/LICENSE /src/NOTICE /
COPY --from=build /heardlog /usr/local/bin/heardlog
COPY --from=build --chown=65532:65532 /empty /data
COPY --from=build --chown=65532:65532 /empty /backups
USER 65532:65532
ENV PATH=/usr/local/bin HEARDLOG_ADDR=0.0.0.0:8080 HEARDLOG_STORE=sqlite:/data/heardlog.db
EXPOSE 8080
VOLUME /data
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["heardlog", "healthcheck"]
ENTRYPOINT ["heardlog"]
