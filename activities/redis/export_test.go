package redis

import (
	"os"
)

// OnSync calls do with the path of each file of a keyspace that has reached the disk, until the
// function that it returns is called.
func OnSync(do func(path string)) (stop func()) {
	was := fsync
	fsync = func(f *os.File) error {
		err := was(f)
		do(f.Name())
		return err
	}
	return func() { fsync = was }
}
