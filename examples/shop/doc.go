// Package shop is the example of an environment, which `starter demo --example environment` plays:
// a small web application with its code in a git repository, its rows in PostgreSQL, and its
// uploads in a folder. An agent upgrades a library and migrates the schema, which do not fit each
// other; the shop is rolled back, rolled forward into the failure, and fixed.
//
// Folder story has the files of each chapter.
package shop
