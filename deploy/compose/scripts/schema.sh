#!/bin/sh
# Makes the two databases of a Temporal server and brings their tables up to date; again at every start.
set -eu

for name in temporal visibility; do
	db=temporal
	[ $name = visibility ] && db=temporal_visibility
	tool="temporal-sql-tool --plugin $DB --ep $POSTGRES_SEEDS -p $DB_PORT -u $POSTGRES_USER --db $db"
	$tool create
	$tool setup-schema -v 0.0
	$tool update-schema -s postgresql/v12/$name
done
