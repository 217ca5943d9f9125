package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.temporal.io/server/common/config"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	sqliteschema "go.temporal.io/server/schema/sqlite"
)

// openDatabase creates the tables and the namespace in the file, or in memory if none is named. The
// file belongs to this process alone until it ends.
func openDatabase(o options) (*config.SQL, error) {
	db := &config.SQL{PluginName: sqliteplugin.PluginName, DatabaseName: "unwind",
		ConnectAttributes: map[string]string{"mode": "memory", "cache": "shared"}}
	if o.db != "" {
		path, err := filepath.Abs(o.db)
		if err != nil {
			return nil, err
		}
		if err := lockDatabase(path); err != nil {
			return nil, err
		}
		if err := ensureSchema(path); err != nil {
			return nil, err
		}
		db.DatabaseName = path
		// In WAL mode a commit costs one write; synchronous=NORMAL loses nothing when the process is
		// killed.
		db.ConnectAttributes = map[string]string{"mode": "rwc", "journal_mode": "wal", "synchronous": "1"}
	}
	ns, err := sqliteschema.NewNamespaceConfig(clusterName, o.namespace, false, o.attributes)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", o.namespace, err)
	}
	return db, sqliteschema.CreateNamespaces(db, ns)
}

// ensureSchema creates the tables in a draft file and renames it, so that a killed process leaves
// no incomplete database.
func ensureSchema(path string) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	draft := path + ".new"
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cfg := &config.SQL{PluginName: sqliteplugin.PluginName, DatabaseName: draft,
		// The draft is worthless after a crash, so its hundred statements are not synced.
		ConnectAttributes: map[string]string{"mode": "rwc", "journal_mode": "memory", "synchronous": "0"}}
	if err := sqliteschema.SetupSchema(cfg); err != nil {
		return fmt.Errorf("make the tables of %s: %w", path, err)
	}
	return os.Rename(draft, path)
}

// lockDatabase refuses a second server on the same file, which would lose tasks. The descriptor is
// never closed, so that the lock lasts until the process ends, and with it its last write.
func lockDatabase(path string) error {
	fd, err := syscall.Open(path+".lock", syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path + ".lock", Err: err}
	}
	switch err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err {
	case nil:
		return nil
	case syscall.EWOULDBLOCK:
		return fmt.Errorf("%s is in use by another server: stop that one, or choose another file with --db", path)
	default:
		return fmt.Errorf("lock %s.lock: %w", path, err)
	}
}
