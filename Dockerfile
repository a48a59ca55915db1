# A static binary and nothing else. The container runs as a user without rights, on a read-only root; only /data is written.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /heardlog ./cmd/api && mkdir -m 0700 /empty

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /heardlog /heardlog
COPY --from=build --chown=65532:65532 /empty /data
USER 65532:65532
ENV HEARDLOG_ADDR=0.0.0.0:8080 HEARDLOG_STORE=sqlite:/data/heardlog.db
EXPOSE 8080
VOLUME /data
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["/heardlog", "healthcheck"]
ENTRYPOINT ["/heardlog"]
