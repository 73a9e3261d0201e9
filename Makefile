# podprobe. `make help` says what there is; every target is a few lines.
CARGO ?= cargo
RUSTC ?= rustc
PREFIX ?= /usr/local
RUNTIME ?= embedded
# Of the benches themselves; `dev` uses what `make test` has built.
PROFILE ?= bench
MUSL := x86_64-unknown-linux-musl
# Tests wait more than they work.
TEST_THREADS ?= $(shell echo $$((4 * $$(nproc))))
DEMO := target/demo/rootfs/probe-target
# Debian's toolchain goes before the default one when only it has a musl std; "none" when neither has.
STATIC_PATH := $(shell has() { ls "$$($$1 --print target-libdir --target $(MUSL) 2>/dev/null)"/libstd-*.rlib >/dev/null 2>&1; }; \
	has rustc || { has /usr/bin/rustc && echo /usr/bin:; } || echo none)

# Frame pointers make the tables for unwinding a third smaller, 320 KB of the static file. Panics name their place without the
# directory of cargo's sources, so that the file does not depend on where it is built.
SOURCES := $(or $(CARGO_HOME),$(HOME)/.cargo)/registry/src/
STATIC_FLAGS := CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS="-C force-frame-pointers=yes --remap-path-prefix=$(SOURCES)="
# lld folds functions of the same machine code into one, which saves 44 KB, and packs the list of pointers, which saves 430 KB
# where the start of a static file can read that (.ci/musl/rcrt1.c); without lld the file is so much larger.
FOLD := $(shell command -v ld.lld >/dev/null 2>&1 && echo -C link-arg=-fuse-ld=lld -C link-arg=-Wl,--icf=all && \
	ls "$$(PATH="$(STATIC_PATH)$$PATH" $(RUSTC) --print target-libdir --target $(MUSL) 2>/dev/null)/self-contained/reads-relr" >/dev/null 2>&1 && \
	echo -C link-arg=-Wl,--pack-dyn-relocs=relr)

# The compiler makes a function of what stands in many places, which saves 190 KB. Each has 40 bytes of tables: of less than 32
# bytes it makes none.
OUTLINE := -C llvm-args=-enable-machine-outliner=always -C llvm-args=-outliner-benefit-threshold=32

# Workers are measured in this program's own processes, so it is built as the static file is (and with what that left).
ifeq ($(STATIC_PATH),none)
NETWORK_BENCH := $(CARGO) bench --bench network
else
NETWORK_BENCH := PATH="$(STATIC_PATH)$$PATH" $(STATIC_FLAGS) $(CARGO) bench --bench network --profile release --target $(MUSL) --target-dir target/static
endif

.DEFAULT_GOAL := help
.PHONY: help build run test realware lint static static-embedded static-slim musl-std bench soak flood install clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

build: ## build the program (target/debug/podprobe)
	$(CARGO) build

run: build $(DEMO) ## the demo: four pods, live in the terminal; Ctrl-C removes everything (as root)
	@[ "$$(id -u)" = 0 ] || { echo "make run needs root, for containers need mounts, namespaces and cgroups: run it again with sudo" >&2; exit 1; }
	@exec target/debug/podprobe try --pods config/pods --image target/demo/rootfs=probe-target:latest --runtime $(RUNTIME)

$(DEMO): examples/probe-target/main.rs $(wildcard examples/probe-target/*.rs)
	@mkdir -p $(@D)
	$(RUSTC) --edition 2024 -O -C target-feature=+crt-static -C panic=abort -C strip=symbols -o $@ $<

test: ## all tests, also after a failure; those that need root say so when they are skipped
	@if $(CARGO) nextest --version >/dev/null 2>&1; then $(CARGO) nextest run --no-fail-fast --test-threads $(TEST_THREADS); else $(CARGO) test --no-fail-fast; fi

realware: ## real servers from Debian packages (fetched below target, not installed) run tests/pods, as root; SOFTWARE="nginx redis"
	$(CARGO) test --test field_manifests -- --ignored --nocapture $(SOFTWARE)

lint: ## formatting, clippy and documentation, warnings denied
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets -- -D warnings
	$(CARGO) clippy --all-targets --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --no-deps --document-private-items

static: static-embedded static-slim ## one static file with and one without the embedded runtime, and their sizes
	@for f in static static-slim; do sh .ci/size target/$$f/$(MUSL)/release/podprobe; done

static-embedded: musl-std
	PATH="$(STATIC_PATH)$$PATH" $(STATIC_FLAGS) $(CARGO) rustc --release --bin podprobe --target $(MUSL) --target-dir target/static -- $(FOLD) $(OUTLINE)

static-slim: musl-std
	PATH="$(STATIC_PATH)$$PATH" $(STATIC_FLAGS) $(CARGO) rustc --release --bin podprobe --target $(MUSL) --target-dir target/static-slim --no-default-features -- $(FOLD) $(OUTLINE)

musl-std:
	@[ "$(STATIC_PATH)" != none ] || { echo "no Rust standard library for $(MUSL): run 'rustup target add $(MUSL)', or .ci/musl/make-musl-target.sh on Debian" >&2; exit 1; }

bench: $(DEMO) ## times and memory, as root (BENCHMARKS.md); of the static binary when `make static` has built it
	$(CARGO) bench --profile $(PROFILE) --bench start --bench idle --bench exec
	$(NETWORK_BENCH)
	$(CARGO) bench --profile $(PROFILE) --bench pull
	$(CARGO) bench --profile $(PROFILE) --bench services --bench server

soak: $(DEMO) ## MINUTES=60 of 300 probes of misbehaving targets, as root (BENCHMARKS.md); of the static binary as `make bench`
	$(CARGO) bench --profile $(PROFILE) --bench soak

flood: ## SECONDS=60 of 1,000 http probes a second, as root (BENCHMARKS.md)
	$(CARGO) bench --profile $(PROFILE) --bench flood

install: static ## install the static file below PREFIX (default /usr/local)
	install -D -m 755 target/static/$(MUSL)/release/podprobe $(DESTDIR)$(PREFIX)/bin/podprobe

clean: ## remove what was built
	$(CARGO) clean
