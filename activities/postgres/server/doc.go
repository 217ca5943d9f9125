// Package server connects to the PostgreSQL servers of a worker's databases: with the same settings
// in each session, with errors of the contract that name no part of a connection string, and within
// what the worker's config allows.
package server
