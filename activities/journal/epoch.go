package journal

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-62bf7108/unwind/activities"
)

// A journal whose disk or machine was restored to an earlier state has forgotten what happened
// since, and would say of a step that acted since that there is nothing to undo. So whoever
// compiles a step first adds an epoch to the journal, and the step's entry, in the history, names
// it: a journal that does not know the epoch was rewound. Each process that adds epochs has a
// series of its own, numbered from 1, of which the journal keeps the last number. A number in
// common would not do: a rewound journal soon comes to it again.

const epochsName = "epochs"

// series are the epochs that this process adds to a journal.
type series struct {
	sync.Mutex

	name string // the file in the folder of epochs; empty before the first epoch
	last int
}

// Mark adds an epoch to the journal, and returns what a Place holds: the journal's ID and the
// epoch, as ID~SERIES.NUMBER.
func (j *Journal) Mark() (string, error) {
	j.series.Lock()
	defer j.series.Unlock()
	dir := filepath.Join(j.dir, epochsName)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = syncDir(j.dir)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("journal %s: %w", j.dir, err)
	}
	// rewound meanwhile, if not new
	if last, err := j.lastEpoch(j.series.name); err != nil || last != j.series.last || j.series.name == "" {
		fresh := make([]byte, 4)
		rand.Read(fresh)
		j.series.name, j.series.last = hex.EncodeToString(fresh), 0
	}
	next := j.series.last + 1
	raw, _ := json.Marshal(next)
	tmp, err := writeTemp(dir, j.series.name, raw)
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, j.series.name))
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return "", fmt.Errorf("journal %s: a new epoch: %w", j.dir, err)
	}
	j.series.last = next
	return fmt.Sprintf("%s~%s.%d", j.id, j.series.name, next), nil
}

// Check refuses an entry whose record is in another journal, with WrongPlace. It is a DamagedRecord
// if the journal does not know the epoch of the mark. What concerns steps of several epochs, such
// as a commit, names the journal alone.
func (j *Journal) Check(mark string) error {
	id, epoch, _ := strings.Cut(mark, "~")
	if id != j.id {
		return activities.Errorf(activities.WrongPlace, "the record is in journal %s; this is journal %s in %s", id, j.id,
			j.dir)
	}
	if epoch == "" {
		return nil
	}
	name, text, _ := strings.Cut(epoch, ".")
	n, err := strconv.Atoi(text)
	if err != nil || len(name) != 8 || strings.Trim(name, "0123456789abcdef") != "" {
		return activities.Errorf(activities.WrongPlace, "journal %s in %s: %q is no epoch", j.id, j.dir, epoch)
	}
	last, err := j.lastEpoch(name)
	if err != nil {
		return err
	}
	if last < n {
		return activities.Errorf(activities.DamagedRecord,
			"journal %s was put back to a state from before this step was compiled (it does not know epoch %s), so it "+
				"cannot tell what the step did: nothing was touched; bring back the newer state of it, or decide what becomes "+
				"of the step",
			j.dir, epoch)
	}
	return nil
}

// lastEpoch returns the last number of a series; 0 if the journal does not know the series.
func (j *Journal) lastEpoch(series string) (last int, err error) {
	if series == "" {
		return 0, nil
	}
	file := filepath.Join(j.dir, epochsName, series)
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(raw, &last); err != nil {
		return 0, damagedError(filepath.Dir(file), series, err.Error())
	}
	return last, nil
}
