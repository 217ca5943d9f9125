package capture

import (
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
)

const (
	// PrepareLock is how long a preparation waits for a lock on a table at a time.
	PrepareLock  = "2s"
	prepareTries = 5
)

// PrepareShortly prepares tables one at a time, each under a short lock. Others never wait longer
// than this does for the lock.
func PrepareShortly(c *server.Connection, tables []uint32) error {
	for _, oid := range tables {
		if err := Shortly(c, func() error {
			now, err := Describe(c, []uint32{oid})
			if err != nil || len(now) == 0 || now[0].Captured { // another step was faster
				return err
			}
			if err := statement.CheckEventTriggers(c); err != nil {
				return err
			}
			return Prepare(c, now)
		}); err != nil {
			return err
		}
	}
	return nil
}

// Shortly runs do in a transaction that waits for a lock for a short time only, and again where
// that was not enough.
func Shortly(c *server.Connection, do func() error) error {
	for try := 1; ; try++ {
		err := c.InTransaction(func() error {
			if err := c.Run("SET LOCAL lock_timeout = '" + PrepareLock +
				"'; SELECT pg_advisory_xact_lock(hashtext('unwind'))"); err != nil {
				return err
			}
			return do()
		})
		if !server.IsCode(err, "55P03") || try == prepareTries {
			return err
		}
	}
}
