// Package environments measures checkpoints and rollbacks of an environment against the commands
// that people use: git stash, docker commit, cp -a and pg_dump; docker rm and run, cp -a,
// pg_restore and git. The environment has a container with 200 MB in 20,000 files, a volume of 100
// MB, a database of 100 MB and a repository of 5,000 files, on an engine with overlay2.
package environments
