#!/bin/sh
# Makes the namespace and the search attributes that Unwind's workflows set; again at every start.
set -eu

temporal operator namespace describe --namespace default ||
	temporal operator namespace create --namespace default --retention 720h
temporal operator search-attribute create --namespace default \
	--name UnwindStatus --type Keyword --name UnwindAgent --type Keyword \
	--name UnwindGate --type Keyword --name UnwindParked --type Keyword \
	--name UnwindFailing --type Keyword \
	--name UnwindPending --type Int --name UnwindTask --type Keyword
