# The two commands of the README are `make run` and `make test`. Both prepare what they need by themselves.
# PYTHON=python3.13 SPARK=4.0.0 make test     another interpreter, another PySpark (environments stand side by side in .cache)
PYTHON ?= python3
BROKERS ?=
TOPIC ?=
ARGS ?=
SPARK ?=
export SPARK
# make soak WALKS=100000: how many walks of accidents; STREAMSINK_REAL_WALKS=200: how many of them over real Spark and Kafka
WALKS ?=
export WALKS
ARCHIVE ?= dist/streamsink.zip
# make dist URL=https://...: where the public repository is
URL ?=

BOOTSTRAP = $(PYTHON) tools/bootstrap.py
# with BROKERS the job reads from Kafka and needs Spark's Kafka jars; without, it makes its own records
JOB = $(BOOTSTRAP) exec --for run $(if $(BROKERS),--jars kafka) -- jobs/kafka_to_lake.py \
	$(if $(BROKERS),--brokers '$(BROKERS)') $(if $(TOPIC),--topic '$(TOPIC)')
PYTEST = $(BOOTSTRAP) exec --for test -- -m pytest
# a file's tests share its services, so a file stays on one worker; tests/schedule.py says which files begin, and which stay together.
# Three workers keep two processors busy; the fourth has the tests that mostly wait, for leases and for slow servers
WORKERS ?= 4
PARALLEL = -n $(WORKERS) --dist loadfile

.PHONY: run streamsink run-postgres run-kafka run-iceberg chaos archive dist test test-fast soak sabotage bench accidents docs env clean

run:
	$(JOB) $(ARGS)

chaos:
	$(JOB) --chaos $(ARGS)

# the command line of the package: make streamsink ARGS='snapshots lake/shop.db/orders'
streamsink:
	@$(BOOTSTRAP) exec --for run -- -m streamsink $(ARGS)

# the same events into PostgreSQL, a server of the job's own unless ARGS='--postgres URL' names one; ARGS=--chaos kills
run-postgres:
	$(BOOTSTRAP) exec --for test $(if $(BROKERS),--jars kafka) -- jobs/kafka_to_postgres.py \
		$(if $(BROKERS),--brokers '$(BROKERS)') $(if $(TOPIC),--topic '$(TOPIC)') $(ARGS)

# the same events into a topic, on a broker of the job's own unless ARGS='--to-brokers host:9092' names one
run-kafka:
	$(BOOTSTRAP) exec --for test $(if $(BROKERS),--jars kafka) -- jobs/kafka_to_kafka.py \
		$(if $(BROKERS),--brokers '$(BROKERS)') $(if $(TOPIC),--topic '$(TOPIC)') $(ARGS)

# the same events into an Iceberg table, in a catalog of the job's own unless ARGS='--catalog NAME' names one
run-iceberg:
	$(BOOTSTRAP) exec --for test $(if $(BROKERS),--jars kafka) -- jobs/kafka_to_iceberg.py \
		$(if $(BROKERS),--brokers '$(BROKERS)') $(if $(TOPIC),--topic '$(TOPIC)') $(ARGS)

# the library alone, as spark-submit --py-files takes it: for executors that have not installed it
archive:
	mkdir -p $(dir $(ARCHIVE)) && $(PYTHON) -m zipfile -c $(ARCHIVE) streamsink/

# what a package index takes (sdist, wheel), checked, and a bill of materials: docs/RELEASING.md
dist:
	$(BOOTSTRAP) exec --for test -- tools/dist.py --url '$(URL)' $(ARGS)

test:
	$(PYTEST) $(PARALLEL) $(ARGS)

test-fast:
	$(PYTEST) -m "not soak and not spark" $(ARGS)

soak:
	$(PYTEST) -m soak --timeout 7200 $(ARGS)

# one-line defects, each applied to a copy of the tree: the tests must notice it. ARGS='A5 A6' chooses by name
sabotage:
	$(BOOTSTRAP) exec --for test -- -m tests.sabotage.run $(ARGS)

bench:
	$(BOOTSTRAP) exec --for test -- benchmarks/run.py $(ARGS)

# rows S14 to S18 and S20 to S22 of docs/ACCIDENTS.md, for streamsink and its peers. ARGS='--only S15 --sink Delta' chooses
accidents:
	$(BOOTSTRAP) exec --for test -- benchmarks/accidents/run.py $(ARGS)

# all pages as a site in build/site, for a server or a disk; a link that leads nowhere is an error
docs:
	$(BOOTSTRAP) exec --for docs -- -m tools.site $(ARGS)

env:
	$(BOOTSTRAP) env --for test

clean:
	rm -rf .cache .pytest_cache build dist *.egg-info spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
