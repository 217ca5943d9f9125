// Package schema is what the catalogs say of a database, as a transaction sees it: a description to
// compare, the things in it that have names, the traits that a statement can set again, and which
// tables the transaction has touched.
package schema
