package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Config is what the world needs from its worker.
type Config struct {
	// State is the folder of the journal and of checkpoints. A checkpoint of a database takes as much
	// room in it as the database.
	State string `json:"state"`
	// Roots are the folders in which databases may be used; anything else is refused.
	Roots []string `json:"roots"`
	// Busy is how long a call waits for a database that another program has locked. Defaults to 10
	// seconds.
	Busy time.Duration `json:"busy"`
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool `json:"-"`
}

const defaultBusy = 10 * time.Second

// world is what the worker and the process of a call both need.
type world struct {
	Config

	roots   []string // without symlinks
	journal *journal.Journal
}

// New opens the world. The program must have called [Attend] first.
func New(c Config) (activities.World, error) {
	if !calls.Attended() {
		return activities.World{}, errors.New("sqlite: call sqlite.Attend() first thing in main (or TestMain)")
	}
	w, err := openWorld(c)
	if err != nil {
		return activities.World{}, err
	}
	world := activities.World{
		Name:    "sqlite",
		Actions: actionsOf(w),
		Journal: func(context.Context) (string, error) { return "", nil },
	}
	if !c.LookOnly {
		world.Journal = func(context.Context) (string, error) { return w.journal.Mark() }
		world.Records = journal.Records{Journal: w.journal, Bytes: w.keptBytes}
	}
	return world, nil
}

func openWorld(c Config) (*world, error) {
	if len(c.Roots) == 0 {
		return nil, errors.New("sqlite: Roots is empty; name the folders of the databases that steps may change")
	}
	if c.Busy == 0 {
		c.Busy = defaultBusy
	}
	w := &world{Config: c}
	for _, path := range c.Roots {
		root, err := filepath.EvalSymlinks(path)
		if err == nil && !filepath.IsAbs(root) {
			err = errors.New("give an absolute path")
		}
		if err != nil {
			return nil, fmt.Errorf("sqlite: root %s: %w", path, err)
		}
		w.roots = append(w.roots, root)
	}
	if c.LookOnly {
		return w, nil
	}
	if err := os.MkdirAll(filepath.Join(c.State, checkpoints), 0o700); err != nil {
		return nil, err
	}
	var err error
	w.journal, err = journal.Open(filepath.Join(c.State, "journal"))
	return w, err
}

// errNoFile says that there is no such database file.
var errNoFile = errors.New("there is no such file")

// locate returns the path of a database without symlinks, if a step may use it.
func (w *world) locate(given string) (string, error) {
	if !filepath.IsAbs(given) {
		return "", activities.Errorf(activities.Refused, "database: %q must be an absolute path", given)
	}
	path, err := filepath.EvalSymlinks(given)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errNoFile
	}
	if err != nil {
		return "", err
	}
	allowed := false
	for _, root := range w.roots {
		below, err := filepath.Rel(root, path)
		allowed = allowed || err == nil && filepath.IsLocal(below)
	}
	if !allowed {
		return "", activities.Errorf(activities.Refused,
			"database: %s is in none of the folders that this worker's config allows (sqlite.roots: %s)",
			path, strings.Join(w.Roots, ", "))
	}
	return path, nil
}

// locateThere is locate for a forward, which needs an existing file.
func (w *world) locateThere(given string) (string, error) {
	path, err := w.locate(given)
	if errors.Is(err, errNoFile) {
		return "", activities.RefuseCurrent(keyPrefix+filepath.Clean(given),
			"database: %s: %v; make it first, an empty file will do", given, err)
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = activities.RefuseCurrent(keyPrefix+filepath.Clean(given), "database: %s is not a regular file", given)
	}
	return path, err
}
