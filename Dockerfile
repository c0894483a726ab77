# An image of the package that `make deb` has made, without a shell: make image
#
#   docker run --init --publish 80:80 --volume ./equipoise.toml:/etc/equipoise/equipoise.toml:ro equipoise
#
# `--init` lets `equipoise upgrade` replace the process.
ARG UNPACK=debian:bookworm-slim
ARG BASE=gcr.io/distroless/cc-debian12:nonroot

# hadolint ignore=DL3006
FROM ${UNPACK} AS package
COPY target/packages/equipoise_*.deb /equipoise.deb
RUN dpkg-deb --extract /equipoise.deb /image \
    && install -d -m 750 /image/run/equipoise /image/var/lib/equipoise /image/var/log/equipoise

# hadolint ignore=DL3006
FROM ${BASE}
COPY --from=package /image/usr/bin/equipoise /usr/bin/
COPY --from=package /image/etc/equipoise /etc/equipoise
COPY --from=package /image/usr/share/doc/equipoise /usr/share/doc/equipoise
COPY --from=package --chown=nonroot:nonroot /image/run/equipoise /run/equipoise
COPY --from=package --chown=nonroot:nonroot /image/var/lib/equipoise /var/lib/equipoise
COPY --from=package --chown=nonroot:nonroot /image/var/log/equipoise /var/log/equipoise
HEALTHCHECK CMD ["/usr/bin/equipoise", "status"]
ENTRYPOINT ["/usr/bin/equipoise"]
CMD ["run"]
