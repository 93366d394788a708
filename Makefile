# What a newcomer needs: `make run` starts a node, `make test` passes the tests. CONTRIBUTING.md has the rest.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

MEMORY_PACKAGES := g++ make protobuf-compiler
BUILD_PACKAGES := $(MEMORY_PACKAGES) libclang1-14 libclang-common-14-dev python3
TEST_PACKAGES := redis-server redis-tools openssl iproute2 libfaketime e2fsprogs mount
PEER_PACKAGES := redis-server memcached etcd-server
CARGO := cargo
TESSERA := target/release/tessera
MEMORY_TESTED := -p tessera-engine -p tessera-store -p tessera-node -p tessera-redis

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 16

deps: ## Install what the build needs, and build RocksDB once for this machine
	@scripts/system-packages $(BUILD_PACKAGES)
	@scripts/rocksdb-archive

test-deps: deps
	@scripts/system-packages $(TEST_PACKAGES)
	@scripts/pegasus-clients
	@scripts/reql-drivers
	@scripts/redis-clients

build: deps ## Build the binary
	$(CARGO) build --locked --release

memory-deps:
	@scripts/system-packages $(MEMORY_PACKAGES)

build-memory: memory-deps ## Build target/memory/release/tessera without RocksDB: tables are in memory only
	$(CARGO) build --locked --release --package tessera --no-default-features --target-dir target/memory

test-memory: memory-deps ## Run the tests of the crates up to `node`, and of the Redis face, without RocksDB
	$(CARGO) test --locked --release $(MEMORY_TESTED) --no-default-features --target-dir target/memory

run: build ## Start three nodes on loopback with their data in ./data
	$(TESSERA) local

test: test-deps ## Run all tests; root must be able to run each, unless TESSERA_MAY_SKIP=1 is set
	@rm -f target/skipped-tests
	$(CARGO) test --locked --release --workspace
	@cat target/skipped-tests 2>/dev/null || echo "No test was skipped."

verify: deps ## Check format, lints and documentation; changes nothing
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --release --workspace --all-targets -- --deny warnings
	$(CARGO) clippy --locked --release --workspace --all-targets --no-default-features -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --locked --release --workspace --no-deps --document-private-items --quiet

fix: deps ## Format the sources and write the generated documents
	$(CARGO) fmt --all
	$(CARGO) run --locked --release --quiet -- commands > docs/redis-commands.md
	UPDATE_METRICS=1 $(CARGO) test --locked --release --quiet -p tessera --test node the_page_of_metrics

bench: test-deps build ## Compare with redis-server (BENCHMARKS.md)
	scripts/bench-goals

peers: ## Install the servers that the suite measures beside Tessera
	@scripts/system-packages $(PEER_PACKAGES)

# Results name the commit that the program was built of.
published: export TESSERA_COMMIT = $(shell git describe --always --dirty --abbrev=8 --exclude='*' 2>/dev/null)
published: build peers ## Measure every published table and figure, at a small scale (docs/report/published)
	target/release/tessera bench suite published --output docs/report/published

ycsb: build ## Measure the same server with the real YCSB and with ours (BENCHMARKS.md); installs a JDK and Maven
	scripts/ycsb compare

crash: test-deps ## Kill a node, and cut its power, 200 times each under load and check what it acknowledged
	TESSERA_KILLS=200 $(CARGO) test --locked --release -p tessera --test node crash -- --nocapture

model: ## Search more of the model of transactions than `make test`, and walk through it for SECONDS=600 from SEED=1 on
	TESSERA_MODEL_SECONDS=$(or $(SECONDS),600) TESSERA_MODEL_ATTEMPTS=2 TESSERA_SEED=$(or $(SEED),1) \
	  $(CARGO) test --locked --release -p tessera-transaction -- --nocapture

chaos: test-deps ## Kill, stop and drain nodes of a cluster for SECONDS=60, SEED=1, and check what clients saw
	TESSERA_CHAOS_SECONDS=$(or $(SECONDS),60) TESSERA_SEED=$(or $(SEED),1) \
	  $(CARGO) test --locked --release -p tessera --test node whatever_happens_to -- --nocapture

chaos-long: test-deps ## Run chaos of every kind for SECONDS=30 with each of RUNS=15 seeds from SEED=1 on; a line for each
	CARGO="$(CARGO)" scripts/chaos-long $(or $(RUNS),15) $(or $(SECONDS),30) $(or $(SEED),1)

redis-clients: test-deps ## Run clients of Redis in Python, Go, Node.js and Java on a cluster; installs their tools
	@scripts/redis-clients all
	$(CARGO) test --locked --release -p tessera --test node redis_clients -- --include-ignored

pegasus-suites: build ## Run the tests that come with Pegasus' Go client against a onebox
	scripts/pegasus-suites

tsan: deps ## Run the memtable's writers and readers under ThreadSanitizer
	scripts/tsan

miri: memory-deps ## Run the memory engine's unit tests under Miri; needs a nightly toolchain with the components miri and rust-src
	scripts/miri

audit: ## Check licences, sources, versions and known weaknesses of all dependencies; needs cargo-deny
	$(CARGO) deny --locked check

failover: test-deps ## Measure how long clients wait when a node is killed, and restarted in its turn, 20 times each
	$(CARGO) test --locked --release -p tessera --test node -- --ignored --nocapture --test-threads 1 failover_takes rolling_restart_takes

oracle: deps ## Compare the evaluator's answers to ReQL queries with RethinkDB's; ORACLE_ONLY=area ORACLE_SHOW=20
	$(CARGO) test --locked --release -p tessera-oracle --test memory -- --nocapture

oracle-wire: test-deps ## The same through the ReQL port, by one node and by three
	ORACLE_WHOLE=1 $(CARGO) test --locked --release -p tessera --test node reql_oracle -- --nocapture --test-threads 1

fuzz: deps ## Fuzz the parsers for ten minutes each; needs a nightly toolchain and cargo-fuzz
	cd fuzz && for target in resp pegasus log peer document reql reql_stored reql_wire reql_resume geometry; do cargo +nightly fuzz run $$target -- -max_total_time=600 -max_len=4096; done

.PHONY: help deps memory-deps test-deps build build-memory test-memory run test verify fix bench peers published ycsb redis-clients pegasus-suites crash model chaos chaos-long failover tsan miri audit fuzz oracle oracle-wire
