# podprobe. `make help` says what there is; every target is a few lines.
CARGO ?= cargo
RUSTC ?= rustc
PREFIX ?= /usr/local
RUNTIME ?= embedded
# What `make dist` makes archives for.
ARCHES ?= x86_64 aarch64 armv7
# Of the benches themselves; `dev` uses what `make test` has built.
PROFILE ?= bench
# What `make static` builds for: x86_64, aarch64 or armv7; this machine's, if it is one of them.
ARCH ?= $(or $(filter aarch64,$(shell uname -m)),$(patsubst armv7%,armv7,$(filter armv7%,$(shell uname -m))),x86_64)
MUSL_x86_64 := x86_64-unknown-linux-musl
MUSL_aarch64 := aarch64-unknown-linux-musl
MUSL_armv7 := armv7-unknown-linux-musleabihf
MUSL := $(or $(MUSL_$(ARCH)),$(error no such ARCH: $(ARCH); there are x86_64, aarch64 and armv7))
# Compiles the C in ring, which needs the headers of a C library, and links. The libraries are those of Rust's target.
CC_x86_64 := x86_64-linux-gnu-gcc
CC_aarch64 := aarch64-linux-gnu-gcc
CC_armv7 := arm-linux-gnueabihf-gcc
# Each ARCH has a directory of its own, so that one build does not wait for another.
STATIC_DIR := target/static/$(ARCH)
STATIC_CC ?= $(if $(filter $(patsubst armv7,armv7%,$(ARCH)),$(shell uname -m)),cc,$(CC_$(ARCH)))
# Debian's packages of these.
PACKAGES_cc := gcc libc6-dev
PACKAGES_x86_64-linux-gnu-gcc := gcc-x86-64-linux-gnu libc6-dev-amd64-cross
PACKAGES_aarch64-linux-gnu-gcc := gcc-aarch64-linux-gnu libc6-dev-arm64-cross
PACKAGES_arm-linux-gnueabihf-gcc := gcc-arm-linux-gnueabihf libc6-dev-armhf-cross
# Tests wait more than they work.
TEST_THREADS ?= $(shell echo $$((4 * $$(nproc))))
DEMO := target/demo/rootfs/probe-target
# Debian's toolchain goes before the default one when only it has a musl std; "none" when neither has.
STATIC_PATH := $(shell has() { ls "$$($$1 --print target-libdir --target $(MUSL) 2>/dev/null)"/libstd-*.rlib >/dev/null 2>&1; }; \
	has rustc || { has /usr/bin/rustc && echo /usr/bin:; } || echo none)

# Frame pointers make the tables for unwinding a third smaller, 320 KB of the static file. Panics name their place without the
# directory of cargo's sources, so that the file does not depend on where it is built. Time has 64 bits on 32-bit machines too.
SOURCES := $(or $(CARGO_HOME),$(HOME)/.cargo)/registry/src/
FLAGS_armv7 := --cfg libc_unstable_musl_v1_2
CARGO_TARGET := CARGO_TARGET_$(shell echo $(MUSL) | tr a-z- A-Z_)
STATIC_FLAGS := CC_$(subst -,_,$(MUSL))=$(STATIC_CC) CFLAGS_$(subst -,_,$(MUSL))=-U_FORTIFY_SOURCE $(CARGO_TARGET)_LINKER=$(STATIC_CC) \
	$(CARGO_TARGET)_RUSTFLAGS="-C force-frame-pointers=yes --remap-path-prefix=$(SOURCES)= $(FLAGS_$(ARCH))"
# lld folds functions of the same machine code into one, which saves 44 KB, and packs the list of pointers, which saves 430 KB
# where the start of a static file can read that (.ci/musl/rcrt1.c); without lld the file is so much larger.
# (A cross compiler does not search the PATH for it.)
LLD := $(shell command -v ld.lld)
FOLD := $(if $(LLD),$(shell echo -C link-arg=-fuse-ld=lld -C link-arg=-B$(dir $(LLD)) -C link-arg=-Wl,--icf=all && \
	ls "$$(PATH="$(STATIC_PATH)$$PATH" $(RUSTC) --print target-libdir --target $(MUSL) 2>/dev/null)/self-contained/reads-relr" >/dev/null 2>&1 && \
	echo -C link-arg=-Wl,--pack-dyn-relocs=relr))

# What makes the file 450 KB smaller. The compiler makes a function of what stands in many places (190 KB); each has 40 bytes of
# tables, which the benefit does not count. It calls memcpy to move more than one register holds (210 KB), puts somewhat larger
# functions into their callers (20 KB), computes nothing early on paths that may not need it (15 KB), and writes short matches as
# comparisons (8 KB). `podprobe validate` takes as long as without these.
# (The tables for unwinding are made half as large, 540 KB, by compact-unwind. Where another linker or standard library makes them
# otherwise, they stay as they are.)
SMALL := $(addprefix -C llvm-args=-,enable-machine-outliner=always outliner-benefit-threshold=24 max-store-memcpy=1 \
	inline-threshold=15 enable-pre=false enable-load-pre=false min-jump-table-entries=8)

# Workers are measured in this program's own processes, so it is built as the static file is (and with what that left).
ifeq ($(STATIC_PATH),none)
NETWORK_BENCH := $(CARGO) bench --bench network
else
NETWORK_BENCH := PATH="$(STATIC_PATH)$$PATH" $(STATIC_FLAGS) $(CARGO) bench --bench network --profile release --target $(MUSL) --target-dir $(STATIC_DIR)
endif

.DEFAULT_GOAL := help
.PHONY: help build run test test-arch realware conformance lint static dist static-tools vm vm-guest inits bench soak crash flood install apparmor clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

build: ## build the program (target/debug/podprobe)
	$(CARGO) build

run: build $(DEMO) ## the demo: four pods, live in the terminal; Ctrl-C removes everything (as root)
	@[ "$$(id -u)" = 0 ] || { echo "make run needs root, for containers need mounts, namespaces and cgroups: sudo env PATH=\"\$$PATH\" make run" >&2; exit 1; }
	@exec target/debug/podprobe try --pods config/pods --image target/demo/rootfs=probe-target:latest --runtime $(RUNTIME)

$(DEMO): examples/probe-target/main.rs $(wildcard examples/probe-target/*.rs)
	@mkdir -p $(@D)
	$(RUSTC) --edition 2024 -O -C target-feature=+crt-static -C panic=abort -C strip=symbols -o $@ $<

# Tests tell the file why they are skipped; the exit code is the tests'.
SKIPPED := $(CURDIR)/target/skipped
test: ## all tests, also after a failure; ends with how many were skipped for want of what
	@mkdir -p target && : > $(SKIPPED)
	@export PODPROBE_SKIPPED=$(SKIPPED); \
	if $(CARGO) nextest --version >/dev/null 2>&1; then $(CARGO) nextest run --no-fail-fast --test-threads $(TEST_THREADS); else $(CARGO) test --no-fail-fast; fi; \
	code=$$?; sh .ci/skipped $(SKIPPED); exit $$code

# The unit tests of ARCH=aarch64 or armv7 under qemu-user, which lacks some calls of the kernel: UNIT chooses those of wings that make any.
QEMU_aarch64 := qemu-aarch64-static
QEMU_armv7 := qemu-arm-static
UNIT ?= seccomp:: prober:: workers:: services:: views:: images::
TEST_ARCH = PATH="$(STATIC_PATH)$$PATH" $(STATIC_FLAGS) $(CARGO_TARGET)_RUNNER=$(QEMU_$(ARCH)) \
	$(CARGO) test --lib --target $(MUSL) --target-dir target/arch
test-arch: static-tools
	$(TEST_ARCH) --package podprobe-api --package podprobe-workloads
	$(TEST_ARCH) -- $(UNIT)

realware: ## real servers from Debian packages (fetched below target, not installed) run tests/pods, as root; SOFTWARE="nginx redis"
	$(CARGO) test --test kubelet -- --ignored --nocapture $(or $(SOFTWARE),field_manifests::real)

KIT ?= ../conformance-kit
conformance: build ## upstream's node specs under a real control plane, as root; KIT=../conformance-kit (docs/conformance.md)
	tests/conformance/run $(KIT) target/debug/podprobe

KERNEL ?= 6.1-amd64 6.12-amd64 6.1-arm64
# What a machine boots with: the static file of its architecture, and the program of tests/vm.
vm_arch = $(patsubst %-amd64,x86_64,$(patsubst %-arm64,aarch64,$(patsubst %-armhf,armv7,$(1))))
VM_ARCHS := $(sort $(foreach k,$(KERNEL),$(call vm_arch,$(k))))

vm: ## boot Debian's kernels in QEMU and run tests/vm inside; KERNEL="6.1-amd64 6.12-amd64 6.1-arm64", or 6.1-armhf; ONLY="oom names"
	@tests/vm/run --check $(KERNEL)
	for arch in $(VM_ARCHS); do $(MAKE) --no-print-directory static vm-guest ARCH=$$arch || exit 1; done
	tests/vm/run $(foreach k,$(KERNEL),$(k)=target/static/podprobe-$(call vm_arch,$(k)),target/vm/guest-$(call vm_arch,$(k)))

INITS ?= systemd openrc sysv
inits: ## boot systemd, OpenRC and a SysV init in QEMU, and run tests/inits inside: install, reload, upgrade, shutdown, power cut; needs root; INITS="systemd"
	@tests/inits/run --check
	$(MAKE) --no-print-directory static ARCH=x86_64
	tests/inits/run target/static/podprobe-x86_64 $(INITS)

vm-guest: static-tools
	@mkdir -p target/vm
	PATH="$(STATIC_PATH)$$PATH" $(RUSTC) --edition 2024 -O --target $(MUSL) -C linker=$(STATIC_CC) -C target-feature=+crt-static -C panic=abort \
		-C strip=symbols -o target/vm/guest-$(ARCH) tests/vm/guest/main.rs

lint: ## formatting, clippy and documentation, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --no-deps --document-private-items

static: static-tools ## the static file, for ARCH=aarch64 or armv7 too, and its size
	PATH="$(STATIC_PATH)$$PATH" $(STATIC_FLAGS) $(CARGO) rustc --release --package podprobe --bin podprobe --target $(MUSL) --target-dir $(STATIC_DIR) -- $(FOLD) $(SMALL)
	@install $(STATIC_DIR)/$(MUSL)/release/podprobe target/static/podprobe-$(ARCH)
	$(if $(and $(LLD),$(filter x86_64,$(ARCH))),@PATH="$(STATIC_PATH)$$PATH" $(RUSTC) --edition 2024 -O -o target/static/compact-unwind \
		.ci/compact_unwind.rs && \
		{ target/static/compact-unwind target/static/podprobe-$(ARCH) || echo "the tables for unwinding stay as they are"; })
	@sh .ci/size target/static/podprobe-$(ARCH)

# A static file, the manual, licences and a bill of materials of each architecture, and the checksums.
dist: ## archives to publish in target/dist, for ARCHES (default x86_64 aarch64 armv7)
	for arch in $(ARCHES); do \
		$(MAKE) --no-print-directory static ARCH=$$arch && CARGO="$(CARGO)" sh .ci/archive $$arch target/static/podprobe-$$arch target/dist || exit 1; \
	done

# Before anything is compiled: without one of these the build ends minutes later, in somebody else's words.
static-tools:
	@command -v $(STATIC_CC) >/dev/null || { echo "make static needs $(STATIC_CC), a C compiler for $(ARCH): apt-get install $(or $(PACKAGES_$(STATIC_CC)),gcc)" >&2; exit 1; }
	@echo '#include <stdint.h>' | $(STATIC_CC) -E - >/dev/null 2>&1 || { echo "make static needs the headers of a C library for $(ARCH): apt-get install $(or $(PACKAGES_$(STATIC_CC)),libc6-dev)" >&2; exit 1; }
	@[ "$(STATIC_PATH)" != none ] || { echo "make static needs Rust's standard library for $(MUSL): rustup target add $(MUSL); or on Debian .ci/musl/make-musl-target.sh $(ARCH)" >&2; exit 1; }

bench: $(DEMO) ## times and memory, as root (BENCHMARKS.md); of the static binary when `make static` has built it
	$(CARGO) bench --profile $(PROFILE) --bench start --bench idle --bench exec
	$(NETWORK_BENCH)
	$(CARGO) bench --profile $(PROFILE) --bench pull
	$(CARGO) bench --profile $(PROFILE) --bench edits --bench many
	$(CARGO) bench --profile $(PROFILE) --bench services --bench server
	$(CARGO) bench --profile $(PROFILE) --bench rollouts --bench workloads

soak: $(DEMO) ## MINUTES=60 of 300 probes of misbehaving targets, as root (BENCHMARKS.md); of the static binary as `make bench`
	$(CARGO) bench --profile $(PROFILE) --bench soak

crash: $(DEMO) ## MINUTES=60 of kills and damaged records in the life of a node, as root (BENCHMARKS.md); of the static binary as `make bench`
	$(CARGO) bench --profile $(PROFILE) --bench crash

flood: ## SECONDS=60 of 1,000 http probes a second, as root (BENCHMARKS.md)
	$(CARGO) bench --profile $(PROFILE) --bench flood

install: static ## build the static file and `podprobe install` it below PREFIX (default /usr/local), as root; INSTALL="--init none"
	target/static/podprobe-$(ARCH) install --prefix $(PREFIX) $(if $(DESTDIR),--root $(DESTDIR)) $(INSTALL)

apparmor: ## install and load the AppArmor profile podprobe-default, which confines containers that ask for none
	install -D -m 644 config/apparmor.d/podprobe-default $(DESTDIR)/etc/apparmor.d/podprobe-default
	@[ -n "$(DESTDIR)" ] || apparmor_parser --skip-cache --replace /etc/apparmor.d/podprobe-default

clean: ## remove what was built
	$(CARGO) clean
